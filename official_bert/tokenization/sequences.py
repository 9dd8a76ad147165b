"""Joins one or two texts into a model input, `[CLS] first [SEP] second [SEP]`, with segment ids.

All joining of texts in Python is done here: for the records of all tasks, and for a `FullTokenizer` called with texts.
`graph_operations.py` does the same with TensorFlow operations.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from official_bert.support.errors import UserError

MOST_BYTES = 1 << 20  # maximum number of bytes read from a text of an exported model
BATCH_SIZE = 32  # texts of `USUAL_LENGTH` that are computed together, by default
USUAL_LENGTH = 64  # wordpieces
POOLED_BATCHES = 64  # batches whose texts are read before those of similar length are computed together
POOLED_BYTES = 1 << 27  # maximum size of their vectors

Item = TypeVar("Item")


class Specials(NamedTuple):
    """The special tokens of a tokenizer's sequences, and the layout of pairs: `[CLS] first [SEP] second [SEP]`."""

    cls_id: int  # id of [CLS]
    sep_id: int  # id of [SEP]
    num_between: int = 1  # number of [SEP] between two texts
    second_segment: int = 1  # segment id of the second text with its [SEP]
    pad_id: int = 0  # id of padding
    num_segments: int = 2  # number of segments that the model knows

    def check_pairs(self) -> None:
        """Raise UserError if the model cannot read pairs of texts."""
        if self.second_segment >= self.num_segments:
            raise UserError(
                f"the model has type_vocab_size={self.num_segments}, so it cannot read pairs of texts (a "
                "question and its context, for example); give single texts or another model"
            )

    @property
    def num_before_second(self) -> int:
        """Number of special tokens before the second text of a pair."""
        return 1 + self.num_between

    def room(self, max_seq_length: int, *, is_pair: bool) -> int:
        """Return the number of text ids that fit beside the special tokens; at least 0."""
        return max(0, max_seq_length - (self.num_before_second + 1 if is_pair else 2))


class JoinedSequence(NamedTuple):
    """The inputs of the model, not yet padded."""

    input_ids: list[int]  # ids with [CLS] and [SEP]
    segment_ids: bytes  # one byte per id: 0 for the first text with its [CLS] and [SEP], 1 for the second

    @property
    def input_mask(self) -> bytes:
        """One byte per id, all 1: only padding is masked."""
        return b"\x01" * len(self.input_ids)

    @property
    def inputs(self) -> dict[str, list[int] | bytes]:
        return {"input_ids": self.input_ids, "input_mask": self.input_mask, "segment_ids": self.segment_ids}


def truncate_pair(
    first: Sequence[int], second: Sequence[int], max_num_tokens: int
) -> tuple[Sequence[int], Sequence[int]]:
    """Truncate two texts to a common limit, always at the end of the longer one; if tied, of the second."""
    num_first, num_second = len(first), len(second)
    while num_first + num_second > max_num_tokens:
        if num_first > num_second:
            num_first -= 1
        else:
            num_second -= 1
    return first[:num_first], second[:num_second]


def compute_by_length(
    lengths: Sequence[int],
    most_rows: Callable[[int], int],
    compute: Callable[[list[list[int]]], Iterable[Sequence[Any]]],
) -> list[Any]:
    """Compute rows of similar length together, shortest first, so that they have little padding.

    Args:
      most_rows: returns the size of a batch, at least 1, from the length of its longest row.
      compute: returns the results of each batch, from the numbers of its rows.

    Returns:
      The results of all rows, in order.
    """
    batches: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if not batches or len(batches[-1]) >= most_rows(lengths[row]):
            batches.append([])
        batches[-1].append(row)
    results = {}
    for batch, found in zip(batches, compute(batches), strict=True):
        results.update(zip(batch, found, strict=True))
    return [results[row] for row in range(len(lengths))]


def pools(items: Iterable[Item], sizes: Callable[[Item], Sequence[int]], limits: Sequence[int]) -> Iterator[list[Item]]:
    """Collect items until one of their sizes adds up to its limit."""
    pool, totals = [], [0] * len(limits)
    for item in items:
        pool.append(item)
        totals = [total + size for total, size in zip(totals, sizes(item), strict=True)]
        if any(total >= limit for total, limit in zip(totals, limits, strict=True)):
            yield pool
            pool, totals = [], [0] * len(limits)
    if pool:
        yield pool


