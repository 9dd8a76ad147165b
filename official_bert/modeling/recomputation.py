"""Computes what a layer's backward pass needs a second time instead of storing it."""

import keras
import numpy as np
from keras import ops


def call_recomputed(layer: keras.layers.Layer, x, *arguments, **options):
    """Calls a transformer layer so that its backward pass starts from `x` alone.

    The second forward pass drops out what the first one did. Only `x` and the layer's weights get a gradient.

    Args:
      layer: built; each of its dropout layers draws once in a call.
      x: float, what it transforms.
      *arguments: others of the layer's.
      **options: likewise.

    Returns:
      The layer's output, float as `x`, without its attention probabilities.
    Source: "Training Deep Nets with Sublinear Memory Cost".
    """
    # Copies: variables would be read again in the backward pass, and get gradients beside those of the arguments.
    weights = layer.trainable_variables
    seeds = [(state, ops.copy(state)) for state in layer.non_trainable_variables]

    # All that changes comes as an argument or with the scope, so that both passes compute the same.
    def transform(x, *values):
        with keras.StatelessScope([*zip(weights, values, strict=True), *seeds]):
            return layer(x, *arguments, **options).context

    output = keras.remat(transform)(x, *map(ops.copy, weights))
    for state, seed in seeds:
        state.assign(seed + ops.convert_to_tensor(np.array([0, 1]), dtype=state.dtype))  # as if it had been drawn from
    # The gradient of a gather, which a layout may end in, is sparse in TensorFlow; that of this is not.
    return ops.reshape(output, ops.shape(output))
