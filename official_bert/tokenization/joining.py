"""Joins one or two texts into a model input, `[CLS] first [SEP] second [SEP]`, with segment ids.

All joining of texts in Python is done here: for the records of all tasks, and for a `FullTokenizer` called with texts.
`graph_joining.py` does the same with TensorFlow operations.
"""

from collections.abc import Sequence
from typing import NamedTuple

from official_bert.support.errors import UserError


class Specials(NamedTuple):
    """The special tokens of a tokenizer's sequences, and the layout of pairs: `[CLS] first [SEP] second [SEP]`.

    Attributes:
      cls_id: id of [CLS].
      sep_id: id of [SEP].
      num_between: number of [SEP] between two texts.
      second_segment: segment id of the second text with its [SEP].
      pad_id: id of padding.
      num_segments: number of segments that the model knows.
    """

    cls_id: int
    sep_id: int
    num_between: int = 1
    second_segment: int = 1
    pad_id: int = 0
    num_segments: int = 2

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
    """The inputs of the model, not yet padded.

    Attributes:
      input_ids: ids with [CLS] and [SEP].
      segment_ids: one byte per id: 0 for the first text with its [CLS] and [SEP], 1 for the second.
    """

    input_ids: list[int]
    segment_ids: bytes

    @property
    def input_mask(self) -> bytes:
        """One byte per id, all 1: only padding is masked."""
        return b"\x01" * len(self.input_ids)


def truncate_pair(
    first: Sequence[int], second: Sequence[int], max_num_tokens: int
) -> tuple[Sequence[int], Sequence[int]]:
    """Truncate two texts to a common limit, always at the end of the longer one; if tied, of the second.

    Args:
      first: ids of the first text.
      second: ids of the second text.
      max_num_tokens: maximum number of ids of both together; with 5, texts of 7 and 3 ids keep 3 and 2.

    Returns:
      Both texts, truncated.
    """
    num_first, num_second = len(first), len(second)
    while num_first + num_second > max_num_tokens:
        if num_first > num_second:
            num_first -= 1
        else:
            num_second -= 1
    return first[:num_first], second[:num_second]


def join_texts(first: Sequence[int], second: Sequence[int], specials: Specials) -> JoinedSequence:
    """Join two texts as `join_pair` does; an empty second text gives `[CLS] first [SEP]`."""
    if second:
        return join_pair(first, second, specials)
    return JoinedSequence([specials.cls_id, *first, specials.sep_id], b"\x00" * (len(first) + 2))


def truncate_and_join(
    first: Sequence[int], second: Sequence[int], specials: Specials, *, max_seq_length: int
) -> JoinedSequence:
    """Truncate one or two texts to the maximum length and join them.

    Args:
      first: ids of the first text.
      second: ids of the second text; empty if there is none.
      specials: the special tokens.
      max_seq_length: maximum length of the sequence, special tokens included; at least 3.

    Returns:
      The sequence.
    """
    kept = truncate_pair(first, second, specials.room(max_seq_length, is_pair=bool(second)))
    return join_texts(*kept, specials)


def join_pair(first: Sequence[int], second: Sequence[int], specials: Specials) -> JoinedSequence:
    """Join two texts.

    Args:
      first: ids of the first text.
      second: ids of the second text.
      specials: the special tokens.

    Returns:
      The sequence; special tokens add to the length of the texts.
    """
    specials.check_pairs()
    between = [specials.sep_id] * specials.num_between
    return JoinedSequence(
        [specials.cls_id, *first, *between, *second, specials.sep_id],
        bytes(len(first) + specials.num_before_second) + bytes([specials.second_segment]) * (len(second) + 1),
    )
