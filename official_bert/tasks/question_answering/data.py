"""Question answering: data in SQuAD's JSON format (1.1, 2.0, KorQuAD and KLUE), its windows and their records."""

import dataclasses
import functools
import itertools
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple, TypedDict

import numpy as np
from absl import logging

from official_bert.data.record_files import RecordFile
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.support import text_files
from official_bert.support.console import Progress
from official_bert.support.errors import UserError, format_names
from official_bert.support.manifest import fingerprint
from official_bert.support.processes import Workers, available_cores
from official_bert.tasks.question_answering.options import SquadConfig
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.sequences import JoinedSequence, SlidingWindow, join_pair
from official_bert.tokenization.tokenizer import EncodingWithOffsets

# The reference splits words only at these characters; other white space, such as U+3000, is part of a word.
_WORD = re.compile("[^ \t\r\n\u202f]+")


class Answer(NamedTuple):
    text: str  # the answer
    start: int  # offset of its first character in the context; -1 if the file lacks it, an error in training


class Question(NamedTuple):
    id: str  # its key in prediction files
    text: str  # the question
    context_index: int  # index of its context in the data set
    answers: tuple[Answer, ...]  # the gold answers, any of which is correct; () if there are none or they are unknown
    is_impossible: bool  # the context is known to contain no answer

    @property
    def is_labelled(self) -> bool:
        return bool(self.answers) or self.is_impossible


class SquadSet(NamedTuple):
    """The questions of a file, in order; predictions can be scored if all are labelled."""

    contexts: list[str]  # the contexts of the questions
    questions: list[Question]  # the questions

    @property
    def num_labelled(self) -> int:
        return sum(question.is_labelled for question in self.questions)

    @property
    def is_labelled(self) -> bool:
        return self.num_labelled == len(self.questions)

    @property
    def gold_texts(self) -> dict[str, list[str]]:
        """The correct texts by question id; none for unanswerable questions."""
        return {question.id: [answer.text for answer in question.answers] for question in self.questions}


SquadData = tuple[SquadSet | None, SquadSet | None]  # to train with, and to predict


class Words(NamedTuple):
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


class _Answer(TypedDict):
    text: str


class _PlacedAnswer(_Answer, total=False):
    answer_start: int


class _Question(TypedDict):
    question: str


class _AnsweredQuestion(_Question, total=False):
    id: str | int
    guid: str  # KLUE's name of the id
    answers: list[_PlacedAnswer]
    is_impossible: bool


class _Paragraph(TypedDict):
    context: str
    qas: list[_AnsweredQuestion]


class _Article(TypedDict):
    paragraphs: list[_Paragraph]


class _File(TypedDict):
    data: list[_Article]


def read_squad(path: str, *, for_training: bool, version_2: bool) -> SquadSet:
    """Read a file.

    In training, a question whose answer is not at `answer_start` is skipped with a warning. The words there must
    contain the answer, but may contain more.
    """
    content = text_files.read_json(path, "SQuAD file", max_bytes=None)
    text_files.check_json(content, _File, path)
    contexts, questions, ids, misplaced, num_skipped, num_of_several = [], [], set(), [], 0, 0
    for paragraph in itertools.chain.from_iterable(article["paragraphs"] for article in content["data"]):
        context = paragraph["context"]
        words = split_words(context)
        for entry in paragraph["qas"]:
            question = _question(path, entry, len(contexts), for_training=for_training, version_2=version_2)
            if question.id in ids:
                raise UserError(f"{path}: two questions have the id {question.id!r}; ids must be unique, rename one")
            ids.add(question.id)
            is_usable = True
            if for_training and question.answers:
                (answer,) = question.answers
                is_inside = bool(answer.text.strip()) and 0 <= answer.start <= len(context) - len(answer.text)
                is_usable = is_inside and _is_held(answer, words)
                if not (is_inside and context.startswith(answer.text, answer.start)):
                    misplaced.append(question.id)
            num_skipped += not is_usable
            num_of_several += for_training and not question.is_impossible and len(entry["answers"]) > 1
            if is_usable:
                questions.append(question)
        contexts.append(context)
    if num_of_several:
        logging.info("%s: %d questions have several answers; the first of each is learnt", path, num_of_several)
    if misplaced:
        logging.warning(
            "%s: answer_start of %d questions does not point at the answer; %d of them are skipped, because the words "
            "there do not contain it: %s",
            path,
            len(misplaced),
            num_skipped,
            format_names(misplaced),
        )
    if not questions:
        reason = f"none of its {num_skipped} questions can be used" if num_skipped else "no questions"
        raise UserError(f"{path}: {reason}; is this the right file?")
    return SquadSet(contexts, questions)


