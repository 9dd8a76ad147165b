"""`Reader`, the base of what a task does to texts before a model and to its outputs after, in Python and NumPy.

The reader of a task is in its module `reader`. It does what the operations of its `Servable` do in a SavedModel, and
what the task's command does to the texts of --do_predict.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from official_bert.serving.batching import work
from official_bert.serving.signatures import MOST_CELLS, Arrays, ArraySpec, RequestError
from official_bert.tokenization import Tokenizer

_CHARACTERS_PER_PIECE = 16  # few texts have more on average
_MOST_WORK = 1 << 11  # positions computed together
MOST_LOGITS = 1 << 24  # computed together


class Reading(NamedTuple):
    """An example as the sequences that the model reads, and what its answer needs of it."""

    sequences: list[Mapping[str, Any]]  # input_ids, input_mask and segment_ids of each, without padding at the end
    parts: Any = None


class Reader:
    def __init__(self, said: Mapping[str, Any], tokenizer: Tokenizer):
        """Create a reader from the description of an export."""
        self.said, self.tokenizer, self.specials = said, tokenizer, tokenizer.specials
        self.max_seq_length = said["max_seq_length"]
        self.num_read: int | None = None  # wordpieces of a text after which nothing is read
        self.num_logits = 1  # per position, if it has many
        # Signatures of texts beside `text`, by name: their outputs, and how they follow from those of `text`.
        self.further_signatures: Mapping[str, tuple[Mapping[str, ArraySpec], Callable[[Arrays], Arrays]]] = {}

    def beginning(self, text: str) -> str:
        """Cut off the end of a long text, at a space, if enough wordpieces are left: to tokenize all takes longer."""
        if self.num_read is None or len(text) <= self.num_read * _CHARACTERS_PER_PIECE:
            return text
        beginning = text[: max(text.rfind(" ", 0, self.num_read * _CHARACTERS_PER_PIECE), 0)]
        return beginning if len(self.tokenizer.encode(beginning)) > self.num_read else text

    def encode(self, *texts: str) -> Reading:
        """Convert the texts of an example, one for each of the description's `text_names`."""
        raise NotImplementedError

    def most_rows(self, length: int) -> int:
        """Return the number of sequences of a length that are computed together."""
        return max(min(_MOST_WORK // work(1, length), MOST_LOGITS // (length * self.num_logits)), 1)

    def named(self, outputs: Arrays) -> Arrays:
        """Add the names of labels to outputs of sequences, [B, ...]: the outputs of the signature for ids."""
        return outputs

    def stacked(self, rows: Sequence[Arrays]) -> Arrays:
        """Convert the outputs of each sequence to those of the signature for ids, [B, ...]."""
        tables = {name: padded_table([row[name] for row in rows], rows[0][name].dtype.type()) for name in rows[0]}
        return self.named(tables)

    def decode(self, readings: Sequence[Reading], outputs: Sequence[Sequence[Arrays]]) -> Arrays:
        """Convert the outputs of each example's sequences to the outputs of the signature `text`, [B, ...]."""
        del readings
        return self.stacked([row for (row,) in outputs])


def padded_table(rows: Iterable[Any], empty: Any, width: int = 0) -> np.ndarray:
    """Stack arrays or lists of different shapes: [B, ...], filled up with a value whose type the table has."""
    rows = [np.array(row, object if isinstance(empty, bytes) else np.asarray(empty).dtype) for row in rows]
    sizes = [max(sizes) for sizes in zip(*(row.shape for row in rows), strict=True)]
    if width:
        sizes[0] = width
    check_table_size(len(rows), math.prod(sizes))
    table = np.full([len(rows), *sizes], empty, rows[0].dtype)
    for number, row in enumerate(rows):
        table[(number, *map(slice, row.shape))] = row
    return table


def check_table_size(num_rows: int, width: int) -> None:
    """Raise RequestError if padding rows to a width would take much memory; one row always fits."""
    if num_rows > 1 and num_rows * width > MOST_CELLS:
        raise RequestError(
            f"each table of the response is limited to {MOST_CELLS} cells (examples times the length of the longest); "
            f"send fewer examples per request; the number of cells would be {num_rows * width}"
        )


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return probabilities over the last axis."""
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)
