"""`joining.py` as TensorFlow operations: batches of ids from `GraphTokenizer` become model inputs.

All operations are pinned to the CPU: there are many small ones, whose launches would be slow on a GPU.
"""

from typing import NamedTuple

import tensorflow as tf

from official_bert.tokenization.joining import Specials

# B: examples, W: windows of an example, R: rows, S: positions of a row.
_SMALLEST_LENGTH = 2  # an empty text: [CLS] and [SEP]


class Parts(NamedTuple):
    """A slice of a flat row of ids for each of R rows.

    Attributes:
      ids: int32, the flat row.
      starts: int64 [R], offset of each slice.
      lengths: int64 [R].
    """

    ids: tf.Tensor
    starts: tf.Tensor
    lengths: tf.Tensor


def join_parts(
    first: Parts,
    second: Parts | None = None,
    *,
    specials: Specials,
    has_second: tf.Tensor | bool = True,
    is_real: tf.Tensor | bool = True,
    length: int | None = None,
) -> dict[str, tf.Tensor]:
    """Lay out `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`, and pad.

    Args:
      first: the first parts.
      second: the second parts; None if no row has one.
      specials: the special tokens.
      has_second: bool [R], whether a row has a second part, possibly empty.
      is_real: bool [R], whether a row exists; otherwise it is all padding.
      length: positions per row; None for the length of the longest row.

    Returns:
      input_ids, input_mask and segment_ids, int32 [R, S].
    """
    with tf.device("CPU:0"):
        if second is None:
            nothing = tf.zeros_like(first.lengths)
            second, has_second = Parts(first.ids[:0], nothing, nothing), False
        # Everything before the second part belongs to the first segment.
        end_first = first.lengths + tf.where(has_second, tf.constant(specials.num_before_second, tf.int64), 2)
        end = end_first + tf.where(has_second, second.lengths + 1, 0)
        end = tf.where(is_real, end, 0)
        longest = tf.reduce_max(tf.concat([end, [_SMALLEST_LENGTH]], axis=0)) if length is None else length
        positions = tf.range(longest, dtype=tf.int64)  # [S]
        end_first, end = end_first[:, tf.newaxis], end[:, tf.newaxis]

        # All positions gather from one flat row: the special tokens, then the first parts, then the second parts.
        row_specials = [specials.pad_id, specials.cls_id, specials.sep_id]
        ids = tf.concat([row_specials, first.ids, second.ids], axis=0)
        first_places = (first.starts + 3)[:, tf.newaxis] + positions - 1
        second_starts = second.starts + 3 + tf.size(first.ids, tf.int64)
        second_places = second_starts[:, tf.newaxis] + positions - end_first
        places = tf.where(positions < end_first, first_places, second_places)
        places = tf.where(positions == 0, tf.constant(1, tf.int64), places)
        is_sep = (positions > first.lengths[:, tf.newaxis]) & (positions < end_first) | (positions == end - 1)
        places = tf.where(is_sep, tf.constant(2, tf.int64), places)
        places = tf.where(positions < end, places, 0)  # [R, S]
        return {
            "input_ids": tf.gather(ids, places),
            "input_mask": tf.cast(positions < end, tf.int32),
            "segment_ids": tf.cast((positions >= end_first) & (positions < end), tf.int32) * specials.second_segment,
        }


def truncate_and_join(
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None = None,
    *,
    specials: Specials,
    max_seq_length: int,
) -> dict[str, tf.Tensor]:
    """Truncate, join and pad texts or pairs of texts, as `TextJoiner` and the record reader do.

    Args:
      first: int32 [B, (wordpieces)], ids of the first texts.
      second: ids of the second texts, empty for examples without one; None if no example has one.
      specials: the special tokens.
      max_seq_length: maximum number of positions per example, at least 3.

    Returns:
      input_ids, input_mask and segment_ids, int32 [B, S]; S is the length of the longest example, or 2 if there are
      none.
    """
    with tf.device("CPU:0"):
        second = second_or_empty(first, second)
        num_first, num_second, max_tokens = sizes_of(first, second, specials, max_seq_length)
        # Same result as `joining.truncate_pair`, without a loop: each text gets half, plus what the other leaves
        # unused.
        kept_first = tf.minimum(num_first, tf.maximum((max_tokens + 1) // 2, max_tokens - num_second))
        kept_second = tf.minimum(num_second, tf.maximum(max_tokens // 2, max_tokens - num_first))
    return join_parts(
        Parts(first.flat_values, first.row_starts(), kept_first),
        Parts(second.flat_values, second.row_starts(), kept_second),
        specials=specials,
        has_second=kept_second > 0,
    )


def second_or_empty(first: tf.RaggedTensor, second: tf.RaggedTensor | None) -> tf.RaggedTensor:
    """Return the second texts, or empty ones if there are none."""
    if second is not None:
        return second
    nothing = tf.zeros_like(first.row_splits)
    return tf.RaggedTensor.from_row_splits(first.flat_values[:0], nothing, validate=False)


def sizes_of(
    first: tf.RaggedTensor, second: tf.RaggedTensor, specials: Specials, max_seq_length: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the lengths of the texts, and the number of wordpieces that fit beside the special tokens; int64 [B]."""
    num_first, num_second = first.row_lengths(), second.row_lengths()
    of_pairs, of_texts = (tf.constant(specials.room(max_seq_length, is_pair=pair), tf.int64) for pair in (True, False))
    return num_first, num_second, tf.where(num_second > 0, of_pairs, of_texts)