def read_data(config: SquadConfig) -> SquadData:
    needed, version_2 = config.required_files, config.version_2_with_negative
    train, dev = (
        read_squad(getattr(config, name), for_training=name == "train_file", version_2=version_2)
        if name in needed
        else None
        for name in ("train_file", "predict_file")
    )
    return train, dev


def _question(
    path: str, entry: _AnsweredQuestion, context_index: int, *, for_training: bool, version_2: bool
) -> Question:
    answers = tuple(Answer(answer["text"], answer.get("answer_start", -1)) for answer in entry.get("answers", ()))
    if for_training:
        answers = answers[:1]  # as KLUE's baseline does
    name = entry.get("id", entry.get("guid"))
    if name is None:
        raise UserError(f"{path}: the question {entry['question']!r:.80} has no id")
    is_impossible = version_2 and entry.get("is_impossible", entry.get("answers") == [])
    if for_training and version_2 and "is_impossible" not in entry:
        raise UserError(
            f'{path}: the question {name!r} lacks "is_impossible", which training with version_2_with_negative '
            "needs; leave that flag out for a file of version 1.1"
        )
    if is_impossible:
        answers = ()
    elif for_training and not answers:
        raise UserError(
            f"{path}: the question {name!r} has no answer; training needs one, or "
            '"is_impossible": true with version_2_with_negative (SQuAD 2.0)'
        )
    return Question(str(name), entry["question"], context_index, answers, is_impossible)


def _is_held(answer: Answer, words: Words) -> bool:
    """Return True if the words at an answer's place contain it."""
    held = words.joined(*words_of_answer(words.starts, answer))
    # The reference tries only the first, and so skips the answer "5\u00a0km" in "at 5\u00a0km".
    return any(" ".join(parts) in held for parts in (answer.text.split(), split_words(answer.text).texts))


_CHARACTERS_WORTH_A_PROCESS = 2_000_000  # takes about as long to tokenize as a process takes to start
_CONTEXTS_IN_A_TASK = 64
LENGTH_WEIGHT = 0.01  # reference value: bonus per wordpiece of a window in the maximum-context score
FIRST_UNIQUE_ID = 1_000_000_000  # reference value

_SHUFFLE_SEED = 12345  # reference value

# S: positions per window, V: vocabulary size, T: number of segment types.
PREDICTION_SCHEMA = RecordSchema(Field("unique_ids", (), "int32"), *ENCODER_FIELDS)
TRAINING_SCHEMA = RecordSchema(
    *PREDICTION_SCHEMA.fields,
    Field("start_positions", (), "int32", below="S"),
    Field("end_positions", (), "int32", below="S"),
    Field("is_impossible", (), "int32", below=2),
)


class TokenizedContext(NamedTuple):
    """The P wordpieces of a context of W words."""

    ids: np.ndarray  # int32 [P], wordpiece ids
    word_of_piece: np.ndarray  # int32 [P], index of the word that contains each wordpiece
    word_starts: np.ndarray  # int32 [W], offset of each word's first character
    starts: np.ndarray  # int32 [P], offset of each wordpiece's first character; [0] unless created for "offsets"
    ends: np.ndarray  # int32 [P], offset after each wordpiece's last character; [0] unless created for "offsets"


