"""The transformer layers, from the stack down to attention, and the layout of vectors between them."""

import math
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.blocks import ACTIVATIONS, LAYER_NORM_NAME, ConfigMixin, Dropout, ResidualOutput, dense


class PaddedLayout:
    """Layout of a batch's vectors outside attention, where positions are independent.

    Here it is float [B, S, D], D = N * H; `encoder_options` has other layouts with the same methods.
    """

    @staticmethod
    def from_mask(input_mask, num_heads: int) -> "PaddedLayout":
        """Return the layout of sequences with this mask, int32 [B, S], and N heads."""
        del input_mask, num_heads
        return PADDED

    def attended(self, input_mask):
        """Return the mask of the positions in attention."""
        return input_mask

    def pack(self, sequences):
        """Convert padded sequences, float [B, S, D], to the layout."""
        return sequences

    def unpack(self, x):
        """Convert back to padded sequences, float [B, S, D]."""
        return x

    def first(self, x):
        """Select the first vector of each sequence: B vectors and their layout."""
        return x[:, :1], self

    def split_heads(self, x, num_heads):
        """Split vectors into heads, float [B, N, S, H]."""
        heads = ops.reshape(x, (*ops.shape(x)[:2], num_heads, x.shape[-1] // num_heads))  # [B, S, N, H]
        return ops.transpose(heads, (0, 2, 1, 3))

    def join_heads(self, heads):
        """Join heads, float [B, N, S, H], into vectors in the layout."""
        joined = ops.transpose(heads, (0, 2, 1, 3))  # [B, S, N, H]
        return ops.reshape(joined, (*ops.shape(joined)[:2], heads.shape[1] * heads.shape[3]))


PADDED = PaddedLayout()


class AttentionOutput(NamedTuple):
    """The outputs of attention."""

    context: Any  # float [..., D], one vector per query
    probabilities: Any  # float32 [B, N, F, T], before dropout; each row sums to 1

    @classmethod
    def shapes(cls, attending, attended, config: BertConfig) -> "AttentionOutput":
        """Return the output shapes for queries of shape (B, F, D) and keys of shape (B, T, D)."""
        batch_size, from_length, _ = attending
        probabilities = (batch_size, config.num_attention_heads, from_length, attended[1])
        return cls((batch_size, from_length, config.hidden_size), probabilities)

    def specs(self, dtype: str) -> "AttentionOutput":
        """Return symbolic tensors of these shapes; the probabilities are always float32."""
        return AttentionOutput(keras.KerasTensor(self.context, dtype), keras.KerasTensor(self.probabilities, "float32"))


@keras.saving.register_keras_serializable(package="official_bert")
class TransformerStack(ConfigMixin, keras.layers.Layer):
    """All layers in sequence, preceded by a projection of narrower embeddings."""

    def __init__(self, config: BertConfig, *, recompute_layers: bool = False, name: str = "encoder", **kwargs):
        super().__init__(config, name=name, **kwargs)
        self._recompute_layers = recompute_layers
        self.layers = self._make_layers()
        self.embedding_hidden_mapping_in = None
        if config.embedding_width != config.hidden_size:
            self.embedding_hidden_mapping_in = dense(
                config.hidden_size,
                config.initializer_range,
                dtype=self.dtype_policy,
                name="embedding_hidden_mapping_in",
            )

    def _make_layers(self) -> "list[TransformerLayer]":
        """Return the L layers in order of computation."""
        return [
            TransformerLayer(self.config, name=f"layer_{index}", dtype=self.dtype_policy)
            for index in range(self.config.num_hidden_layers)
        ]

    def build(self, input_shape=None):
        """Create the variables of the projection and the layers."""
        if self.embedding_hidden_mapping_in is not None:
            self.embedding_hidden_mapping_in.build((None, self.config.embedding_width))
        self._build_layers()

    def _build_layers(self) -> None:
        for layer in self.layers:
            layer.build((None, None, self.config.hidden_size))

    def project(self, embedded):
        """Project embeddings, float [B, S, E], to the input of the first layer, float [B, S, D]."""
        return embedded if self.embedding_hidden_mapping_in is None else self.embedding_hidden_mapping_in(embedded)

    @property
    def num_heads(self) -> int:
        """Number of attention heads in a layout."""
        return self.config.num_attention_heads

    @property
    def output_shape(self):
        """The shape of the last layer's output, shown by `summary()`."""
        return (None, None, self.config.hidden_size)

    def compute_output_spec(self, x, bias=None, *, first_only=False, **options):
        """Symbolic outputs; see `call`."""
        *lower, last = self.layers
        return [
            *(layer.compute_output_spec(x) for layer in lower),
            last.compute_output_spec(x, first_only=first_only),
        ]

    def call(self, x, bias=None, *, layout=PADDED, first_only=False, training=False):
        """Transform sequences.

        Args:
          x: float [..., D].

        Returns:
          A list of L `AttentionOutput`s, first layer first; their probabilities are None in training with
          `recompute_layers`.
        """
        outputs = []
        for number, layer in enumerate(self.layers, 1):
            is_last = number == len(self.layers)
            options = {"layout": layout, "first_only": first_only and is_last, "training": training}
            if training and self._recompute_layers:
                outputs.append(AttentionOutput(call_recomputed(layer, x, bias, **options), None))
            else:
                outputs.append(layer(x, bias, **options))
            x = outputs[-1].context
        return outputs


def call_recomputed(layer: keras.layers.Layer, x, *arguments, **options):
    """Call a transformer layer so that its backward pass needs only `x`.

    The second forward pass uses the same dropout masks. Only `x` and the layer's trainable weights get gradients.

    Source: "Training Deep Nets with Sublinear Memory Cost".
    """
    # Copies: variables would be read again in the backward pass, and get gradients in addition to the arguments'.
    weights = layer.trainable_variables
    others = [(state, ops.copy(state)) for state in layer.non_trainable_variables]

    # Everything that changes is an argument or set by the scope, so that both passes compute the same.
    def transform(x, *values):
        with keras.StatelessScope([*zip(weights, values, strict=True), *others]):
            return layer(x, *arguments, **options).context

    output = keras.remat(transform)(x, *map(ops.copy, weights))
    own = set(map(id, layer.weights))
    for state, seed in (other for other in others if id(other[0]) not in own):
        state.assign(seed + ops.convert_to_tensor(np.array([0, 1]), dtype=state.dtype))  # as after one draw
    # A layout may end in a gather, whose gradient is sparse in TensorFlow; this makes it dense.
    return ops.reshape(output, ops.shape(output))


@keras.saving.register_keras_serializable(package="official_bert")
class TransformerLayer(ConfigMixin, keras.layers.Layer):
    """Attention and feed-forward, each followed by residual and normalization."""

    NORM_NAME = LAYER_NORM_NAME  # name of the last layer normalization

    def __init__(self, config: BertConfig, *, name: str = "layer_0", **kwargs):
        """Create the parts; for `**kwargs` see `keras.layers.Layer`."""
        super().__init__(config, name=name, **kwargs)
        self.attention = AttentionBlock(config, dtype=self.dtype_policy)
        self.intermediate = Intermediate(config, dtype=self.dtype_policy)
        self.residual_output = ResidualOutput(
            config.intermediate_size,
            config.hidden_size,
            initializer_range=config.initializer_range,
            dropout=config.hidden_dropout_prob,
            norm_name=self.NORM_NAME,
            epsilon=config.layer_norm_eps,
            dtype=self.dtype_policy,
        )

    def build(self, input_shape=None):
        """Create the variables of the sublayers."""
        hidden = (None, None, self.config.hidden_size)
        self.attention.build(hidden)
        self.intermediate.build(hidden)
        self.residual_output.build((None, None, self.config.intermediate_size))

    @property
    def output_shape(self):
        """The shape of the context, shown by `summary()`."""
        return (None, None, self.config.hidden_size)

    def compute_output_spec(self, x, bias=None, *, first_only=False, **options):
        """Symbolic outputs; see `call`."""
        return self.attention.compute_output_spec(x, bias, first_only=first_only)

    def call(self, x, bias=None, *, layout=PADDED, first_only=False, training=False):
        """Transform sequences.

        Args:
          x: float [..., D].
        """
        attended, probabilities = self.attention(x, bias, layout=layout, first_only=first_only, training=training)
        output = self.residual_output(self.intermediate(attended), attended, training=training)
        return AttentionOutput(output, probabilities)


@keras.saving.register_keras_serializable(package="official_bert")
class AttentionBlock(ConfigMixin, keras.layers.Layer):
    """Self-attention with output projection and residual."""

    def __init__(self, config: BertConfig, *, name: str = "attention", **kwargs):
        """Create the parts; for `**kwargs` see `keras.layers.Layer`."""
        super().__init__(config, name=name, **kwargs)
        self.self_attention = SelfAttention(config, dtype=self.dtype_policy)
        self.residual_output = ResidualOutput(
            config.hidden_size,
            config.hidden_size,
            initializer_range=config.initializer_range,
            dropout=config.hidden_dropout_prob,
            epsilon=config.layer_norm_eps,
            dtype=self.dtype_policy,
        )

    def build(self, input_shape=None):
        """Create the variables of the sublayers."""
        hidden = (None, None, self.config.hidden_size)
        self.self_attention.build(hidden)
        self.residual_output.build(hidden)

    def compute_output_spec(self, x, bias=None, *, first_only=False, **options):
        """Symbolic outputs; see `call`."""
        attending = (x.shape[0], 1, x.shape[2]) if first_only else x.shape
        return AttentionOutput.shapes(attending, x.shape, self.config).specs(self.compute_dtype)

    def call(self, x, bias=None, *, layout=PADDED, first_only=False, training=False):
        """Apply attention and add the residual.

        Args:
          x: float [..., D].
        """
        attending, attending_layout = layout.first(x) if first_only else (x, layout)
        context, probabilities = self.self_attention(
            attending, x, bias, attending_layout=attending_layout, layout=layout, training=training
        )
        return AttentionOutput(self.residual_output(context, attending, training=training), probabilities)


@keras.saving.register_keras_serializable(package="official_bert")
class SelfAttention(ConfigMixin, keras.layers.Layer):
    """Scaled dot-product self-attention.

    Source: "Attention Is All You Need", section 3.2.
    """

    def __init__(self, config: BertConfig, *, name: str = "self", **kwargs):
        """Create the parts; for `**kwargs` see `keras.layers.Layer`."""
        super().__init__(config, name=name, **kwargs)
        self.query, self.key, self.value = (
            dense(config.hidden_size, config.initializer_range, dtype=self.dtype_policy, name=projection)
            for projection in ("query", "key", "value")
        )
        self.dropout = Dropout(config.attention_probs_dropout_prob, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        """Create the projections of vectors of this shape; by default they have the model's width."""
        for projection in (self.query, self.key, self.value):
            projection.build((None, input_shape[-1] if input_shape else self.config.hidden_size))

    def compute_output_spec(self, attending, x, bias=None, **options):
        """Symbolic outputs; see `call`."""
        return AttentionOutput.shapes(attending.shape, x.shape, self.config).specs(self.compute_dtype)

    def call(self, attending, x, bias=None, *, attending_layout=PADDED, layout=PADDED, training=False):
        """Apply attention.

        Args:
          attending: float [..., D], the vectors that attend (queries).
          x: float [..., D], the vectors attended to (keys and values).
          bias: float, added to the scores [B, N, F, T]; see `encoder.attention_bias`. None adds nothing.
        """
        num_heads = self.config.num_attention_heads
        query = attending_layout.split_heads(self.query(attending), num_heads)  # [B, N, F, H]
        key, value = (layout.split_heads(projection(x), num_heads) for projection in (self.key, self.value))
        # This hides whole positions from others, which is unusual, but the original Transformer does it too.
        context, probabilities = attend(query, key, value, bias, lambda x: self.dropout(x, training=training))
        return AttentionOutput(attending_layout.join_heads(context), probabilities)


def attend(query, key, value, bias, drop_out=lambda probabilities: probabilities):
    """Compute scaled dot-product attention of heads.

    Args:
      query: float [B, N, F, H].
      key: float [B, N, T, H].
      value: float [B, N, T, H].
      bias: float, added to the scores [B, N, F, T]; see `encoder.attention_bias`. None adds nothing.

    Returns:
      float [B, N, F, H]; and the probabilities before `drop_out`, float32 [B, N, F, T].
    """
    scale = 1 / math.sqrt(query.shape[-1])
    scores = ops.cast(ops.einsum("bnfh,bnth->bnft", query, key), "float32") * scale  # [B, N, F, T]
    probabilities = ops.softmax(scores if bias is None else scores + ops.cast(bias, "float32"))
    weights = ops.cast(drop_out(probabilities), value.dtype)
    return ops.einsum("bnft,bnth->bnfh", weights, value), probabilities


@keras.saving.register_keras_serializable(package="official_bert")
class Intermediate(ConfigMixin, keras.layers.Layer):
    """The first, widening layer of the feed-forward block."""

    def __init__(self, config: BertConfig, *, name: str = "intermediate", **kwargs):
        """Create the projection; for `**kwargs` see `keras.layers.Layer`."""
        super().__init__(config, name=name, **kwargs)
        self.dense = dense(
            config.intermediate_size,
            config.initializer_range,
            dtype=self.dtype_policy,
            activation=ACTIVATIONS[config.hidden_act],
        )

    def build(self, input_shape=None):
        """Create the variables for vectors of this shape; by default they have the model's width."""
        self.dense.build((None, input_shape[-1] if input_shape else self.config.hidden_size))

    def compute_output_shape(self, input_shape):
        """Return the shape of x with last dimension I."""
        return (*input_shape[:-1], self.config.intermediate_size)

    def call(self, x):
        """Map float [..., D] to float [..., I]."""
        return self.dense(x)
