"""From questions to what the model reads, `[CLS] question [SEP] part of the context [SEP]`, and to records."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

import numpy as np
from absl import logging

from official_bert.data.packing import PackedSequence, pack_pair
from official_bert.data.records import fingerprint, write_cached
from official_bert.data.schema import ENCODER_FIELDS, Field, RecordSchema
from official_bert.errors import UserError
from official_bert.progress import Progress
from official_bert.tasks.squad_contexts import ALIGNMENTS, tokenize_contexts
from official_bert.tasks.squad_data import Question, SquadSet, words_of_answer
from official_bert.tokenization import FullTokenizer, vocab
from official_bert.tokenization.alignment import AlignedPieces, pieces_of_range

FIRST_UNIQUE_ID = 1_000_000_000  # reference value

_SHUFFLE_SEED = 12345  # reference value

# S: positions of a window, V: vocabulary size, T: number of segment types.
PREDICTION_SCHEMA = RecordSchema(
    Field("unique_ids", (), "int32"),
    *ENCODER_FIELDS,
)
TRAINING_SCHEMA = RecordSchema(
    *PREDICTION_SCHEMA.fields,
    Field("start_positions", (), "int32", below="S"),
    Field("end_positions", (), "int32", below="S"),
    Field("is_impossible", (), "int32", below=2),
)


@dataclasses.dataclass(frozen=True)
class WindowOptions:
    """How contexts are cut into windows; the fields are flags of `run_squad.py`.

    Attributes:
      max_seq_length: positions of a window, [CLS] and both [SEP] included.
      doc_stride: wordpieces from the start of one window to the start of the next.
      max_query_length: wordpieces of a question; what is longer is cut off.
      answer_alignment: one of `ALIGNMENTS`.
      drop_out_of_window: whether windows without the answer are left out of training (in version 2.0 they are kept and
        marked as impossible); otherwise, as in the reference, they train position 0 as the answer.

    Raises:
      UserError: the lengths do not fit each other.
    """

    max_seq_length: int
    doc_stride: int
    max_query_length: int
    answer_alignment: str = "reference"
    drop_out_of_window: bool = False

    def __post_init__(self):
        room = self.max_seq_length - self.max_query_length - 3
        if self.max_query_length < 0 or room < 1:
            raise UserError(
                f"--max_query_length={self.max_query_length} must be 0 or more, and --max_seq_length="
                f"{self.max_seq_length} greater than it plus 3 ([CLS] and two [SEP]); nothing of a context fits beside "
                "a question, so raise --max_seq_length or lower --max_query_length"
            )
        most = self.max_seq_length - 4  # beside a question of one piece a window holds that many
        if not 0 < self.doc_stride < most:
            raise UserError(
                f"--doc_stride={self.doc_stride} must be from 1 to {most - 1}: windows must overlap, and one of "
                f"--max_seq_length={self.max_seq_length} holds at most {most} pieces of the context"
            )
        if self.answer_alignment not in ALIGNMENTS:
            raise UserError(f"--answer_alignment={self.answer_alignment} must be one of {', '.join(ALIGNMENTS)}")


class Window(NamedTuple):
    """A question beside a part of its context, as the model reads them together.

    Attributes:
      question_index: which of the set's questions.
      span_index: which of the question's windows.
      first: the context's piece with which the window begins.
      num_pieces: how many of the context's pieces it holds.
      offset: the position of the first of them, which is the length of the question plus 2.
      start_position: for training, the position of the answer's first piece; 0 without an answer.
      end_position: for training, the position of the answer's last piece.
      is_impossible: for training, whether to learn that there is no answer.
    """

    question_index: int
    span_index: int
    first: int
    num_pieces: int
    offset: int
    start_position: int = 0
    end_position: int = 0
    is_impossible: bool = False


class _Cut(NamedTuple):
    """How a context of `num_pieces` is cut: every `stride` pieces a window of `room`, the last one perhaps shorter."""

    num_pieces: int
    room: int
    stride: int

    @property
    def num_windows(self) -> int:
        """At least one, so that an empty context has an answer, too."""
        return 1 + max(0, -(-(self.num_pieces - self.room) // self.stride))

    def first(self, number: int | np.ndarray) -> int | np.ndarray:
        """The piece with which a window begins."""
        return number * self.stride

    def length(self, number: int | np.ndarray) -> int | np.ndarray:
        """How many pieces a window holds."""
        return np.minimum(self.room, self.num_pieces - self.first(number))


class TokenizedSquad:
    """A set whose contexts and questions are wordpieces, each tokenized once.

    Attributes:
      squad: the set.
      tokenizer: what tokenized it.
      options: how it is cut into windows.
      contexts: a `TokenizedContext` a context.
    """

    def __init__(
        self, squad: SquadSet, tokenizer: FullTokenizer, options: WindowOptions, *, num_processes: int | None = None
    ):
        """Tokenizes; for `num_processes` see `tokenize_contexts`."""
        self.squad, self.tokenizer, self.options = squad, tokenizer, options
        self.contexts = tokenize_contexts(
            squad.contexts, tokenizer, answer_alignment=options.answer_alignment, num_processes=num_processes
        )
        queries = [tokenizer.encode(question.text) for question in squad.questions]
        self._queries = [query[: options.max_query_length] for query in queries]
        if num_cut := sum(len(query) > options.max_query_length for query in queries):
            logging.info(
                "%d of %d questions were truncated to --max_query_length=%d wordpieces",
                num_cut,
                len(queries),
                options.max_query_length,
            )
        rooms = [options.max_seq_length - len(query) - 3 for query in self._queries]
        if num_apart := sum(room <= options.doc_stride for room in rooms):
            logging.warning(
                "%d of %d questions are so long that their windows do not overlap: lower --doc_stride=%d or raise "
                "--max_seq_length=%d",
                num_apart,
                len(queries),
                options.doc_stride,
                options.max_seq_length,
            )
        classifier, separator = tokenizer.vocabulary.require(vocab.CLASSIFIER, vocab.SEPARATOR)
        self._specials = {"classifier": classifier, "separator": separator}

    def prediction_windows(self) -> list[Window]:
        """All windows of all questions, in order; window n has the unique id 1000000000 + n."""
        return [window for index in range(len(self.squad.questions)) for window in self._windows(index)]

    def training_windows(self, order: Iterable[int], *, version_2: bool) -> Iterator[Window]:
        """The windows to train on.

        Args:
          order: the numbers of the questions.
          version_2: whether to keep windows without the answer, as impossible ones, in spite of `drop_out_of_window`.
        """
        for index in order:
            question, windows = self.squad.questions[index], self._windows(index)
            if question.is_impossible:
                windows = (window._replace(is_impossible=True) for window in windows)
            else:
                windows = self._with_answer(windows, *self._pieces_of_answer(question), version_2)
            yield from (window for window in windows if window.num_pieces)

    def _with_answer(self, windows: Iterable[Window], first: int, last: int, version_2: bool) -> Iterator[Window]:
        """Gives windows the positions of the answer, the context's pieces from `first` to `last`."""
        for window in windows:
            if window.first <= first and last < window.first + window.num_pieces:
                shift = window.offset - window.first
                yield window._replace(start_position=first + shift, end_position=last + shift)
            elif not self.options.drop_out_of_window:
                yield window
            elif version_2:
                yield window._replace(is_impossible=True)

    def _cut(self, question_index: int) -> _Cut:
        room = self.options.max_seq_length - len(self._queries[question_index]) - 3
        context = self.contexts[self.squad.questions[question_index].context_index]
        return _Cut(len(context.ids), room, stride=min(room, self.options.doc_stride))

    def _windows(self, question_index: int) -> Iterator[Window]:
        cut, offset = self._cut(question_index), len(self._queries[question_index]) + 2
        for number in range(cut.num_windows):
            yield Window(question_index, number, cut.first(number), int(cut.length(number)), offset)

    def _pieces_of_answer(self, question: Question) -> tuple[int, int]:
        """The first and the last piece of a question's only answer."""
        (answer,), context = question.answers, self.contexts[question.context_index]
        text = self.squad.contexts[question.context_index]
        if self.options.answer_alignment == "offsets" and text.startswith(answer.text, answer.start):
            aligned = AlignedPieces(context.ids, context.starts, context.ends)
            pieces = pieces_of_range(aligned, answer.start, answer.start + len(answer.text))
            if pieces:
                return pieces
        first_word, last_word = words_of_answer(context.word_starts, answer)
        first = int(np.searchsorted(context.word_of_piece, first_word, side="left"))
        last = int(np.searchsorted(context.word_of_piece, last_word, side="right")) - 1
        return _narrowed(context.ids, first, last, self.tokenizer.encode(answer.text))

    def pack(self, window: Window) -> PackedSequence:
        """What the model reads of a window."""
        context = self.contexts[self.squad.questions[window.question_index].context_index]
        pieces = context.ids[window.first : window.first + window.num_pieces].tolist()
        return pack_pair(self._queries[window.question_index], pieces, **self._specials)

    def has_max_context(self, window: Window) -> np.ndarray:
        """Of each piece in a window, whether no other window shows more of what stands around it; bool [num_pieces].

        Pieces stand in several windows. With windows of 6 pieces and a stride of 3, the fourth piece is the last but
        two of the first window and the first of the second one; so it is the first window's.

        What is compared is the number of pieces at the poorer side plus a hundredth of the window's length; among
        equals the first window wins.
        """
        cut = self._cut(window.question_index)
        reach = (cut.room - 1) // cut.stride  # windows further away do not overlap
        nearest = np.arange(max(0, window.span_index - reach), min(cut.num_windows, window.span_index + reach + 1))
        first, length = cut.first(nearest)[:, None], cut.length(nearest)[:, None]
        pieces = window.first + np.arange(window.num_pieces)
        poorer_side = np.minimum(pieces - first, first + length - 1 - pieces)  # [windows, pieces]
        scores = np.where(poorer_side >= 0, poorer_side + 0.01 * length, -1.0)
        return nearest[scores.argmax(axis=0)] == window.span_index