def tokenize_contexts(
    contexts: Sequence[str], tokenizer: Tokenizer, *, answer_alignment: str, num_processes: int = 0
) -> list[TokenizedContext]:
    worth_starting = sum(map(len, contexts)) // _CHARACTERS_WORTH_A_PROCESS
    num_processes = max(1, min(num_processes or available_cores(), worth_starting))
    batches = [contexts[start : start + _CONTEXTS_IN_A_TASK] for start in range(0, len(contexts), _CONTEXTS_IN_A_TASK)]
    tokenized = []
    with (
        Workers(num_processes, tokenizer, answer_alignment, name="tokenizes contexts") as workers,
        Progress("tokenizing", len(contexts), "contexts") as progress,
    ):
        for batch in workers.map(_tokenize_batch, batches):
            tokenized += batch
            progress.update(len(tokenized))
    return tokenized


def _tokenize_batch(contexts: Sequence[str], tokenizer: Tokenizer, answer_alignment: str) -> list[TokenizedContext]:
    return [tokenize_context(context, tokenizer, answer_alignment) for context in contexts]


def tokenize_context(context: str, tokenizer: Tokenizer, answer_alignment: str) -> TokenizedContext:
    words = split_words(context)
    word_starts = _integers(words.starts)
    if answer_alignment == "offsets":
        ids, starts, ends = map(_integers, tokenizer.encode_with_offsets(context))
        word_of_piece = _integers(np.searchsorted(word_starts, starts, side="right") - 1)
        return TokenizedContext(ids, word_of_piece, word_starts, starts, ends)
    ids_of_words = [tokenizer.encode(word) for word in words.texts]
    word_of_piece = np.repeat(_integers(range(len(ids_of_words))), _integers(map(len, ids_of_words)))
    ids = _integers(itertools.chain.from_iterable(ids_of_words))
    return TokenizedContext(ids, word_of_piece, word_starts, _integers([]), _integers([]))


def _integers(numbers: Iterable[int]) -> np.ndarray:
    return np.fromiter(numbers, np.int32)


@dataclasses.dataclass(frozen=True)
class WindowOptions:
    """Window settings; the fields are flags of `run_squad.py`."""

    max_seq_length: int  # number of positions per window, including [CLS] and both [SEP]
    doc_stride: int  # wordpieces between the starts of consecutive windows
    max_query_length: int  # maximum number of wordpieces per question; longer questions are truncated
    answer_alignment: str = "reference"  # or "offsets"
    # whether to drop training windows without the answer (in version 2.0 they are kept as impossible); otherwise,
    # as in the reference, their target is position 0
    drop_out_of_window: bool = False

    @classmethod
    def from_config(cls, config: SquadConfig, tokenizer: Tokenizer | None = None) -> "WindowOptions":
        """Create the options from flags; a tokenizer whose wordpieces depend on other words needs "offsets"."""
        flags = {field.name: getattr(config, field.name) for field in dataclasses.fields(cls)}
        if tokenizer and (tokenizer.settings.morphemes or not tokenizer.is_of_words):
            flags["answer_alignment"] = "offsets"
        return cls(**flags)

    def __post_init__(self):
        max_tokens = self.max_seq_length - self.max_query_length - 3
        if self.max_query_length < 0 or max_tokens < 1:
            raise UserError(
                f"max_query_length={self.max_query_length} must be 0 or more, and max_seq_length="
                f"{self.max_seq_length} greater than it plus 3 ([CLS] and two [SEP]); no part of a context fits beside "
                "a question; raise max_seq_length or lower max_query_length"
            )
        most = self.max_seq_length - 4  # room beside a one-wordpiece question
        if not 0 < self.doc_stride < most:
            raise UserError(
                f"doc_stride={self.doc_stride} must be from 1 to {most - 1}: windows must overlap, and one of "
                f"max_seq_length={self.max_seq_length} holds at most {most} wordpieces of the context; give doc_stride="
                f"{max(1, max_tokens // 2)}, half of what fits beside a long question"
            )