def join_texts(first: Sequence[int], second: Sequence[int], specials: Specials) -> JoinedSequence:
    """Join two texts as `join_pair` does; an empty second text gives `[CLS] first [SEP]`."""
    if second:
        return join_pair(first, second, specials)
    return JoinedSequence([specials.cls_id, *first, specials.sep_id], b"\x00" * (len(first) + 2))


def truncate_and_join(
    first: Sequence[int], second: Sequence[int], specials: Specials, *, max_seq_length: int
) -> JoinedSequence:
    kept = truncate_pair(first, second, specials.room(max_seq_length, is_pair=bool(second)))
    return join_texts(*kept, specials)


def join_pair(first: Sequence[int], second: Sequence[int], specials: Specials) -> JoinedSequence:
    specials.check_pairs()
    between = [specials.sep_id] * specials.num_between
    return JoinedSequence(
        [specials.cls_id, *first, *between, *second, specials.sep_id],
        bytes(len(first) + specials.num_before_second) + bytes([specials.second_segment]) * (len(second) + 1),
    )


class SlidingWindow(NamedTuple):
    """Windows of a text of `num_wordpieces`, of at most `max_tokens` each, one every `stride` wordpieces."""

    num_wordpieces: int
    max_tokens: int
    stride: int

    @classmethod
    def from_lengths(cls, num_wordpieces: int, max_tokens: int, stride: int | None = None) -> "SlidingWindow":
        """Cut a text into windows; a stride of None is half a window, and the stride is at most a window."""
        return cls(num_wordpieces, max_tokens, min(stride or (max_tokens + 1) // 2, max_tokens))

    @property
    def num_windows(self) -> int:
        """Number of windows; at least one, even for an empty text."""
        return 1 + max(0, -(-(self.num_wordpieces - self.max_tokens) // self.stride))  # rounds up

    def first(self, number: int | np.ndarray) -> int | np.ndarray:
        return number * self.stride

    def length(self, number: int | np.ndarray) -> int | np.ndarray:
        return np.minimum(self.max_tokens, self.num_wordpieces - self.first(number))

    def windows(self) -> list[range]:
        starts = range(0, self.num_windows * self.stride, self.stride)
        return [range(start, min(start + self.max_tokens, self.num_wordpieces)) for start in starts]

    def best_windows(self, wordpieces: Sequence[int] | np.ndarray, length_weight: float = 0.0) -> np.ndarray:
        """Find the window of each wordpiece, int [P], with the most context on its shorter side; the first if tied."""
        wordpieces = np.asarray(wordpieces, np.int64)[:, None]
        last = np.minimum(wordpieces // self.stride, self.num_windows - 1)
        # All windows that may hold each wordpiece, [P, N].
        numbers = last - np.arange((self.max_tokens - 1) // self.stride, -1, -1)
        inside, length = wordpieces - self.first(numbers), self.length(numbers)
        poorer_side = np.minimum(inside, length - 1 - inside)
        scores = np.where((poorer_side >= 0) & (numbers >= 0), poorer_side + length_weight * length, -1.0)
        return np.take_along_axis(numbers, scores.argmax(axis=1)[:, None], axis=1)[:, 0]


def split_windows(
    num_first: int, num_second: int, max_num_tokens: int, stride: int | None = None
) -> list[tuple[range, range]]:
    """Cut the longer of two texts into windows, each beside the whole shorter one, or the half that fits.

    The starts of windows are `stride` ids apart, by default half of the ids that a window has beside the other text. A
    text of 7 ids alone, in windows of 4, gives wordpieces from 0 to 4, 2 to 6 and 4 to 7.
    """
    whole = range(min(num_first, num_second, max_num_tokens // 2))  # this may leave less room than the stride
    wordpieces = SlidingWindow.from_lengths(max(num_first, num_second), max_num_tokens - len(whole), stride).windows()
    return [(piece, whole) if num_first > num_second else (whole, piece) for piece in wordpieces]
