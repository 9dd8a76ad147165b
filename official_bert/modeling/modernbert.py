"""The layers of ModernBERT: normalized before each block, with rotary positions, local attention and gated activations.

Queries and keys are rotated by angles that grow with their positions, so that a score depends on the distance of two
words. Every third layer attends to all positions; the others to a window, with rotations of another base.

Source: Warner et al., "Smarter, Better, Faster, Longer", 2024; Su et al., "RoFormer", 2021; Shazeer, "GLU Variants
Improve Transformer", 2020; transformers, `modeling_modernbert.py`.
"""

import numpy as np
from keras import ops

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import MASKED_SCORE, Pooler
from official_bert.modeling.transformer import (
    AttentionBlock,
    AttentionOutput,
    Dropout,
    EncoderLayer,
    Intermediate,
    LayerNorm,
    ResidualOutput,
    SelfAttention,
    TransformerLayer,
    TransformerStack,
    dense,
)


class RotaryStack(TransformerStack):
    """All layers in sequence, and a last normalization."""

    scores_distances = True

    def _make_layers(self):
        self.layer_norm = LayerNorm(self.config, dtype=self.dtype_policy)
        return [PreNormLayer(self.config, index, dtype=self.dtype_policy) for index in range(self.config.num_layers)]

    def _build_layers(self):
        super()._build_layers()
        self.layer_norm.build((None, self.config.hidden_size))

    def _biases(self, bias):
        positions = ops.arange(ops.shape(bias)[3])
        is_far = ops.abs(positions[None, :] - positions[:, None]) > self.config.local_attention // 2  # [T, T]
        local = ops.minimum(bias, ops.cast(is_far, bias.dtype) * MASKED_SCORE)  # [B, 1, T, T]
        return [bias if self.config.is_global(index) else local for index in range(len(self.layers))]

    def call(self, x, bias, *, layout, first_only=False, training=False):
        """Transform float [..., D]; see `TransformerStack.call`."""
        *others, last = super().call(x, bias, layout=layout, first_only=first_only, training=training)
        return [*others, last._replace(context=self.layer_norm(last.context))]


class PreNormLayer(EncoderLayer):
    """Attention and feed-forward, each after a normalization, with residuals that are not normalized."""

    dense_layers = TransformerLayer.dense_layers

    def __init__(self, config: BertConfig, index: int, **kwargs):
        super().__init__(config, name=f"layer_{index}", **kwargs)
        policy, output = {"dtype": self.dtype_policy}, {"norm_name": None, "dtype": self.dtype_policy}
        self.attention = AttentionBlock(
            config,
            RotaryAttention(config, is_global=config.is_global(index), **policy),
            layer_norm=LayerNorm(config, **policy) if index else None,  # embeddings are normalized already
            residual_output=ResidualOutput(
                config, config.hidden_size, dropout=config.attention_probs_dropout_prob, **output
            ),
            **policy,
        )
        self.layer_norm = LayerNorm(config, **policy)
        self.intermediate = GatedIntermediate(config, **policy)
        self.residual_output = ResidualOutput(config, config.intermediate_size, dropout=0.0, **output)

    def build(self, input_shape=None):
        self.attention.build()
        self.layer_norm.build((None, self.config.hidden_size))
        self.intermediate.build()
        self.residual_output.build()

    def call(self, x, bias, *, layout, first_only=False, training=False):
        """Transform sequences; see `TransformerLayer.call`."""
        attended, probabilities = self.attention(x, bias, layout=layout, first_only=first_only, training=training)
        inner = self.intermediate(self.layer_norm(attended), training=training)
        return AttentionOutput(self.residual_output(inner, attended, training=training), probabilities)


class RotaryAttention(SelfAttention):
    """Self-attention with rotated queries and keys."""

    def __init__(self, config: BertConfig, *, is_global: bool, **kwargs):
        super().__init__(config, **kwargs)
        width = config.hidden_size // config.num_attention_heads
        base = config.global_rope_theta if is_global else config.local_rope_theta
        # In float32, as trained models computed them.
        exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
        self._frequencies = 1 / np.float32(base) ** exponents  # [H / 2]

    def with_distances(self, query, key, bias, training):
        """Rotate queries and keys by the angles of their positions; see `SelfAttention.with_distances`."""
        angles = ops.arange(ops.shape(key)[2], dtype="float32")[:, None] * self._frequencies  # [T, H / 2]
        cosines, sines = ops.cos(angles), ops.sin(angles)

        def rotated(x):
            length = ops.shape(x)[2]  # 1 if only the first position attends
            first, second = ops.split(ops.cast(x, "float32"), 2, axis=-1)
            cos, sin = cosines[:length], sines[:length]
            return ops.cast(ops.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1), x.dtype)

        return rotated(query), rotated(key), bias


class GatedIntermediate(Intermediate):
    """The first layer of the feed-forward block: an activation, multiplied with another projection."""

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.gate = dense(config.intermediate_size, config, dtype=self.dtype_policy, name="gate")
        self.dropout = Dropout(config.hidden_dropout_prob, dtype=self.dtype_policy)

    @property
    def dense_layers(self):
        """The activated layer and its gate."""
        return [self.dense, self.gate]

    def call(self, x, training=False):
        """Map float [..., D] to float [..., I]."""
        return self.dropout(self.dense(x) * self.gate(x), training=training)


class PredictionHead(Pooler):
    """Projection, activation and normalization, of one vector per sequence or of every position."""

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.layer_norm = LayerNorm(config, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        super().build()
        self.layer_norm.build((None, self.config.hidden_size))

    def call(self, x):
        """Map float [..., D] to float [..., D]."""
        return self.layer_norm(self.dense(x))
