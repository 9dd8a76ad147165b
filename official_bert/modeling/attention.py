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
      context: float [B, F, D].
      probabilities: float [B, N, F, T], before dropout; each row sums to 1.
    """

    context: Any
    probabilities: Any


class SelfAttention(keras.layers.Layer):
    """Scaled dot-product attention of a sequence to itself.

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

    def call(self, x, bias, training=False):
        """Attends.

        Args:
          x: float [B, S, D].
          bias: float, added to the scores [B, N, F, T]; see `masks`.
          training: whether to drop out probabilities.

        Returns:
          An `AttentionOutput`.
        """
        query, key, value = (self._split_heads(projection(x)) for projection in (self.query, self.key, self.value))
        head_width = self._hidden_size // self._num_heads
        scores = ops.einsum("bfnh,btnh->bnft", query, key) / math.sqrt(head_width)  # [B, N, F, T]
        probabilities = ops.softmax(scores + ops.cast(bias, scores.dtype))
        # Whole positions are dropped out of the view of others; unusual, but it is the original Transformer's way.
        dropped = self.dropout(probabilities, training=training)
        context = ops.einsum("bnft,btnh->bfnh", dropped, value)  # [B, F, N, H]
        context = ops.reshape(context, (-1, ops.shape(x)[1], self._hidden_size))  # [B, F, D]
        return AttentionOutput(context, probabilities)

    def _split_heads(self, x):
        heads = (self._num_heads, self._hidden_size // self._num_heads)
        return ops.reshape(x, (-1, ops.shape(x)[1], *heads))  # [B, S, N, H]


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

    def call(self, x, bias, training=False):
        """Attends and adds; takes and returns what `SelfAttention.call` does."""
        context, probabilities = self.self_attention(x, bias, training=training)
        return AttentionOutput(self.residual_output(context, x, training=training), probabilities)