def _narrowed(ids: np.ndarray, first: int, last: int, answer: Sequence[int]) -> tuple[int, int]:
    """Narrows a range of pieces to those of the answer, if they stand in it.

    Words are a rough measure: asked for the year, "(1895-1943)." is a word, and the answer is the second of its pieces
    "( 1895 - 1943 ) .". But in "Japanese" there is no piece "Japan", so that word stays whole.
    """
    for start in range(first, last - len(answer) + 2 if answer else first):
        if ids[start : start + len(answer)].tolist() == answer:
            return start, start + len(answer) - 1
    return first, last


def write_training_records(
    path: str,
    squad: SquadSet,
    tokenizer: FullTokenizer,
    options: WindowOptions,
    *,
    version_2: bool,
    num_processes: int | None = None,
) -> int:
    """Writes the records to train on, in the reference's order, unless the file that is there holds the same.

    Returns:
      The number of records.

    Raises:
      UserError: no window is left to train on.
    """

    def records() -> Iterator[bytes]:
        tokenized = TokenizedSquad(squad, tokenizer, options, num_processes=num_processes)
        order = list(range(len(squad.questions)))
        Random(_SHUFFLE_SEED).shuffle(order)
        return _records(tokenized, tokenized.training_windows(order, version_2=version_2), TRAINING_SCHEMA)

    made_from = training_fingerprint(squad, tokenizer, options, version_2=version_2)
    num_records = write_cached(path, made_from, records)
    if not num_records:
        raise UserError(f"{path}: no window of any question is left to train on; are the contexts empty?")
    return num_records


