"""The transformer layers, from the stack down to attention, after their building blocks.

`encoder_options` has the layouts of the vectors between them.
"""

import functools
import math
import operator
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from official_bert.config.bert_config import BertConfig

LAYER_NORM_NAME = "LayerNorm"
NARROW_TYPES = ("bfloat16", "float16")


def gelu(x):
    """Gaussian error linear unit, tanh approximation; used by the released models."""
    return keras.activations.gelu(x, approximate=True)


def gelu_erf(x):
    """Gaussian error linear unit, exact form; used by most later BERT models.

    Keras's own form uses the complement of the error function, which TensorFlow computes one number at a time in
    bfloat16. TensorFlow fuses this form with the product before it, and ONNX has its operations.
    """
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


# The names are those of `config.bert_config.ACTIVATION_NAMES`.
ACTIVATIONS = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "relu": keras.activations.relu,
    "tanh": keras.activations.tanh,
    "linear": keras.activations.linear,
}


class EncoderLayer(keras.layers.Layer):
    """Base class of an encoder's layers; they are saved and restored by the encoder that contains them."""

    def __init__(self, config: BertConfig, **kwargs: Any):
        super().__init__(**kwargs)
        self.config = config

    @property
    def output_shape(self):
        """The shape shown by `summary()`."""
        return (None, None, self.config.hidden_size)


def initializer(initializer_range: float) -> keras.Initializer:
    """Return a truncated normal with this standard deviation; each call gets its own seed."""
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


def dense(
    width: int, config: BertConfig, *, dtype: keras.DTypePolicy, activation=None, name: str = "dense"
) -> keras.layers.Dense:
    return keras.layers.Dense(
        width,
        activation=activation,
        use_bias=config.has_biases,
        kernel_initializer=initializer(config.initializer_range),
        dtype=dtype,
        name=name,
    )


def normalize(x, gamma, beta, epsilon: float):
    """Normalize float [..., D] in float32; `keras.ops.layer_normalization` needs more computation."""
    x, gamma = (ops.cast(tensor, "float32") for tensor in (x, gamma))
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    scaled = centered * ops.rsqrt(variance + epsilon) * gamma
    return scaled if beta is None else scaled + ops.cast(beta, "float32")


class LayerNorm(keras.layers.Layer):
    """Layer normalization, computed in float32 under every dtype policy; see `normalize`."""

    def __init__(self, config: BertConfig, *, name: str = LAYER_NORM_NAME, **kwargs):
        """Initialize; checkpoints and weight decay depend on the default name."""
        super().__init__(name=name, **kwargs)
        self.epsilon, self._has_shift = config.layer_norm_eps, config.has_biases

    def build(self, input_shape):
        width = (input_shape[-1],)
        # variable [D], the scale
        self.gamma = self.add_weight(name="gamma", shape=width, initializer="ones", autocast=False)
        self.beta = None
        if self._has_shift:  # variable [D]
            self.beta = self.add_weight(name="beta", shape=width, initializer="zeros", autocast=False)

    def call(self, x):
        """Normalize float [..., D]."""
        return ops.cast(normalize(x, self.gamma, self.beta, self.epsilon), self.compute_dtype)


