"""Transformer layers of an exported model, split into parts so that several cores compute one request.

TensorFlow can share each matrix product among all cores. A short text has about forty products of a tenth of a
millisecond each, and synchronization between cores doubles this time. Parts of a layer are independent for longer: the
products, attention and activation of a part need nothing from other parts; only their results are summed. With one
thread per operation, TensorFlow assigns each part to its own core.

This is tensor parallelism between cores (Megatron-LM, section 3): as on its devices, each part sums and normalizes the
results of all parts itself instead of waiting for another core to do so.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras import ops

from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import UnpaddedLayout
from official_bert.modeling.transformer import (
    AttentionOutput,
    ResidualOutput,
    SelfAttention,
    TransformerLayer,
    TransformerStack,
    attend,
    normalize,
)
from official_bert.tokenization.graph_operations import in_batches

# B: sequences, T: tokens, A: tokens of the longest sequence, D = N * H; n = N / parts heads of a part, d = n * H,
# i = I / parts.


_MOST_SCORES = 1 << 26  # computed together, in attention of models that read long texts


class ServedLayout(UnpaddedLayout):
    """An `UnpaddedLayout` that gathers with TensorFlow; Keras's gather first checks for negative indices."""

    @staticmethod
    def gather_rows(x, indices):
        return tf.gather(x, indices)

    def places_of_heads(self, num_projections: int) -> tf.Tensor:
        """Locate the heads of each position among the T * projections * n of all: int32 [projections, B, n, A]."""
        num_heads = self.split.shape[1]
        heads = tf.reshape(tf.range(num_projections * num_heads), [num_projections, 1, num_heads, 1])
        tokens = self.tokens[:, tf.newaxis, : tf.shape(self.split)[2]]
        return tokens * (num_projections * num_heads) + heads


class _Kernels(NamedTuple):
    """Weights of a part of a layer; or of all parts and layers, with an extra leading dimension."""

    projections: Any  # float [D, 3 * d], query, key and value concatenated
    attention_output: Any  # float [d, D]
    intermediate: Any  # float [D, i]
    output: Any  # float [i, D]


class _Vectors(NamedTuple):
    """Biases and layer norm parameters of a layer: graph constants, because even small variables cost time."""

    projections: list[np.ndarray]  # [3 * d] per part
    intermediate: list[np.ndarray]  # [i] per part
    attention_output: np.ndarray  # [D]
    output: np.ndarray  # [D]
    attention_norm: tuple[np.ndarray, np.ndarray, float]  # scale and shift, [D] each, and epsilon
    output_norm: tuple[np.ndarray, np.ndarray, float]  # scale and shift, [D] each, and epsilon


def can_be_divided(stack: TransformerStack | None) -> bool:
    """Return True if attention needs nothing but queries, keys, values and a bias that all layers share."""
    return stack is not None and type(stack.layers[0].attention.self_attention) is SelfAttention


