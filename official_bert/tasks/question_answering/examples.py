"""Question answering data in SQuAD's JSON format: versions 1.1 and 2.0, and KorQuAD, which uses 1.1."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from official_bert.support import text_files
from official_bert.support.errors import UserError

# The reference splits words only at these characters; other white space, such as U+3000, is part of a word.
_WORD = re.compile("[^ \t\r\n\u202f]+")
_MOST_MISPLACED_SHOWN = 5
_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    float: "a number",
    type(None): "null",
}


class Answer(NamedTuple):
    """A gold answer."""

    text: str  # the answer
    start: int  # offset of its first character in the context; -1 if the file lacks it, an error in training


class Question(NamedTuple):
    """A question about a context."""

    id: str  # its key in prediction files
    text: str  # the question
    context_index: int  # index of its context in the data set
    answers: tuple[Answer, ...]  # the gold answers, any of which is correct; () if there are none or they are unknown
    is_impossible: bool  # the context is known to contain no answer

    @property
    def is_labelled(self) -> bool:
        """True if the correct answer is known."""
        return bool(self.answers) or self.is_impossible


class SquadSet(NamedTuple):
    """The questions of a file, in order."""

    contexts: list[str]  # the contexts of the questions
    questions: list[Question]  # the questions

    @property
    def num_labelled(self) -> int:
        """Number of questions whose correct answer is known."""
        return sum(question.is_labelled for question in self.questions)

    @property
    def is_labelled(self) -> bool:
        """True if the correct answers to all questions are known, so predictions can be scored."""
        return self.num_labelled == len(self.questions)

    @property
    def gold_texts(self) -> dict[str, list[str]]:
        """Map from question id to correct texts; an empty list for unanswerable questions."""
        return {question.id: [answer.text for answer in question.answers] for question in self.questions}


class Words(NamedTuple):
    """The words of a context."""

    texts: list[str]  # the words: `["in", "Rome."]` for `"in  Rome."`
    starts: list[int]  # offset of each word's first character

    def joined(self, first: int, last: int) -> str:
        """Return the words from `first` to `last`, with one space between them."""
        return " ".join(self.texts[first : last + 1])


def split_words(context: str) -> Words:
    """Split a context at the reference's white space."""
    matches = list(_WORD.finditer(context))
    return Words([match[0] for match in matches], [match.start() for match in matches])


def words_of_answer(word_starts: Sequence[int], answer: Answer) -> tuple[int, int]:
    """Return the first and last word that an answer overlaps; -1 is white space before the first word."""
    last_character = answer.start + len(answer.text) - 1
    return bisect_right(word_starts, answer.start) - 1, bisect_right(word_starts, last_character) - 1


def read_squad(path: str, *, for_training: bool, version_2: bool) -> SquadSet:
    """Read a file.

    In training, a question whose answer is not at `answer_start` is skipped with a warning. The words there must
    contain the answer, but may contain more.
    """
    reader = _Reader(path, for_training, version_2)
    return reader.read()


