"""The layers of MPNet, whose scores have a trained bias for the distance of two positions."""

import numpy as np
from keras import ops

from official_bert.modeling.transformer import TransformerStack, initializer


def _bucket(distance: int) -> int:
    size = abs(distance)
    return 16 * (distance > 0) + (size if size < 8 else min((size * size).bit_length() + 1, 15))  # in steps of sqrt(2)


_FARTHEST = 91  # all that are farther apart share its bucket
_BUCKETS = np.array([_bucket(distance) for distance in range(-_FARTHEST, _FARTHEST + 1)], np.int32)


class RelativeStack(TransformerStack):
    """All layers in sequence; the scores of each also depend on how far two positions are apart.

    Each head has a trained bias for each of 32 buckets of distances, 16 before and 16 after a position. Distances up to
    7 have their own; the others share: 8 to 11, 12 to 15, 16 to 22, ..., 64 to 90, and 91 or more.

    Source: Raffel et al., 2020, section 2.1, as in transformers' `MPNetEncoder`.
    """

    scores_distances = True

    def _build_layers(self) -> None:
        super()._build_layers()
        self.relative_attention_bias = self.add_weight(
            name="relative_attention_bias",
            shape=(self.config.num_position_buckets, self.num_heads),
            initializer=initializer(self.config.initializer_range),
            autocast=False,
        )

    def with_positions(self, bias):
        """Add the bias of distances to the attention bias: float [B, 1, 1 or T, T] to [B, N, T, T]."""
        positions = ops.arange(ops.shape(bias)[3])
        distances = ops.clip(positions[None, :] - positions[:, None], -_FARTHEST, _FARTHEST) + _FARTHEST  # [T, T]
        by_distance = ops.cast(ops.take(self.relative_attention_bias, _BUCKETS, axis=0), bias.dtype)
        return bias + ops.take(ops.transpose(by_distance), distances, axis=1)
