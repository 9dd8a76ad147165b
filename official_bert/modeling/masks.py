"""Which positions a position may look at, as a number added to the attention scores."""

from keras import ops

MASKED_SCORE = -10000.0  # reference value; far below any score, and finite


def attention_bias(input_mask, *, is_left_to_right: bool = False):
    """Turns a padding mask into a term of the attention scores.

    Args:
      input_mask: int32 [B, T], 1 for a real position and 0 for padding.
      is_left_to_right: whether a position may look only at itself and those before it.

    Returns:
      float32 [B, 1, 1, T], or [B, 1, T, T] left to right: 0 where a position may be looked at, -10000 at padding and at
      later positions; broadcasts over heads and over the positions that look.
    """
    bias = (1.0 - ops.cast(input_mask, "float32")) * MASKED_SCORE  # [B, T]
    bias = bias[:, None, None, :]  # [B, 1, 1, T]
    if not is_left_to_right:
        return bias
    positions = ops.arange(ops.shape(input_mask)[1])
    is_later = ops.cast(positions[None, :] > positions[:, None], "float32")  # [T, T]
    return ops.minimum(bias, is_later * MASKED_SCORE)  # [B, 1, T, T]


def last_real_position(input_mask):
    """The last position that is no padding: int32 [B, T] to int32 [B]; 0 where there is none."""
    positions = ops.arange(ops.shape(input_mask)[1], dtype="int32")
    return ops.max(ops.cast(input_mask, "int32") * positions, axis=1)
