"""Which positions a position may look at, as a number added to the attention scores."""

from keras import ops

MASKED_SCORE = -10000.0  # reference value; far below any score, and finite


def attention_bias(input_mask):
    """Turns a padding mask into a term of the attention scores.

    Args:
      input_mask: int32 [B, T], 1 for a real position and 0 for padding.

    Returns:
      float32 [B, 1, 1, T]: 0 where a position may be looked at, -10000 at padding; broadcasts over heads and over the
      positions that look.
    """
    bias = (1.0 - ops.cast(input_mask, "float32")) * MASKED_SCORE  # [B, T]
    return bias[:, None, None, :]  # [B, 1, 1, T]
