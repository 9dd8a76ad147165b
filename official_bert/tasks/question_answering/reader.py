"""Reader of question answering, in Python and NumPy: a question and a context to windows, and logits to answers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from official_bert.serving.signatures import TEXT, Arrays, ArraySpec, Reader, Reading, Specs, dtype_of, padded_table
from official_bert.tasks.question_answering.answers import LOGITS, MASKED_LOGIT, RankedAnswer, find_answers
from official_bert.tasks.question_answering.data import Question, SquadSet, TokenizedSquad, WindowOptions
from official_bert.tokenization import Tokenizer

NUM_RANKED = 20  # reference value: number of answers that the probabilities are normalized over

# The outputs with K answers, and a value of their types.
_COLUMNS = {"answers": b"", "probabilities": np.float32(0), "starts": np.int32(0), "ends": np.int32(0)}


class Answer(NamedTuple):
    """A candidate answer: a span of the context."""

    text: str  # `context[start:end]`; "" for no answer
    probability: float  # its probability among the best answers to the question
    start: int  # offset of its first character in the context, not counting undecodable characters; 0 for no answer
    end: int  # offset after its last character


class AnswerReader(Reader):
    has_windows = True

    def __init__(self, said: Mapping[str, Any], tokenizer: Tokenizer):
        super().__init__(said, tokenizer)
        sizes = {name: said[name] for name in ("max_seq_length", "doc_stride", "max_query_length")}
        self._options, self._top_k = WindowOptions(**sizes, answer_alignment="offsets"), said["top_k"]
        self._search = {name: said[name] for name in ("max_answer_length", "version_2")}

    def encode(self, question: str, context: str) -> Reading:
        squad = SquadSet([context], [Question("", question, 0, (), False)])
        tokenized = TokenizedSquad(squad, self.tokenizer, self._options, num_processes=1, is_logging=False)
        return Reading([tokenized.join(window).inputs for window in tokenized.windows], tokenized)

    def decode(self, readings: Sequence[Reading], outputs: Sequence[Sequence[Arrays]]) -> Arrays:
        found = []
        for reading, rows in zip(readings, outputs, strict=True):
            logits = [padded_table((row[name] for row in rows), MASKED_LOGIT) for name in LOGITS]  # [W, S]
            best = max(self._top_k, NUM_RANKED)
            found += find_answers(reading.parts, *logits, n_best_size=best, finds_any=True, **self._search)
        ranked = [
            # Without wordpieces, the context has no answer; the reference gives "empty".
            [
                _columns(answer)
                for answer in answers.ranked[: self._top_k]
                if answer.position is not None or not answer.text
            ]
            for answers in found
        ]
        tables = {
            name: padded_table(([columns[number] for columns in row] for row in ranked), empty, self._top_k)
            for number, (name, empty) in enumerate(_COLUMNS.items())
        }
        if self._search["version_2"]:
            null = (answer.probability for answers in found for answer in answers.ranked if not answer.text)
            tables["null_probabilities"] = np.fromiter(null, np.float32)
            tables["null_odds"] = np.array([answers.null_odds for answers in found], np.float32)
        return tables

    def specs(self, numbers: Specs) -> dict[str, Specs]:
        answers = {name: ArraySpec(dtype_of(empty), (None, self._top_k)) for name, empty in _COLUMNS.items()}
        nulls = ("null_probabilities", "null_odds") if self._search["version_2"] else ()
        of_questions = dict.fromkeys(nulls, ArraySpec(np.dtype(np.float32), (None,)))
        return {**super().specs(numbers), TEXT: {**answers, **of_questions}}


def _columns(answer: RankedAnswer) -> tuple[bytes, float, int, int]:
    start = answer.position or 0
    return answer.text.encode(), answer.probability, start, start + len(answer.text)


READER = AnswerReader


def results(outputs: Mapping[str, np.ndarray]) -> list[list[Answer]]:
    """Convert outputs of the signature `text` to the answers to each question, best first.

    If questions may be unanswerable, "no answer" is always included.
    """
    found = []
    for row in range(len(outputs["answers"])):
        columns = {name: values[row].tolist() for name, values in outputs.items()}
        rows = zip(*(columns[name] for name in ("answers", "probabilities", "starts", "ends")), strict=True)
        answers = [Answer(text.decode(), *values) for text, *values in rows if values[0]]
        if "null_probabilities" in columns and all(answer.text for answer in answers):
            answers.append(Answer("", columns["null_probabilities"], 0, 0))
        found.append(answers)
    return found