class _Reader:
    """Reader of one file; `where` in its methods is the location in the file, for error messages."""

    def __init__(self, path: str, for_training: bool, version_2: bool):
        self._path = path
        self._for_training = for_training
        self._version_2 = version_2
        self._place_of_id: dict[str, str] = {}
        self._misplaced: list[tuple[str, Answer, str | None]] = []
        self._num_skipped = 0

    def read(self) -> SquadSet:
        contexts, questions = [], []
        for where, paragraph in self._paragraphs():
            context = _value(paragraph, "context", str, where)
            words = split_words(context) if self._for_training else None
            for number, entry in enumerate(_value(paragraph, "qas", list, where), start=1):
                question = self._question(entry, len(contexts), f"{where}, question {number}")
                if words is None or self._has_its_answer(question, context, words):
                    questions.append(question)
            contexts.append(context)
        self._report_misplaced()
        if not questions:
            reason = f"none of its {self._num_skipped} questions can be used" if self._num_skipped else "no questions"
            raise UserError(f"{self._path}: {reason}; is this the right file?")
        return SquadSet(contexts, questions)

    def _paragraphs(self) -> Iterator[tuple[str, Any]]:
        content = text_files.read_json(self._path, "SQuAD file", max_bytes=None)
        for number, article in enumerate(_value(content, "data", list, self._path), start=1):
            where = f"{self._path}: article {number}"
            for part, paragraph in enumerate(_value(article, "paragraphs", list, where), start=1):
                yield f"{where}, paragraph {part}", paragraph

    def _question(self, entry: Any, context_index: int, where: str) -> Question:
        identity = _value(entry, "id", (str, int), where)
        identity = str(identity)  # JSON object keys are strings anyway
        where = f"{where} (id {identity!r})"
        if identity in self._place_of_id:
            raise UserError(f"{where}: {self._place_of_id[identity]} has the same id; ids must be unique, rename one")
        self._place_of_id[identity] = where
        text = _value(entry, "question", str, where)
        is_impossible, answers = False, ()
        if self._version_2:
            is_impossible = self._is_impossible(entry, where)
        if not is_impossible and (self._for_training or "answers" in entry):
            answers = tuple(
                self._answer(answer, f"{where}, answer {number}")
                for number, answer in enumerate(_value(entry, "answers", list, where), start=1)
            )
            if self._for_training and len(answers) != 1:
                raise UserError(f"{where} has {len(answers)} answers; {self._advice(answers)}")
        return Question(identity, text, context_index, answers, is_impossible)

    def _is_impossible(self, entry: dict[str, Any], where: str) -> bool:
        if "is_impossible" not in entry:
            if self._for_training:
                raise UserError(
                    f'{where} lacks "is_impossible", which training with version_2_with_negative needs; '
                    "leave that flag out for a file of version 1.1"
                )
            return entry.get("answers") == []
        return _value(entry, "is_impossible", bool, where)

    def _answer(self, entry: Any, where: str) -> Answer:
        text = _value(entry, "text", str, where)
        if self._for_training or (isinstance(entry, dict) and "answer_start" in entry):
            return Answer(text, _value(entry, "answer_start", int, where))
        return Answer(text, -1)

    def _advice(self, answers: Sequence[Answer]) -> str:
        advice = "for training, each question must have exactly 1 answer"
        if answers:
            return f"{advice}: keep one of them"
        if self._version_2:
            return f'{advice}, or "is_impossible": true'
        return f"{advice}; if the file has questions without answers (SQuAD 2.0), give version_2_with_negative"

    def _has_its_answer(self, question: Question, context: str, words: Words) -> bool:
        if question.is_impossible:
            return True
        (answer,) = question.answers
        is_inside = bool(answer.text.strip()) and 0 <= answer.start <= len(context) - len(answer.text)
        found = context[answer.start : answer.start + len(answer.text)] if is_inside else None
        if found != answer.text:
            self._misplaced.append((question.id, answer, found))
        held = words.joined(*words_of_answer(words.starts, answer)) if is_inside else ""
        # The reference tries only the first, and so skips the answer "5\u00a0km" in "at 5\u00a0km".
        is_usable = is_inside and any(
            " ".join(w) in held for w in (answer.text.split(), split_words(answer.text).texts)
        )
        self._num_skipped += not is_usable
        return is_usable

    def _report_misplaced(self) -> None:
        if not self._misplaced:
            return
        logging.warning(
            "%s: answer_start of %d questions does not point at the answer; %d of them are skipped, because the words "
            "there do not contain it. The first ones:",
            self._path,
            len(self._misplaced),
            self._num_skipped,
        )
        for identity, answer, found in self._misplaced[:_MOST_MISPLACED_SHOWN]:
            shown = "nothing" if found is None else repr(found)
            logging.warning(
                "  id %r: expected %r at character %d, found %s", identity, answer.text, answer.start, shown
            )


def _value(holder: Any, key: str, kinds: type | tuple[type, ...], where: str) -> Any:
    """Look up a key of a JSON object and check the type of its value."""
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(holder, dict):
        raise UserError(f"{where} must be {_KINDS[dict]} with the key {key!r}, not {_KINDS[type(holder)]}")
    if key not in holder:
        raise UserError(f"{where} lacks the key {key!r}; is the file in SQuAD's format?")
    if type(holder[key]) not in kinds:  # not isinstance: `true` is not a number
        expected = " or ".join(_KINDS[kind] for kind in kinds)
        raise UserError(f"{where}: {key!r} must be {expected}, not {_KINDS[type(holder[key])]}")
    return holder[key]
