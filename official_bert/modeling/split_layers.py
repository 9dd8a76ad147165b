"""Transformer layers whose heads and wide layers are computed in parts, so that several cores answer one request.

TensorFlow can let all cores share each matrix product. One short text has some forty products of a tenth of a
millisecond, and waiting for each other costs the cores as much again. Parts of a layer are independent for longer: the
products, the attention and the activation of one part need nothing of another, and only their results are added up.
With one thread for each operation, TensorFlow gives each part to a core of its own.
"""

import dataclasses
from typing import NamedTuple

import keras
import numpy as np

from official_bert.modeling.attention import AttentionOutput, SelfAttention
from official_bert.modeling.blocks import dense
from official_bert.modeling.layout import PADDED, Layout
from official_bert.modeling.transformer import Intermediate, TransformerLayer, TransformerStack


class SplitStack:
    """Computes what a `TransformerStack` computes at inference, in parts.

    It has copies of the stack's weights, apart from the layer normalizations, which it shares. Keras does not store it.

    Attributes:
      num_heads: number of attention heads of each part.
    """

    def __init__(self, stack: TransformerStack, num_parts: int):
        """Splits the layers of a stack whose weights are there.

        Args:
          stack: the layers.
          num_parts: number of parts, which divides the heads and the width of the feed-forward layers.
        """
        self.num_heads = stack.num_heads // num_parts
        split = {layer: _SplitLayer(layer, num_parts) for layer in dict.fromkeys(stack.layers)}
        self._layers = [split[layer] for layer in stack.layers]  # those that share weights are one

    def __call__(self, x, bias=None, *, layout: Layout = PADDED, first_only=False, training=False):
        """Transforms sequences; see `TransformerStack.call`. The outputs have no probabilities, and none drops out."""
        del training
        outputs = []
        for number, layer in enumerate(self._layers, 1):
            x = layer(x, bias, layout=layout, first_only=first_only and number == len(self._layers))
            outputs.append(AttentionOutput(x, None))
        return outputs


class _Part(NamedTuple):
    """A part of a layer: its heads with the rows of the output projection that they need; the same for feed-forward."""

    attention: SelfAttention
    attention_output: keras.layers.Dense
    intermediate: Intermediate
    output: keras.layers.Dense


class _SplitLayer:
    """A `TransformerLayer` in parts."""

    def __init__(self, layer: TransformerLayer, num_parts: int):
        self._parts = [_part(layer, index, num_parts) for index in range(num_parts)]
        self._attention_norm = layer.attention.residual_output.layer_norm
        self._norm = layer.residual_output.layer_norm

    def __call__(self, x, bias, *, layout: Layout, first_only: bool):
        attending, attending_layout = layout.first(x) if first_only else (x, layout)
        layouts = {"attending_layout": attending_layout, "layout": layout}
        contexts = [part.attention(attending, x, bias, **layouts).context for part in self._parts]
        projected = [part.attention_output(context) for part, context in zip(self._parts, contexts, strict=True)]
        attended = self._attention_norm(sum(projected, attending))
        return self._norm(sum((part.output(part.intermediate(attended)) for part in self._parts), attended))


def _part(layer: TransformerLayer, index: int, num_parts: int) -> _Part:
    config, attention, policy = layer.config, layer.attention.self_attention, layer.dtype_policy
    config_of_part = dataclasses.replace(
        config,
        hidden_size=config.hidden_size // num_parts,
        num_attention_heads=config.num_attention_heads // num_parts,
        intermediate_size=config.intermediate_size // num_parts,
    )

    def of_part(array, axis: int):
        return np.split(keras.ops.convert_to_numpy(array), num_parts, axis)[index]

    def columns(whole: keras.layers.Dense, part: keras.layers.Dense) -> None:
        part.kernel.assign(of_part(whole.kernel, 1))
        part.bias.assign(of_part(whole.bias, 0))

    def rows(whole: keras.layers.Dense) -> keras.layers.Dense:
        part = dense(config.hidden_size, config.initializer_range, dtype=policy, use_bias=index == 0)  # added once
        part.build((None, whole.kernel.shape[0] // num_parts))
        part.kernel.assign(of_part(whole.kernel, 0))
        if part.use_bias:
            part.bias.assign(whole.bias)
        return part

    part = _Part(
        SelfAttention(config_of_part, dtype=policy),
        rows(layer.attention.residual_output.dense),
        Intermediate(config_of_part, dtype=policy),
        rows(layer.residual_output.dense),
    )
    part.attention.build((None, config.hidden_size))
    part.intermediate.build((None, config.hidden_size))
    for name in ("query", "key", "value"):
        columns(getattr(attention, name), getattr(part.attention, name))
    columns(layer.intermediate.dense, part.intermediate.dense)
    return part
