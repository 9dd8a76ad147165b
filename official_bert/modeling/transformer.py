"""The transformer layers, from the stack of them down to attention, and how the vectors of a batch lie between them."""

import math
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.blocks import ACTIVATIONS, LAYER_NORM_NAME, ConfigMixin, Dropout, ResidualOutput, dense


class PaddedLayout:
    """Layout of the vectors of a batch between attention, which mixes them, and all else, which does not.

    Here they are float [B, S, D], D = N * H; `encoder_options` has others, with the same methods.
    """

    @staticmethod
    def from_mask(input_mask, num_heads: int) -> "PaddedLayout":
        """Return the layout of sequences with this mask, int32 [B, S], and N heads."""
        del input_mask, num_heads
        return PADDED

    def pack(self, sequences):
        """Bring padded sequences, float [B, S, D], into the layout."""
        return sequences

    def unpack(self, x):
        """Return the padded sequences again, float [B, S, D]."""
        return x

    def first(self, x):
        """Select the first vector of each sequence: B vectors and their layout."""
        return x[:, :1], self

    def split_heads(self, x, num_heads):
        """Return the heads of vectors: float [B, N, S, H]."""
        heads = ops.reshape(x, (*ops.shape(x)[:2], num_heads, x.shape[-1] // num_heads))  # [B, S, N, H]
        return ops.transpose(heads, (0, 2, 1, 3))

    def join_heads(self, heads):
        """Make vectors in the layout of heads, float [B, N, S, H]."""
        joined = ops.transpose(heads, (0, 2, 1, 3))  # [B, S, N, H]
        return ops.reshape(joined, (*ops.shape(joined)[:2], heads.shape[1] * heads.shape[3]))


PADDED = PaddedLayout()


class AttentionOutput(NamedTuple):
    """The outputs of attention.

    Attributes:
      context: float [..., D], a vector for each that attends.
      probabilities: float32 [B, N, F, T], before dropout; each row sums to 1.
    """

    context: Any
    probabilities: Any

    @classmethod
    def shapes(cls, attending, attended, config: BertConfig) -> "AttentionOutput":
        """Return the shapes for vectors of the shapes (B, F, D) that attend, and (B, T, D) that are attended to."""
        batch_size, from_length, _ = attending
        probabilities = (batch_size, config.num_attention_heads, from_length, attended[1])
        return cls((batch_size, from_length, config.hidden_size), probabilities)

    def specs(self, dtype: str) -> "AttentionOutput":
        """Symbolic tensors of these shapes; the probabilities are float32 whatever the dtype of the vectors."""
        return AttentionOutput(keras.KerasTensor(self.context, dtype), keras.KerasTensor(self.probabilities, "float32"))


@keras.saving.register_keras_serializable(package="official_bert")
class TransformerStack(ConfigMixin, keras.layers.Layer):
    """All layers, one after the other; before them the projection of embeddings that are narrower."""

    def __init__(self, config: BertConfig, *, recompute_layers: bool = False, name: str = "encoder", **kwargs):
        """Create the layers.

        Args:
          config: the architecture.
          recompute_layers: see `BertEncoder`.
          name: name of the layer.
          **kwargs: see `keras.layers.Layer`.
        """
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
        """Return the L layers, in the order in which they are computed."""
        return [
            TransformerLayer(self.config, name=f"layer_{index}", dtype=self.dtype_policy)
            for index in range(self.config.num_hidden_layers)
        ]

    def build(self, input_shape=None):
        """Create the variables of the projection and of the layers."""
        if self.embedding_hidden_mapping_in is not None:
            self.embedding_hidden_mapping_in.build((None, self.config.embedding_width))
        self._build_layers()

    def _build_layers(self) -> None:
        for layer in self.layers:
            layer.build((None, None, self.config.hidden_size))

    def project(self, embedded):
        """Project embeddings, float [B, S, E], to what enters the first layer, float [B, S, D]."""
        return embedded if self.embedding_hidden_mapping_in is None else self.embedding_hidden_mapping_in(embedded)

    @property
    def num_heads(self) -> int:
        """Number of attention heads that the vectors of a layout are split into."""
        return self.config.num_attention_heads

    @property
    def output_shape(self):
        """The shape of the last layer's output, which stands for all in `summary()`."""
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
          bias: float, added to the attention scores; None adds nothing.
          layout: how `x` lies; see `PaddedLayout`.
          first_only: whether the last layer is wanted of the first vector of each sequence alone.
          training: whether to apply dropout.

        Returns:
          A list of L `AttentionOutput`s, first layer first; in training with `recompute_layers` their probabilities
          are None.
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
    """Call a transformer layer so that its backward pass starts from `x` alone.

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


@keras.saving.register_keras_serializable(package="official_bert")
class TransformerLayer(ConfigMixin, keras.layers.Layer):
    """Attention and feed-forward, each with residual and normalization after it.

    Attributes:
      NORM_NAME: name of the last layer normalization.
    """

    NORM_NAME = LAYER_NORM_NAME

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
        """Create the variables of the parts."""
        hidden = (None, None, self.config.hidden_size)
        self.attention.build(hidden)
        self.intermediate.build(hidden)
        self.residual_output.build((None, None, self.config.intermediate_size))

    @property
    def output_shape(self):
        """The shape of the context, which stands for both outputs in `summary()`."""
        return (None, None, self.config.hidden_size)

    def compute_output_spec(self, x, bias=None, *, first_only=False, **options):
        """Symbolic outputs; see `call`."""
        return self.attention.compute_output_spec(x, bias, first_only=first_only)

    def call(self, x, bias=None, *, layout=PADDED, first_only=False, training=False):
        """Transform sequences.

        Args:
          x: float [..., D].
          bias: float, added to the attention scores; None adds nothing.
          layout: how `x` lies; see `PaddedLayout`.
          first_only: whether to transform only the first vector of each sequence, which attends to all.
          training: whether to apply dropout.

        Returns:
          An `AttentionOutput`: the layer's output and its attention probabilities.
        """
        attended, probabilities = self.attention(x, bias, layout=layout, first_only=first_only, training=training)
        output = self.residual_output(self.intermediate(attended), attended, training=training)
        return AttentionOutput(output, probabilities)


@keras.saving.register_keras_serializable(package="official_bert")
class AttentionBlock(ConfigMixin, keras.layers.Layer):
    """Self-attention, its output projection and the residual."""

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
        """Create the variables of the parts."""
        hidden = (None, None, self.config.hidden_size)
        self.self_attention.build(hidden)
        self.residual_output.build(hidden)

    def compute_output_spec(self, x, bias=None, *, first_only=False, **options):
        """Symbolic outputs; see `call`."""
        attending = (x.shape[0], 1, x.shape[2]) if first_only else x.shape
        return AttentionOutput.shapes(attending, x.shape, self.config).specs(self.compute_dtype)

    def call(self, x, bias=None, *, layout=PADDED, first_only=False, training=False):
        """Attend and add.

        Args:
          x: float [..., D].
          bias: float, added to the attention scores; None adds nothing.
          layout: how `x` lies; see `PaddedLayout`.
          first_only: whether only the first vector of each sequence attends.
          training: whether to apply dropout.

        Returns:
          An `AttentionOutput`.
        """
        attending, attending_layout = layout.first(x) if first_only else (x, layout)
        context, probabilities = self.self_attention(
            attending, x, bias, attending_layout=attending_layout, layout=layout, training=training
        )
        return AttentionOutput(self.residual_output(context, attending, training=training), probabilities)


@keras.saving.register_keras_serializable(package="official_bert")
class SelfAttention(ConfigMixin, keras.layers.Layer):
    """Scaled dot-product attention of sequences to themselves.

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
        """Attend.

        Args:
          attending: float [..., D], the vectors that attend.
          x: float [..., D], the vectors that are attended to.
          bias: float, added to the scores [B, N, F, T]; see `encoder.attention_bias`. None adds nothing.
          attending_layout: how `attending` lies.
          layout: how `x` lies; see `PaddedLayout`.
          training: whether to drop out probabilities.

        Returns:
          An `AttentionOutput`.
        """
        num_heads = self.config.num_attention_heads
        query = attending_layout.split_heads(self.query(attending), num_heads)  # [B, N, F, H]
        key, value = (layout.split_heads(projection(x), num_heads) for projection in (self.key, self.value))
        # Whole positions are dropped out of the view of others; unusual, but it is the original Transformer's way.
        context, probabilities = attend(query, key, value, bias, lambda x: self.dropout(x, training=training))
        return AttentionOutput(attending_layout.join_heads(context), probabilities)


def attend(query, key, value, bias, drop_out=lambda probabilities: probabilities):
    """Scaled dot-product attention of heads.

    Args:
      query: float [B, N, F, H].
      key: float [B, N, T, H].
      value: float [B, N, T, H].
      bias: float, added to the scores [B, N, F, T]; see `encoder.attention_bias`. None adds nothing.
      drop_out: what is done to the probabilities before they weigh the values.

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
    """The wide half of the feed-forward block."""

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
        """Return the shape of x with I as its last dimension."""
        return (*input_shape[:-1], self.config.intermediate_size)

    def call(self, x):
        """Map float [..., D] to float [..., I]."""
        return self.dense(x)
