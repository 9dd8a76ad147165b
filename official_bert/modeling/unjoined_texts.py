"""Separation of the texts of an example, which follow one another in a record."""

from collections.abc import Mapping
from typing import Any

from keras import ops

from official_bert.config.tensor_names import ENCODER_INPUTS, TEXT_LENGTHS


def unjoined_texts(inputs: Mapping[str, Any], length: int | None = None) -> dict[str, Any]:
    """Separate the texts of examples.

    Args:
      inputs: `input_ids`, `input_mask` and `segment_ids`, int32 [B, S], with the K texts of an example one after
        another; and `text_lengths`, int32 [B, K].
      length: positions of each text in the result; None for the length of the longest text of the batch, at
        least 1.

    Returns:
      The inputs of the encoder, by name, int32 [B, K, length], padded with 0.
    """
    lengths = inputs[TEXT_LENGTHS]  # [B, K]
    starts = ops.cumsum(lengths, axis=1) - lengths
    if length is None:
        length = ops.maximum(ops.max(lengths), 1)  # a replica's part of a batch may have only padding examples
    offsets = ops.arange(length, dtype="int32")
    is_real = offsets < ops.expand_dims(lengths, -1)  # [B, K, length]
    places = ops.where(is_real, ops.expand_dims(starts, -1) + offsets, 0)
    flat = ops.reshape(places, (ops.shape(places)[0], -1))  # [B, K * length]
    mask = ops.cast(is_real, "int32")
    return {
        name: ops.reshape(ops.take_along_axis(inputs[name], flat, axis=1), ops.shape(places)) * mask
        for name in ENCODER_INPUTS
    }
