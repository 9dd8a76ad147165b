"""Multi-head self-attention."""

import math
from typing import Any, NamedTuple

import keras
from keras import ops

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.blocks import ResidualOutput, dense


class AttentionOutput(NamedTuple):
    """What attention gives.

    Attributes:
      context: float [..., D], a vector for each that looks.
      probabilities: float32 [B, N, F, T], before dropout; each row sums to 1.
    """

    context: Any
    probabilities: Any


class SelfAttention(keras.layers.Layer):
    """Scaled dot-product attention of sequences to themselves.

    Source: "Attention Is All You Need", section 3.2.
    """

    def __init__(self, config: BertConfig):
        super().__init__(name="self")
        self._hidden_size, self._num_heads = config.hidden_size, config.num_attention_heads
        self.query = dense(config.hidden_size, config.initializer_range, name="query")
        self.key = dense(config.hidden_size, config.initializer_range, name="key")
        self.value = dense(config.hidden_size, config.initializer_range, name="value")
        self.dropout = keras.layers.Dropout(config.attention_probs_dropout_prob)

    def build(self):
        """Creates the projections."""
        for projection in (self.query, self.key, self.value):
            projection.build((None, self._hidden_size))

    def call(self, looking, x, bias, *, looking_layout, layout, training=False):
        """Attends.

        Args:
          looking: float [..., D], the vectors that look.
          x: float [..., D], the vectors that are looked at.
          bias: float, added to the scores [B, N, F, T]; see `masks`.
          looking_layout: the `Layout` of `looking`.
          layout: the `Layout` of `x`.
          training: whether to drop out probabilities.

        Returns:
          An `AttentionOutput`.
        """
        query = looking_layout.split_heads(self.query(looking), self._num_heads)  # [B, N, F, H]
        key, value = (layout.split_heads(projection(x), self._num_heads) for projection in (self.key, self.value))
        scale = 1 / math.sqrt(self._hidden_size // self._num_heads)
        scores = ops.cast(ops.einsum("bnfh,bnth->bnft", query, key), "float32") * scale  # [B, N, F, T]
        probabilities = ops.softmax(scores + ops.cast(bias, "float32"))
        # Whole positions are dropped out of the view of others; unusual, but it is the original Transformer's way.
        dropped = self.dropout(probabilities, training=training)
        context = ops.einsum("bnft,bnth->bnfh", dropped, value)  # [B, N, F, H]
        return AttentionOutput(looking_layout.join_heads(context), probabilities)


class AttentionBlock(keras.layers.Layer):
    """Self-attention, its output projection and the residual."""

    def __init__(self, config: BertConfig):
        super().__init__(name="attention")
        self.self_attention = SelfAttention(config)
        self.residual_output = ResidualOutput(
            config.hidden_size,
            config.hidden_size,
            initializer_range=config.initializer_range,
            dropout=config.hidden_dropout_prob,
        )

    def build(self):
        """Creates the parts."""
        self.self_attention.build()
        self.residual_output.build()

    def call(self, x, bias, *, layout, first_only=False, training=False):
        """Attends and adds.

        Args:
          x: float [..., D].
          bias: float, added to the attention scores.
          layout: the `Layout` of `x`.
          first_only: whether only the first vector of each sequence looks.
          training: whether to drop out.

        Returns:
          An `AttentionOutput`.
        """
        looking, looking_layout = layout.first(x) if first_only else (x, layout)
        context, probabilities = self.self_attention(
            looking, x, bias, looking_layout=looking_layout, layout=layout, training=training
        )
        return AttentionOutput(self.residual_output(context, looking, training=training), probabilities)