class ExportStack:
    """Inference-only equivalent of a `TransformerStack`.

    It holds copies of the weights, in four variables because each variable adds time to every request. With bfloat16
    weights, products are also in bfloat16, and sums in float32.
    """

    def __init__(self, stack: TransformerStack, num_parts: int):
        self.num_heads = stack.num_heads // num_parts
        self.project, self.with_positions = stack.project, stack.with_positions
        self._num_parts, self._max_length = num_parts, stack.config.max_length
        layers = list(dict.fromkeys(stack.layers))
        self._numbers = [layers.index(layer) for layer in stack.layers]  # shared layers count as one
        self._vectors = [_vectors(layer, num_parts) for layer in layers]
        self._activation = layers[0].intermediate.dense.activation
        parts = zip(*(part for layer in layers for part in _kernels(layer, num_parts)), strict=True)
        self._kernels = _Kernels(*(tf.Variable(np.stack(arrays), trainable=False) for arrays in parts))

    @contextlib.contextmanager
    def replacing_layers(self, encoder: BertEncoder) -> Iterator[None]:
        """Make the encoder use this stack instead of its own layers during the block."""
        own = encoder.transformer, encoder.layout
        encoder.transformer, encoder.layout = self, ServedLayout
        try:
            yield
        finally:
            encoder.transformer, encoder.layout = own

    def __call__(self, x, bias, *, layout: ServedLayout, first_only=False, training=False):
        """Transform sequences; see `TransformerStack.call`. Returns no probabilities and applies no dropout."""
        del training
        kernels = [_Kernels(*part) for part in zip(*map(tf.unstack, self._kernels), strict=True)]  # without copying
        places_of_heads = layout.places_of_heads(3)
        compute_dtype = x.dtype
        copies = [ops.cast(x, "float32")]  # one copy of the vectors per part
        for _ in range(self._num_parts - 1):
            copies.append(_hidden(copies[-1]))  # the optimizer would merge equal copies
        outputs = []
        biases = [bias] * self._num_parts if bias.shape[1] == 1 else tf.split(bias, self._num_parts, axis=1)
        for place, number in enumerate(self._numbers):
            parts = kernels[number * self._num_parts : (number + 1) * self._num_parts]
            vectors = self._vectors[number]
            attends_first = first_only and place == len(self._numbers) - 1
            contexts = [
                self._context(*part, layout, places_of_heads, attends_first)
                for part in zip(copies, parts, vectors.projections, biases, strict=True)
            ]
            if attends_first:
                copies = [layout.first(x)[0] for x in copies]
            copies = self._feed_forward(self._attended(copies, contexts, parts, vectors), parts, vectors)
            outputs.append(AttentionOutput(ops.cast(copies[0], compute_dtype), None))
        return outputs

    def _context(self, x, kernels, projection_bias, bias, layout, places_of_heads, attends_first):
        """Compute attention for a part's heads: float [T, D] to [T, d], or to [B, d] if only first positions attend."""
        projected = _linear(x, kernels.projections, projection_bias)  # [T, 3 * d]
        heads = ops.reshape(projected, (-1, projected.shape[-1] // (3 * self.num_heads)))  # [T * 3 * n, H]
        query, key, value = tf.unstack(layout.gather_rows(heads, places_of_heads))  # [B, n, A, H]
        if not attends_first:
            is_long = self.num_heads * self._max_length**2 > _MOST_SCORES and bias.shape[1] == 1
            return layout.join_heads((_attend_in_batches if is_long else attend)(query, key, value, bias)[0])
        context = attend(query[:, :, :1], key, value, bias[:, :, :1])[0]  # [B, n, 1, H]
        return ops.reshape(context, (-1, self.num_heads * context.shape[-1]))

    def _attended(self, copies, contexts, parts, vectors):
        """Project the attention output and add it to the copies: each float [..., D]."""
        results = [
            _linear(context, kernels.attention_output, None if number else vectors.attention_output)
            for number, (context, kernels) in enumerate(zip(contexts, parts, strict=True))
        ]
        return [_added_and_normalized(x, results, vectors.attention_norm) for x in copies]

    def _feed_forward(self, copies, parts, vectors):
        """Compute the feed-forward layers and add the result to the copies: each float [..., D]."""
        results = []
        for number, (x, kernels) in enumerate(zip(copies, parts, strict=True)):
            wide = self._activation(_linear(x, kernels.intermediate, vectors.intermediate[number]))  # [..., i]
            results.append(_linear(wide, kernels.output, None if number else vectors.output))
        return [_added_and_normalized(x, results, vectors.output_norm) for x in copies]


def _attend_in_batches(query, key, value, bias):
    """Compute attention for some heads at a time: the scores of all heads of a long text would take gigabytes."""
    batch_size, num_heads, length, head_width = (*tf.unstack(tf.shape(query))[:3], query.shape[3])
    query, key, value = (tf.reshape(x, [-1, 1, length, head_width]) for x in (query, key, value))  # [B * n, 1, A, H]
    num_rows = batch_size * num_heads

    def some(rows: slice) -> dict[str, tf.Tensor]:
        sequences = tf.range(rows.start, tf.minimum(rows.stop, num_rows)) // num_heads
        return {"context": attend(query[rows], key[rows], value[rows], tf.gather(bias, sequences))[0]}

    at_once = tf.maximum(_MOST_SCORES // tf.maximum(length * length, 1), 1)
    specs = {"context": tf.TensorSpec([None, 1, None, head_width], value.dtype)}
    context = in_batches(some, num_rows, at_once, specs)["context"]
    return tf.reshape(context, [batch_size, num_heads, length, head_width]), None


def _linear(x, kernel, bias):
    """Return a product with its optional bias, in the form that TensorFlow's optimizer fuses with an activation."""
    product = ops.matmul(ops.cast(x, kernel.dtype), kernel)
    return product if bias is None else tf.nn.bias_add(product, bias)


def _added_and_normalized(x, results, norm):
    """Sum the results of all parts, each float [..., D], and normalize: float32 [..., D]."""
    first, *others = (ops.cast(result, "float32") for result in results)
    x = x + first
    for result in others:  # hidden, or the optimizer would use AddN, which adds in the order in which buffers are free
        x = _hidden(x) + result
    return normalize(x, *norm)


def _hidden(x):
    """Return x, float [..., D], in a form that TensorFlow's optimizer does not see through."""
    return tf.raw_ops.PlaceholderWithDefault(input=x, shape=[None, x.shape[-1]])


def _kernels(layer: TransformerLayer, num_parts: int) -> list[_Kernels]:
    attention = layer.attention.self_attention
    arrays = (
        _columns([attention.query.kernel, attention.key.kernel, attention.value.kernel], num_parts),
        _rows(layer.attention.residual_output.dense.kernel, num_parts),
        _columns([layer.intermediate.dense.kernel], num_parts),
        _rows(layer.residual_output.dense.kernel, num_parts),
    )
    return [_Kernels(*of_part) for of_part in zip(*arrays, strict=True)]


def _vectors(layer: TransformerLayer, num_parts: int) -> _Vectors:
    attention = layer.attention.self_attention
    attention_output, output = layer.attention.residual_output, layer.residual_output
    return _Vectors(
        _columns([attention.query.bias, attention.key.bias, attention.value.bias], num_parts),
        _columns([layer.intermediate.dense.bias], num_parts),
        _array(attention_output.dense.bias),
        _array(output.dense.bias),
        _norm(attention_output),
        _norm(output),
    )


def _norm(block: ResidualOutput) -> tuple[np.ndarray, np.ndarray, float]:
    norm = block.layer_norm
    return _array(norm.gamma), _array(norm.beta), norm.epsilon


def _columns(variables: Sequence[Any], num_parts: int) -> list[np.ndarray]:
    split = (np.split(_array(variable), num_parts, axis=-1) for variable in variables)
    return [np.concatenate(of_part, axis=-1) for of_part in zip(*split, strict=True)]


def _rows(variable: Any, num_parts: int) -> list[np.ndarray]:
    return np.split(_array(variable), num_parts)


def _array(variable: Any) -> np.ndarray:
    return ops.convert_to_numpy(variable)