class Window(NamedTuple):
    """A question and a part of its context, read together by the model."""

    question_index: int  # index of the question in the data set
    window_index: int  # index of the window within the question
    first: int  # index of the window's first context wordpiece
    num_wordpieces: int  # number of context wordpieces in the window
    offset: int  # position of the first of these: the length of everything before the context
    start_position: int = 0  # for training, the position of the answer's first wordpiece; 0 without an answer
    end_position: int = 0  # for training, the position of the answer's last wordpiece
    is_impossible: bool = False  # for training, whether the target is no answer


class TokenizedSquad:
    """Questions and contexts of a data set, each tokenized once; as a `Split`, the windows of questions to answer."""

    def __init__(
        self,
        squad: SquadSet,
        tokenizer: Tokenizer,
        options: WindowOptions,
        *,
        num_processes: int = 0,
        is_logging: bool = True,
    ):
        self.squad = squad  # the data set
        self.tokenizer = tokenizer  # the tokenizer that was used
        self.options = options  # the window settings
        # one `TokenizedContext` per context
        self.contexts = tokenize_contexts(
            squad.contexts, tokenizer, answer_alignment=options.answer_alignment, num_processes=num_processes
        )
        queries = [tokenizer.encode(question.text) for question in squad.questions]
        self._queries = [query[: options.max_query_length] for query in queries]
        num_cut = sum(len(query) > options.max_query_length for query in queries)
        if num_cut and is_logging:
            message = "%d of %d questions were truncated to max_query_length=%d wordpieces"
            logging.info(message, num_cut, len(queries), options.max_query_length)
        self._specials = tokenizer.specials
        self._room = self._specials.room(options.max_seq_length, is_pair=True)
        lengths_left = [self._room - len(query) for query in self._queries]
        if min(lengths_left, default=1) < 1:
            raise UserError(
                f"no part of a context fits beside a question of {options.max_query_length} wordpieces in "
                f"max_seq_length={options.max_seq_length}; raise it or lower max_query_length"
            )

    @functools.cached_property
    def windows(self) -> list[Window]:
        """All windows of all questions, in order; window n has the unique id 1000000000 + n."""
        return [window for index in range(len(self.squad.questions)) for window in self._windows(index)]

    def training_windows(self, order: Iterable[int], *, version_2: bool) -> Iterator[Window]:
        for index in order:
            question, windows = self.squad.questions[index], self._windows(index)
            if question.is_impossible:
                windows = (window._replace(is_impossible=True) for window in windows)
            else:
                windows = self._with_answer(windows, *self._pieces_of_answer(question), version_2)
            yield from (window for window in windows if window.num_wordpieces)

    def _with_answer(self, windows: Iterable[Window], first: int, last: int, version_2: bool) -> Iterator[Window]:
        """Set the answer positions of windows; `first` and `last` are context wordpieces."""
        for window in windows:
            if window.first <= first and last < window.first + window.num_wordpieces:
                shift = window.offset - window.first
                yield window._replace(start_position=first + shift, end_position=last + shift)
            elif not self.options.drop_out_of_window:
                yield window
            elif version_2:
                yield window._replace(is_impossible=True)

    def _cut(self, question_index: int) -> SlidingWindow:
        max_tokens = self._room - len(self._queries[question_index])
        context = self.contexts[self.squad.questions[question_index].context_index]
        return SlidingWindow.from_lengths(len(context.ids), max_tokens, self.options.doc_stride)

    def _windows(self, question_index: int) -> Iterator[Window]:
        offset = len(self._queries[question_index]) + self._specials.num_before_second
        for number, wordpieces in enumerate(self._cut(question_index).windows()):
            yield Window(question_index, number, wordpieces.start, len(wordpieces), offset)

    def _pieces_of_answer(self, question: Question) -> tuple[int, int]:
        (answer,), context = question.answers, self.contexts[question.context_index]
        text = self.squad.contexts[question.context_index]
        if self.options.answer_alignment == "offsets" and text.startswith(answer.text, answer.start):
            aligned = EncodingWithOffsets(context.ids, context.starts, context.ends)
            wordpieces = aligned.in_range(answer.start, answer.start + len(answer.text))
            if wordpieces:
                return wordpieces
        first_word, last_word = words_of_answer(context.word_starts, answer)
        first = int(np.searchsorted(context.word_of_piece, first_word, side="left"))
        last = int(np.searchsorted(context.word_of_piece, last_word, side="right")) - 1
        return _narrowed(context.ids, first, last, self.tokenizer.encode(answer.text))

    def join(self, window: Window) -> JoinedSequence:
        context = self.contexts[self.squad.questions[window.question_index].context_index]
        wordpieces = context.ids[window.first : window.first + window.num_wordpieces].tolist()
        return join_pair(self._queries[window.question_index], wordpieces, self._specials)

    def has_max_context(self, window: Window) -> np.ndarray:
        """Return True for each wordpiece whose maximum context is in this window; bool [num_wordpieces]."""
        wordpieces = np.arange(window.first, window.first + window.num_wordpieces)
        return self._cut(window.question_index).best_windows(wordpieces, LENGTH_WEIGHT) == window.window_index

    def provenance(self, schema: RecordSchema) -> dict[str, Any]:
        return _provenance(self.squad, self.tokenizer, self.options, schema)

    def records(self, file: RecordFile, windows: Iterable[Window] | None = None) -> Iterator[bytes]:
        """Serialize windows, by default all; those of a question are consecutive."""
        num_questions, num_done, question = len(self.squad.questions), 0, None
        with Progress("writing records", num_questions, "questions") as progress:
            for number, window in enumerate(self.windows if windows is None else windows):
                if window.question_index != question:
                    question = window.question_index
                    progress.update(num_done, f"{number:,} windows")
                    num_done += 1
                yield file.schema.encode(
                    {
                        **self.join(window).inputs,
                        "unique_ids": [FIRST_UNIQUE_ID + number],
                        "start_positions": [window.start_position],
                        "end_positions": [window.end_position],
                        "is_impossible": [int(window.is_impossible)],
                    }
                )
            progress.update(num_questions)