class Dropout(keras.layers.Dropout):
    """Keras's dropout, with an accurate rate in narrow dtypes too.

    TensorFlow's random bfloat16 numbers are multiples of 1/128, which turns a rate of 0.1 into 13/128. Here the rate is
    exact to 1/65536, and drawing takes half as long.
    """

    def call(self, inputs, training=False):
        """Drop out; see `keras.layers.Dropout`."""
        if not training or not self.rate or self.compute_dtype not in NARROW_TYPES:
            return super().call(inputs, training=training)
        shape = ops.shape(inputs)
        size = functools.reduce(operator.mul, shape)
        pairs = keras.random.randint(((size + 1) // 2, 1), -(2**31), 2**31 - 1, dtype="int32", seed=self.seed_generator)
        bits = ops.reshape(ops.reshape(ops.view(pairs, "int16"), (-1,))[:size], shape)
        return ops.where(bits >= round(self.rate * 2**16) - 2**15, inputs * (1 / (1 - self.rate)), 0)


class ResidualOutput(EncoderLayer):
    """Projects back to the hidden width, applies dropout, adds the residual and normalizes.

    Without `norm_name`, it does not normalize. `dropout` is the rate; None for that of the layers.
    """

    def __init__(
        self,
        config: BertConfig,
        input_width: int,
        *,
        norm_name: str | None = LAYER_NORM_NAME,
        dropout: float | None = None,
        name: str = "output",
        **kwargs,
    ):
        super().__init__(config, name=name, **kwargs)
        self._input_width = input_width
        self.dense = dense(config.hidden_size, config, dtype=self.dtype_policy)
        self.dropout = Dropout(config.hidden_dropout_prob if dropout is None else dropout, dtype=self.dtype_policy)
        self.layer_norm = norm_name and LayerNorm(config, dtype=self.dtype_policy, name=norm_name)

    def build(self, input_shape=None):
        self.dense.build((None, self._input_width))
        if self.layer_norm is not None:
            self.layer_norm.build((None, self.config.hidden_size))

    def call(self, x, residual, training=False):
        """Map x, float [..., input_width], and the block's input, float [..., D], to its output, float [..., D]."""
        output = residual + self.dropout(self.dense(x), training=training)
        return output if self.layer_norm is None else self.layer_norm(output)


class AttentionOutput(NamedTuple):
    context: Any  # float [..., D], one vector per query
    probabilities: Any  # float32 [B, N, F, T], before dropout; each row sums to 1


class TransformerStack(EncoderLayer):
    """All layers in sequence, preceded by a projection of narrower embeddings."""

    # whether attention depends on the distances of positions, which fused kernels of attention do not support
    scores_distances = False
    needs_probabilities = False  # whether to compute the probabilities of all pairs of positions at any cost

    def __init__(self, config: BertConfig, *, recompute_layers: bool = False, name: str = "encoder", **kwargs):
        super().__init__(config, name=name, **kwargs)
        self.num_heads = config.num_attention_heads
        self.recompute_layers = recompute_layers
        self.layers = self._make_layers()
        self.embedding_hidden_mapping_in = None
        if config.embedding_width != config.hidden_size:
            self.embedding_hidden_mapping_in = dense(
                config.hidden_size, config, dtype=self.dtype_policy, name="embedding_hidden_mapping_in"
            )

    def _make_layers(self) -> "list[TransformerLayer]":
        return [
            TransformerLayer(
                self.config, self_attention=self._make_attention(), name=f"layer_{index}", dtype=self.dtype_policy
            )
            for index in range(self.config.num_hidden_layers)
        ]

    def _make_attention(self) -> "SelfAttention":
        return SelfAttention(self.config, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        if self.embedding_hidden_mapping_in is not None:
            self.embedding_hidden_mapping_in.build((None, self.config.embedding_width))
        self._build_layers()

    def _build_layers(self) -> None:
        for layer in self.layers:
            layer.build((None, None, self.config.hidden_size))

    def project(self, embedded):
        """Project embeddings, float [B, S, E], to the input of the first layer, float [B, S, D]."""
        return embedded if self.embedding_hidden_mapping_in is None else self.embedding_hidden_mapping_in(embedded)

    def with_positions(self, bias):
        """Add the part that depends on positions, in families that have one, to the attention bias."""
        return bias

    def _biases(self, bias, first_only: bool) -> list:
        """Return the attention bias of each layer; of the last, only for the first position if `first_only`."""
        return [bias] * (len(self.layers) - 1) + [bias[:, :, :1] if first_only else bias]

    def call(self, x, bias, *, layout, first_only=False, training=False):
        """Transform float [..., D]; return the `AttentionOutput` of each layer, without probabilities if recomputed."""
        outputs = []
        for layer, of_layer in zip(self.layers, self._biases(bias, first_only), strict=True):
            is_last = len(outputs) == len(self.layers) - 1
            options = {"layout": layout, "first_only": first_only and is_last, "training": training}
            if training and self.recompute_layers:
                outputs.append(AttentionOutput(call_recomputed(layer, x, of_layer, **options), None))
            else:
                outputs.append(layer(x, of_layer, **options))
            x = outputs[-1].context
        return outputs


def call_recomputed(layer: keras.layers.Layer, x, bias, **options):
    """Call a transformer layer so that its backward pass needs only `x` and `bias`.

    The second forward pass uses the same dropout masks. Only these two and the layer's trainable weights get gradients.

    Source: "Training Deep Nets with Sublinear Memory Cost".
    """
    # Copies: variables would be read again in the backward pass, and get gradients in addition to the arguments'.
    weights = layer.trainable_variables
    others = [(state, ops.copy(state)) for state in layer.non_trainable_variables]

    # Everything that changes is an argument or set by the scope, so that both passes compute the same.
    def transform(x, bias, *values):
        with keras.StatelessScope([*zip(weights, values, strict=True), *others]):
            return layer(x, bias, **options).context

    output = keras.remat(transform)(x, bias, *map(ops.copy, weights))
    own = set(map(id, layer.weights))
    for state, seed in (other for other in others if id(other[0]) not in own):
        state.assign(seed + ops.convert_to_tensor(np.array([0, 1]), dtype=state.dtype))  # as after one draw
    # A layout may end in a gather, whose gradient is sparse in TensorFlow; this makes it dense.
    return ops.reshape(output, ops.shape(output))


class TransformerLayer(EncoderLayer):
    """Attention and feed-forward, each followed by residual and normalization."""

    NORM_NAME = LAYER_NORM_NAME  # name of the last layer normalization

    def __init__(self, config: BertConfig, *, self_attention: "SelfAttention", name: str = "layer_0", **kwargs):
        super().__init__(config, name=name, **kwargs)
        self.attention = AttentionBlock(config, self_attention, dtype=self.dtype_policy)
        self.intermediate = Intermediate(config, dtype=self.dtype_policy)
        self.residual_output = ResidualOutput(
            config, config.intermediate_size, norm_name=self.NORM_NAME, dtype=self.dtype_policy
        )

    def build(self, input_shape=None):
        self.attention.build()
        self.intermediate.build()
        self.residual_output.build()

    @property
    def dense_layers(self) -> list[keras.layers.Dense]:
        """Its linear layers, except those of queries, keys and values."""
        return [self.attention.residual_output.dense, *self.intermediate.dense_layers, self.residual_output.dense]

    def call(self, x, bias, *, layout, first_only=False, training=False):
        """Transform sequences: float [..., D], in a layout; the attention bias is that of `SelfAttention`."""
        attended, probabilities = self.attention(x, bias, layout=layout, first_only=first_only, training=training)
        output = self.residual_output(self.intermediate(attended), attended, training=training)
        return AttentionOutput(output, probabilities)


class AttentionBlock(EncoderLayer):
    """Self-attention, in some families of normalized vectors, with output projection and residual."""

    def __init__(
        self,
        config: BertConfig,
        self_attention: "SelfAttention",
        *,
        layer_norm: LayerNorm | None = None,
        residual_output: ResidualOutput | None = None,
        name: str = "attention",
        **kwargs,
    ):
        super().__init__(config, name=name, **kwargs)
        self.self_attention, self.layer_norm = self_attention, layer_norm
        self.residual_output = residual_output or ResidualOutput(config, config.hidden_size, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        if self.layer_norm is not None:
            self.layer_norm.build((None, self.config.hidden_size))
        self.self_attention.build()
        self.residual_output.build()

    def call(self, x, bias, *, layout, first_only=False, training=False):
        normed = x if self.layer_norm is None else self.layer_norm(x)
        attending, residual, attending_layout = normed, x, layout
        if first_only:
            attending, attending_layout = layout.first(normed)
            residual = attending if self.layer_norm is None else layout.first(x)[0]
        context, probabilities = self.self_attention(
            attending, normed, bias, attending_layout=attending_layout, layout=layout, training=training
        )
        return AttentionOutput(self.residual_output(context, residual, training=training), probabilities)


class SelfAttention(EncoderLayer):
    """Scaled dot-product self-attention. Source: "Attention Is All You Need", section 3.2."""

    def __init__(self, config: BertConfig, *, name: str = "self", **kwargs):
        super().__init__(config, name=name, **kwargs)
        self.query, self.key, self.value = (
            dense(config.hidden_size, config, dtype=self.dtype_policy, name=projection)
            for projection in ("query", "key", "value")
        )
        self.dropout = Dropout(config.attention_probs_dropout_prob, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        for projection in (self.query, self.key, self.value):
            projection.build((None, self.config.hidden_size))

    def call(self, attending, x, bias=None, *, attending_layout, layout, training=False):
        """Let the vectors `attending`, float [..., D], attend to those of x."""
        num_heads = self.config.num_attention_heads
        query = attending_layout.split_heads(self.query(attending), num_heads)  # [B, N, F, H]
        key, value = (layout.split_heads(projection(x), num_heads) for projection in (self.key, self.value))
        context, probabilities = self.attend(query, key, value, bias, layout=layout, training=training)
        return AttentionOutput(attending_layout.join_heads(context), probabilities)

    def attend(self, query, key, value, bias, *, layout, training):
        """Compute attention of heads, float [B, N, F or T, H]; overridden by families whose scores have distances."""
        # Dropout hides whole positions from others here, which is unusual, but the original Transformer does it too.
        drop_out = (lambda x: self.dropout(x, training=True)) if training and self.dropout.rate else None
        return layout.attend(query, key, value, bias, drop_out)


def attend(query, key, value, bias, drop_out=None):
    """Compute scaled dot-product attention of heads, float [..., F or T, H]; see `encoder.attention_bias`."""
    scale = 1 / math.sqrt(query.shape[-1])
    scores = ops.cast(ops.matmul(query, ops.swapaxes(key, -1, -2)), "float32") * scale  # [..., F, T]
    probabilities = ops.softmax(scores + ops.cast(bias, "float32"))  # -10000 at masked positions
    weights = ops.cast(drop_out(probabilities) if drop_out else probabilities, value.dtype)
    return ops.matmul(weights, value), probabilities


class Intermediate(EncoderLayer):
    """The first, widening layer of the feed-forward block."""

    def __init__(self, config: BertConfig, *, name: str = "intermediate", **kwargs):
        super().__init__(config, name=name, **kwargs)
        activation = ACTIVATIONS[config.hidden_act]
        self.dense = dense(config.intermediate_size, config, dtype=self.dtype_policy, activation=activation)

    @property
    def dense_layers(self) -> list[keras.layers.Dense]:
        """Its linear layers, all of the same width."""
        return [self.dense]

    def build(self, input_shape=None):
        for layer in self.dense_layers:
            layer.build((None, self.config.hidden_size))

    def call(self, x):
        """Map float [..., D] to float [..., I]."""
        return self.dense(x)
