"""Multi-head self-attention."""

import math
from typing import Any, NamedTuple

import keras
from keras import ops

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.blocks import Configured, Dropout, ResidualOutput, dense
from official_bert.modeling.layout import PADDED, Layout


class AttentionOutput(NamedTuple):
    """What attention gives.

    Attributes:
      context: float [..., D], a vector for each that attends.
      probabilities: float32 [B, N, F, T], before dropout; each row sums to 1.
    """

    context: Any
    probabilities: Any

    @classmethod
    def shapes(cls, attending, attended, config: BertConfig) -> "AttentionOutput":
        """The shapes for vectors of the shapes (B, F, D) that attend, and (B, T, D) that are attended to."""
        batch_size, from_length, _ = attending
        probabilities = (batch_size, config.num_attention_heads, from_length, attended[1])
        return cls((batch_size, from_length, config.hidden_size), probabilities)

    def specs(self, dtype: str) -> "AttentionOutput":
        """Symbolic tensors of these shapes; the probabilities are float32 whatever the dtype of the vectors."""
        return AttentionOutput(keras.KerasTensor(self.context, dtype), keras.KerasTensor(self.probabilities, "float32"))


def attend(query, key, value, bias, drop_out=lambda probabilities: probabilities):
    """Scaled dot-product attention of heads.

    Args:
      query: float [B, N, F, H].
      key: float [B, N, T, H].
      value: float [B, N, T, H].
      bias: float, added to the scores [B, N, F, T]; see `masks`. None adds nothing.
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
class SelfAttention(Configured, keras.layers.Layer):
    """Scaled dot-product attention of sequences to themselves.

    Source: "Attention Is All You Need", section 3.2.
    """

    def __init__(self, config: BertConfig, *, name: str = "self", **kwargs):
        """Creates the parts; for `**kwargs` see `keras.layers.Layer`."""
        super().__init__(config, name=name, **kwargs)
        self.query, self.key, self.value = (
            dense(config.hidden_size, config.initializer_range, dtype=self.dtype_policy, name=projection)
            for projection in ("query", "key", "value")
        )
        self.dropout = Dropout(config.attention_probs_dropout_prob, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        """Creates the projections of vectors of this shape; by default they have the model's width."""
        for projection in (self.query, self.key, self.value):
            projection.build((None, input_shape[-1] if input_shape else self.config.hidden_size))

    def compute_output_spec(self, attending, x, bias=None, **options):
        """Symbolic outputs; see `call`."""
        return AttentionOutput.shapes(attending.shape, x.shape, self.config).specs(self.compute_dtype)

    def call(
        self, attending, x, bias=None, *, attending_layout: Layout = PADDED, layout: Layout = PADDED, training=False
    ):
        """Attends.

        Args:
          attending: float [..., D], the vectors that attend.
          x: float [..., D], the vectors that are attended to.
          bias: float, added to the scores [B, N, F, T]; see `masks`. None adds nothing.
          attending_layout: the `Layout` of `attending`.
          layout: the `Layout` of `x`.
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


@keras.saving.register_keras_serializable(package="official_bert")
class AttentionBlock(Configured, keras.layers.Layer):
    """Self-attention, its output projection and the residual."""

    def __init__(self, config: BertConfig, *, name: str = "attention", **kwargs):
        """Creates the parts; for `**kwargs` see `keras.layers.Layer`."""
        super().__init__(config, name=name, **kwargs)
        self.self_attention = SelfAttention(config, dtype=self.dtype_policy)
        self.residual_output = ResidualOutput(
            config.hidden_size,
            config.hidden_size,
            initializer_range=config.initializer_range,
            dropout=config.hidden_dropout_prob,
            dtype=self.dtype_policy,
        )

    def build(self, input_shape=None):
        """Creates the variables of the parts."""
        hidden = (None, None, self.config.hidden_size)
        self.self_attention.build(hidden)
        self.residual_output.build(hidden)

    def compute_output_spec(self, x, bias=None, *, first_only=False, **options):
        """Symbolic outputs; see `call`."""
        attending = (x.shape[0], 1, x.shape[2]) if first_only else x.shape
        return AttentionOutput.shapes(attending, x.shape, self.config).specs(self.compute_dtype)

    def call(self, x, bias=None, *, layout: Layout = PADDED, first_only=False, training=False):
        """Attends and adds.

        Args:
          x: float [..., D].
          bias: float, added to the attention scores; None adds nothing.
          layout: the `Layout` of `x`.
          first_only: whether only the first vector of each sequence attends.
          training: whether to drop out.

        Returns:
          An `AttentionOutput`.
        """
        attending, attending_layout = layout.first(x) if first_only else (x, layout)
        context, probabilities = self.self_attention(
            attending, x, bias, attending_layout=attending_layout, layout=layout, training=training
        )
        return AttentionOutput(self.residual_output(context, attending, training=training), probabilities)