def _narrowed(ids: np.ndarray, first: int, last: int, answer: Sequence[int]) -> tuple[int, int]:
    """Narrow a range of wordpieces to those that match the answer, if found.

    Words may contain more than the answer. For "Varne" in the word "Varne's", the wordpieces "varne", "'" and "s" are
    narrowed to the first. A word without a match, such as "Varnese", is kept whole.
    """
    for start in range(first, last - len(answer) + 2 if answer else first):
        if ids[start : start + len(answer)].tolist() == answer:
            return start, start + len(answer) - 1
    return first, last


class TrainingWindows(NamedTuple):
    """The windows of training questions, in the reference's order; a `Split`."""

    squad: SquadSet
    tokenizer: Tokenizer
    options: WindowOptions
    version_2: bool
    num_processes: int = 0

    def provenance(self, schema: RecordSchema) -> dict[str, Any]:
        identity = _provenance(self.squad, self.tokenizer, self.options, schema)
        return {**identity, "version_2_with_negative": self.version_2}

    def records(self, file: RecordFile) -> Iterator[bytes]:
        tokenized = TokenizedSquad(self.squad, self.tokenizer, self.options, num_processes=self.num_processes)
        order = list(range(len(self.squad.questions)))
        Random(_SHUFFLE_SEED).shuffle(order)
        windows = tokenized.training_windows(order, version_2=self.version_2)
        first = next(windows, None)
        if first is None:
            raise UserError(f"{file.path}: there are no windows to train on; are the contexts empty?")
        return tokenized.records(file, itertools.chain([first], windows))


def _provenance(squad: SquadSet, tokenizer: Tokenizer, options: WindowOptions, schema: RecordSchema) -> dict[str, Any]:
    examples = {"contexts": fingerprint(squad.contexts), "questions": fingerprint(squad.questions)}
    return {**tokenizer.identity, **dataclasses.asdict(options), "fields": schema.names, **examples}
