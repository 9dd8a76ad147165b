"""Joins one or two texts into what the model reads, `[CLS] first [SEP] second [SEP]`, with segment ids.

All joining of texts in Python is done here: the records of all tasks, and a `FullTokenizer` that is called with texts.
`graph_joining.py` gives the same as TensorFlow operations.
"""

from collections.abc import Sequence
from typing import NamedTuple


class JoinedSequence(NamedTuple):
    """The inputs of the model, not yet padded.

    Attributes:
      input_ids: ids with [CLS] and [SEP].
      segment_ids: one byte per id: 0 for the first text with its [CLS] and [SEP], 1 for the second.
    """

    input_ids: list[int]
    segment_ids: bytes

    @property
    def input_mask(self) -> bytes:
        """One byte per id, all 1: everything but padding may be attended to."""
        return b"\x01" * len(self.input_ids)


def truncate_pair(
    first: Sequence[int], second: Sequence[int], max_num_tokens: int
) -> tuple[Sequence[int], Sequence[int]]:
    """Truncate two texts to a common limit, always the longer one, at its end; the second if both are equally long.

    Args:
      first: ids of the first text.
      second: ids of the second text.
      max_num_tokens: maximum number of ids of both together; with 5, texts of 7 and 3 ids keep 3 and 2.

    Returns:
      Both, truncated.
    """
    num_first, num_second = len(first), len(second)
    while num_first + num_second > max_num_tokens:
        if num_first > num_second:
            num_first -= 1
        else:
            num_second -= 1
    return first[:num_first], second[:num_second]


def join_texts(first: Sequence[int], second: Sequence[int], *, cls_id: int, sep_id: int) -> JoinedSequence:
    """Join two texts as `join_pair` does; if the second has no ids, there is only one: `[CLS] first [SEP]`."""
    if second:
        return join_pair(first, second, cls_id=cls_id, sep_id=sep_id)
    return JoinedSequence([cls_id, *first, sep_id], b"\x00" * (len(first) + 2))


def truncate_and_join(
    first: Sequence[int], second: Sequence[int], *, max_seq_length: int, cls_id: int, sep_id: int
) -> JoinedSequence:
    """Join one text or two after truncating them to what fits.

    Args:
      first: ids of the first text.
      second: ids of the second text; empty if there is none.
      max_seq_length: maximum length of the sequence, special tokens included; at least 3.
      cls_id: id of [CLS].
      sep_id: id of [SEP].

    Returns:
      The sequence.
    """
    num_specials = 3 if second else 2
    kept = truncate_pair(first, second, max_seq_length - num_specials)
    return join_texts(*kept, cls_id=cls_id, sep_id=sep_id)


def join_pair(first: Sequence[int], second: Sequence[int], *, cls_id: int, sep_id: int) -> JoinedSequence:
    """Join two texts.

    Args:
      first: ids of the first text.
      second: ids of the second text.
      cls_id: id of [CLS].
      sep_id: id of [SEP].

    Returns:
      The sequence, three longer than the texts together.
    """
    return JoinedSequence(
        [cls_id, *first, sep_id, *second, sep_id],
        b"\x00" * (len(first) + 2) + b"\x01" * (len(second) + 1),
    )
