"""Lays out one or two texts as the model reads them: `[CLS] first [SEP] second [SEP]`, with segment ids."""

from collections.abc import Sequence
from typing import NamedTuple


class PackedSequence(NamedTuple):
    """What the model reads, not yet padded.

    Attributes:
      input_ids: ids with [CLS] and [SEP].
      segment_ids: one byte an id: 0 for the first text with its [CLS] and [SEP], 1 for the second.
    """

    input_ids: list[int]
    segment_ids: bytes

    @property
    def input_mask(self) -> bytes:
        """One byte an id, all 1: everything but padding may be attended to."""
        return b"\x01" * len(self.input_ids)


def truncate_pair(
    first: Sequence[int], second: Sequence[int], max_num_pieces: int
) -> tuple[Sequence[int], Sequence[int]]:
    """Shortens two texts together, always the longer one, at its end; of two as long as each other the second.

    Args:
      first: ids of the first text.
      second: ids of the second text.
      max_num_pieces: most ids of both together; with 5, texts of 7 and 3 ids keep 3 and 2.

    Returns:
      Both, shortened.
    """
    num_first, num_second = len(first), len(second)
    while num_first + num_second > max_num_pieces:
        if num_first > num_second:
            num_first -= 1
        else:
            num_second -= 1
    return first[:num_first], second[:num_second]


def pack_single(text: Sequence[int], *, classifier: int, separator: int) -> PackedSequence:
    """Packs one text, as `[CLS] text [SEP]`; the arguments are those of `pack_pair`."""
    return PackedSequence([classifier, *text, separator], b"\x00" * (len(text) + 2))


def pack_pair(first: Sequence[int], second: Sequence[int], *, classifier: int, separator: int) -> PackedSequence:
    """Packs two texts.

    Args:
      first: ids of the first text.
      second: ids of the second text.
      classifier: id of [CLS].
      separator: id of [SEP].

    Returns:
      The sequence, three longer than the texts together.
    """
    return PackedSequence(
        [classifier, *first, separator, *second, separator],
        b"\x00" * (len(first) + 2) + b"\x01" * (len(second) + 1),
    )
