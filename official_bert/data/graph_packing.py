"""`packing` as TensorFlow operations: batches of ids, from `GraphTokenizer`, become what the model reads."""

import tensorflow as tf

# B: examples, S: positions of the longest one.
_PADDING_ID = 0


def pack(
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None = None,
    *,
    max_seq_length: int,
    classifier: int,
    separator: int,
) -> dict[str, tf.Tensor]:
    """Shortens, joins and pads texts or pairs of texts, as `ExamplePacker` and the records' reader do.

    Args:
      first: int32 [B, (pieces)], ids of the first texts.
      second: ids of the second texts, an empty one where there is none; None if there are none at all.
      max_seq_length: most positions of an example, at least 3.
      classifier: id of [CLS].
      separator: id of [SEP].

    Returns:
      input_ids, input_mask and segment_ids, int32 [B, S]; S is that of the longest example.
    """
    num_first = first.row_lengths()
    num_second = tf.zeros_like(num_first) if second is None else second.row_lengths()
    num_first, num_second = _shortened_lengths(num_first, num_second, max_seq_length)

    end_first = num_first + 2  # [CLS] and [SEP] are of the first segment
    end = end_first + num_second + tf.cast(num_second > 0, tf.int64)
    longest = tf.reduce_max(tf.concat([end, [0]], axis=0))  # no examples have no positions
    positions = tf.range(longest)  # [S]
    end_first, end = end_first[:, tf.newaxis], end[:, tf.newaxis]

    # Everything is taken from one row of ids: the special ones, all first texts, all second texts.
    ids = [[_PADDING_ID, classifier, separator], first.flat_values]
    places = tf.where(positions == 0, tf.constant(1, tf.int64), first.row_starts()[:, tf.newaxis] + positions + 2)
    if second is not None:
        ids.append(second.flat_values)
        starts = tf.size(first.flat_values, tf.int64) + second.row_starts() + 3
        places = tf.where(positions < end_first, places, starts[:, tf.newaxis] + positions - end_first)
    places = tf.where((positions == end_first - 1) | (positions == end - 1), tf.constant(2, tf.int64), places)
    places = tf.where(positions < end, places, 0)  # [B, S]
    return {
        "input_ids": tf.gather(tf.concat(ids, axis=0), places),
        "input_mask": tf.cast(positions < end, tf.int32),
        "segment_ids": tf.cast((positions >= end_first) & (positions < end), tf.int32),
    }


def _shortened_lengths(num_first: tf.Tensor, num_second: tf.Tensor, max_seq_length: int) -> tuple[tf.Tensor, tf.Tensor]:
    """What `packing.truncate_pair` leaves of texts, without a loop: each may have half, and what the other leaves."""
    room = max_seq_length - tf.where(num_second > 0, tf.constant(3, tf.int64), 2)
    return (
        tf.minimum(num_first, tf.maximum((room + 1) // 2, room - num_second)),
        tf.minimum(num_second, tf.maximum(room // 2, room - num_first)),
    )
