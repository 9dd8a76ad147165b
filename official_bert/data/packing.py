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
