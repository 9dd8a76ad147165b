"""From questions to what the model reads, `[CLS] question [SEP] part of the context [SEP]`, and to records."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from official_bert.data.packing import PackedSequence
from official_bert.data.schema import RecordSchema
from official_bert.tasks.squad_data import SquadSet
from official_bert.tokenization import FullTokenizer


@dataclasses.dataclass(frozen=True)
class WindowOptions:
    """How contexts are cut into windows; fields are flags of `run_squad.py`.

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


def squad_schema(max_seq_length: int, vocab_size: int, *, for_training: bool) -> RecordSchema:
    """The records of windows: the reference's features, sized."""
    raise NotImplementedError


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

    def prediction_windows(self) -> list[Window]:
        """All windows of all questions, in order; window n has the unique id 1000000000 + n."""
        raise NotImplementedError

    def pack(self, window: Window) -> PackedSequence:
        """What the model reads of a window."""
        raise NotImplementedError

    def has_max_context(self, window: Window) -> np.ndarray:
        """Of each piece in a window, whether no other window shows more of what stands around it; bool [num_pieces]."""
        raise NotImplementedError


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
    raise NotImplementedError


def write_prediction_records(path: str, tokenized: TokenizedSquad, windows: Sequence[Window]) -> int:
    """Writes the records to predict on, one a window, unless the file that is there holds the same.

    Returns:
      The number of records.
    """
    raise NotImplementedError
