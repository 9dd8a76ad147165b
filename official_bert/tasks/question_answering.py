"""Answers questions about a text with parts of the text: a model and a tokenizer, ready for any number of questions.

The windows, the search and the probabilities are those of `run_squad.py`; nothing is written to disk.
"""

from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np

from official_bert.errors import UserError
from official_bert.modeling.span import SpanModel
from official_bert.progress import Progress
from official_bert.tasks.squad import LOGITS, NOT_COMPUTED
from official_bert.tasks.squad_answers import RankedAnswer, find_answers
from official_bert.tasks.squad_data import Question, SquadSet
from official_bert.tasks.squad_windows import TokenizedSquad, Window, WindowOptions
from official_bert.tasks.vocabulary_check import check_vocabulary
from official_bert.tokenization import FullTokenizer

NUM_RANKED = 20  # reference value: the answers of a question that share its probability

_WINDOWS_IN_A_BATCH = 16


class FoundAnswer(NamedTuple):
    """A part of a context that may answer a question.

    Attributes:
      text: `context[start:end]`; "" is that the context holds no answer.
      rank: its place among the question's answers, from 1.
      probability: its share among the question's `NUM_RANKED` best answers.
      start: the character of the context at which it begins; 0 of no answer.
      end: the character after it; 0 of no answer.
    """

    text: str
    rank: int
    probability: float
    start: int
    end: int


class QuestionAnswerer:
    """Answers questions about texts.

    Example:
      >>> answerer = QuestionAnswerer(model, tokenizer)
      >>> answerer.answer("Who keeps bees?", "In spring Zoë Lindqvist keeps bees.", top_k=1)
      [FoundAnswer(text='Zoë Lindqvist', rank=1, probability=0.93, start=10, end=23)]
    """

    def __init__(
        self,
        model: SpanModel,
        tokenizer: FullTokenizer,
        *,
        max_seq_length: int = 384,
        doc_stride: int = 128,
        max_query_length: int = 64,
        max_answer_length: int = 30,
        version_2: bool = False,
    ):
        """Joins a trained model with its tokenizer.

        Args:
          model: the model; its weights are used as they are when a question is asked.
          tokenizer: the one it was trained with.
          max_seq_length: most wordpieces that are read at once: those of the question, of a part of the context, and 3.
          doc_stride: wordpieces from the start of one part of a long context to the start of the next.
          max_query_length: wordpieces of a question; what is longer loses its end.
          max_answer_length: most wordpieces of an answer.
          version_2: whether a question may have no answer, as the model learned from SQuAD 2.0.

        Raises:
          UserError: the lengths do not fit each other or the model, or the vocabulary does not fit the model.
        """
        check_vocabulary(tokenizer.vocabulary, model.encoder)
        if max_seq_length > model.encoder.max_length:
            raise UserError(
                f"--max_seq_length={max_seq_length}, but the model reads {model.encoder.max_length} wordpieces; "
                "give at most that many"
            )
        self._model, self._tokenizer = model, tokenizer
        self._options = WindowOptions(max_seq_length, doc_stride, max_query_length, answer_alignment="offsets")
        self._max_answer_length, self._version_2 = max_answer_length, version_2

    def answer(self, question: str, context: str, *, top_k: int = 5) -> list[FoundAnswer]:
        """Finds the best answers to a question.

        Args:
          question: the question.
          context: the text to find answers in, of any length.
          top_k: how many.

        Returns:
          At least one answer and at most `top_k`, the best first, no text twice. If there may be no answer, that comes
          in addition where it is not among them.

        Raises:
          UserError: the question or the context has no wordpieces, or `top_k` is not positive.
        """
        if top_k < 1:
            raise UserError(f"top_k={top_k} must be 1 or more")
        if not self._tokenizer.encode(question):
            raise UserError(f"the question {question!r} holds no words; ask something")
        squad = SquadSet([context], [Question("", question, 0, (), is_impossible=False)])
        tokenized = TokenizedSquad(squad, self._tokenizer, self._options)
        if not tokenized.contexts[0].ids.size:
            raise UserError("the text to find answers in holds no words; give another")
        windows = tokenized.prediction_windows()
        logits = self._logits(tokenized, windows)
        # Few starts and ends are looked at. If all of them stand in the question, then every position is.
        for num_ranked in (max(top_k, NUM_RANKED), self._options.max_seq_length):
            (found,) = find_answers(
                tokenized,
                windows,
                *logits,
                n_best_size=num_ranked,
                max_answer_length=self._max_answer_length,
                version_2=self._version_2,
            )
            if any(answer.position is not None for answer in found.ranked):
                break
        answers = [_found_answer(rank, answer) for rank, answer in enumerate(found.ranked, start=1)]
        return [answer for answer in answers if answer.rank <= top_k or not answer.text]

    def _logits(self, tokenized: TokenizedSquad, windows: Sequence[Window]) -> list[np.ndarray]:
        """Start and end logits of every window; float32 [N, S]."""
        shape = len(windows), self._options.max_seq_length
        logits = [np.full(shape, NOT_COMPUTED, np.float32) for _ in LOGITS]
        with Progress("reading", len(windows), "windows") as progress:
            for first in range(0, len(windows), _WINDOWS_IN_A_BATCH):
                batch = _padded(tokenized, windows[first : first + _WINDOWS_IN_A_BATCH])
                outputs = self._model(batch, training=False)
                rows, is_computed = slice(first, first + _WINDOWS_IN_A_BATCH), batch["input_mask"] > 0  # [B, longest]
                for target, name in zip(logits, LOGITS, strict=True):
                    computed = keras.ops.convert_to_numpy(outputs[name])
                    target[rows, : is_computed.shape[1]][is_computed] = computed[is_computed]
                progress.update(min(first + _WINDOWS_IN_A_BATCH, len(windows)))
        return logits


def _padded(tokenized: TokenizedSquad, windows: Sequence[Window]) -> dict[str, np.ndarray]:
    """What the model reads of some windows, each as long as the longest; int32 [B, longest]."""
    packed = [tokenized.pack(window) for window in windows]
    shape = len(packed), max(len(sequence.input_ids) for sequence in packed)
    batch = {name: np.zeros(shape, np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    for row, sequence in enumerate(packed):
        for name, values in batch.items():
            values[row, : len(sequence.input_ids)] = list(getattr(sequence, name))
    return batch


def _found_answer(rank: int, answer: RankedAnswer) -> FoundAnswer:
    start = answer.position or 0
    return FoundAnswer(answer.text, rank, answer.probability, start, start + len(answer.text))