def training_fingerprint(squad: SquadSet, tokenizer: FullTokenizer, options: WindowOptions, *, version_2: bool) -> str:
    """Hashes all that decides how the records to train on come out; the arguments are those that write them."""
    return _fingerprint(squad, tokenizer, options, TRAINING_SCHEMA, version_2)


def write_prediction_records(path: str, tokenized: TokenizedSquad, windows: Sequence[Window]) -> int:
    """Writes the records to predict on, one a window, unless the file that is there holds the same.

    Returns:
      The number of records.
    """
    made_from = _fingerprint(tokenized.squad, tokenized.tokenizer, tokenized.options, PREDICTION_SCHEMA)
    return write_cached(path, made_from, lambda: _records(tokenized, windows, PREDICTION_SCHEMA))


def _records(tokenized: TokenizedSquad, windows: Iterable[Window], schema: RecordSchema) -> Iterator[bytes]:
    """Serializes windows; those of a question follow each other."""
    schema = schema.sized(S=tokenized.options.max_seq_length)
    num_questions = len(tokenized.squad.questions)
    num_done, question = 0, None
    with Progress("making records", num_questions, "questions") as progress:
        for number, window in enumerate(windows):
            if window.question_index != question:
                question = window.question_index
                progress.update(num_done, f"{number:,} windows")
                num_done += 1
            packed = tokenized.pack(window)
            yield schema.encode(
                {
                    "unique_ids": [FIRST_UNIQUE_ID + number],
                    "input_ids": packed.input_ids,
                    "input_mask": packed.input_mask,
                    "segment_ids": packed.segment_ids,
                    "start_positions": [window.start_position],
                    "end_positions": [window.end_position],
                    "is_impossible": [int(window.is_impossible)],
                }
            )
        progress.update(num_questions)


def _fingerprint(
    squad: SquadSet, tokenizer: FullTokenizer, options: WindowOptions, schema: RecordSchema, *settings: bool
) -> str:
    vocabulary, casing = list(tokenizer.vocabulary.pieces.items()), tokenizer.basic_tokenizer.do_lower_case
    return fingerprint(vocabulary, casing, dataclasses.astuple(options), schema.names, squad, settings)
