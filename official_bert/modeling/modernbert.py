"""The layers of ModernBERT: normalized before each block, with rotary positions, local attention and gated activations.

Queries and keys are rotated by angles that grow with their positions, so that a score depends on the distance of two
words. Every third layer attends to all positions; the others to a window, with rotations of another base.

Source: Warner et al., "Smarter, Better, Faster, Longer", 2024; Su et al., "RoFormer", 2021; Shazeer, "GLU Variants
Improve Transformer", 2020; transformers, `modeling_modernbert.py`.
"""

from typing import Any, NamedTuple

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

# B: sequences, T: positions, N: heads, H: head width, K: positions of a block, R: positions beside it that are seen.

_SMALLEST_BLOCK = 64  # for the speed of matrix products


class Surroundings(NamedTuple):
    """The attention bias of a layer, and the rotations of its positions."""

    bias: Any  # float [B, 1, 1 or T, T], or in blocks, [B, 1, T / K, K, K + 2 * R]
    rotations: Any  # float32 [2, T, H / 2], cosines and sines


class RotaryStack(TransformerStack):
    """All layers in sequence, and a last normalization.

    In long texts, local layers compute blocks of queries, each with the keys of the block and its windows. Their
    probabilities are then float32 [B, N, T / K, K, K + 2 * R].
    """

    scores_distances = True

    def _make_layers(self):
        self.layer_norm = LayerNorm(self.config, dtype=self.dtype_policy)
        return [PreNormLayer(self.config, index, dtype=self.dtype_policy) for index in range(self.config.num_layers)]

    def _build_layers(self):
        super()._build_layers()
        self.layer_norm.build((None, self.config.hidden_size))

    def _biases(self, bias, first_only):
        config, length = self.config, ops.shape(bias)[3]
        kinds = {
            True: Surroundings(bias, rotations(config, config.global_rope_theta, length)),
            False: Surroundings(self._local_bias(bias), rotations(config, config.local_rope_theta, length)),
        }
        found = [kinds[config.is_global(index)] for index in range(len(self.layers))]
        if first_only:
            first = bias[:, :, :1]
            if not config.is_global(len(self.layers) - 1):
                first = ops.minimum(first, _masked(ops.arange(length) > config.local_attention // 2, bias))
            found[-1] = found[-1]._replace(bias=first)
        return found

    def _local_bias(self, bias):
        """Mask the positions outside of the window, in long texts for blocks of positions."""
        reach, length = self.config.local_attention // 2, ops.shape(bias)[3]
        block = max(reach, _SMALLEST_BLOCK)
        longest_direct = 2 * (block + 2 * reach)  # blocks are faster beyond about this length
        is_known = isinstance(length, int)
        if self.needs_probabilities or (length if is_known else self.config.max_length) <= longest_direct:
            return ops.minimum(bias, self._outside(length, 0, bias))
        if not is_known:  # a short text is one block
            block = ops.where(length > longest_direct, block, length)
            reach = ops.where(length > longest_direct, reach, 0)
        # The last row, which is that of padding alone if later positions are hidden from the others.
        is_seen = _blocks(ops.swapaxes(bias[:, :, -1:], 2, 3) - MASKED_SCORE, block)  # [B, 1, T / K, K, 1]
        seen = ops.swapaxes(_with_neighbors(is_seen, reach), 3, 4) + MASKED_SCORE  # [B, 1, T / K, 1, K + 2 * R]
        return ops.minimum(seen, self._outside(block, reach, bias))

    def _outside(self, block, reach, bias):
        """Return the bias of distances in a block: float [K, K + 2 * R]."""
        distances = ops.arange(block + 2 * reach) - reach - ops.arange(block)[:, None]
        is_outside = ops.abs(distances) > self.config.local_attention // 2
        if self.config.is_left_to_right:
            is_outside = ops.logical_or(is_outside, distances > 0)
        return _masked(is_outside, bias)

    def call(self, x, bias, *, layout, first_only=False, training=False):
        """Transform float [..., D]; see `TransformerStack.call`."""
        *others, last = super().call(x, bias, layout=layout, first_only=first_only, training=training)
        return [*others, last._replace(context=self.layer_norm(last.context))]


class PreNormLayer(EncoderLayer):
    """Attention and feed-forward, each after a normalization, with residuals that are not normalized."""

    dense_layers = TransformerLayer.dense_layers

    def __init__(self, config: BertConfig, index: int, **kwargs):
        # Keras would cast the rotations, too; the parts cast their own inputs.
        super().__init__(config, name=f"layer_{index}", autocast=False, **kwargs)
        policy, output = {"dtype": self.dtype_policy}, {"norm_name": None, "dtype": self.dtype_policy}
        self.attention = AttentionBlock(
            config,
            RotaryAttention(config, autocast=False, **policy),
            layer_norm=LayerNorm(config, **policy) if index else None,  # embeddings are normalized already
            residual_output=ResidualOutput(
                config, config.hidden_size, dropout=config.attention_probs_dropout_prob, **output
            ),
            autocast=False,
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
    """Self-attention with rotated queries and keys, of all positions or within a window."""

    def attend(self, query, key, value, bias, *, layout, training):
        """Rotate queries and keys by the angles of their positions, and attend; see `SelfAttention.attend`."""
        bias, angles = bias
        query, key = _rotated(query, angles), _rotated(key, angles)
        if len(bias.shape) == 4:
            return super().attend(query, key, value, bias, layout=layout, training=training)
        shape, block, with_neighbors = ops.shape(query), *ops.shape(bias)[3:]
        key, value = (_with_neighbors(_blocks(x, block), (with_neighbors - block) // 2) for x in (key, value))
        query = _blocks(query, block)
        context, probabilities = super().attend(query, key, value, bias, layout=layout, training=training)
        return ops.reshape(context, (*shape[:2], -1, shape[3]))[:, :, : shape[2]], probabilities


def rotations(config: BertConfig, base: float, length):
    """Return the cosines and sines of the rotation angles of positions: float32 [2, T, H / 2]."""
    width = config.hidden_size // config.num_attention_heads
    # In float32, as trained models computed them.
    frequencies = 1 / np.float32(base) ** (np.arange(0, width, 2, dtype=np.float32) / np.float32(width))  # [H / 2]
    angles = ops.arange(length, dtype="float32")[:, None] * frequencies  # [T, H / 2]
    return ops.stack([ops.cos(angles), ops.sin(angles)])


def _rotated(x, angles):
    """Rotate heads, float [B, N, T, H]; with one position, it is the first."""
    cosines, sines = angles[0, : ops.shape(x)[2]], angles[1, : ops.shape(x)[2]]
    first, second = ops.split(ops.cast(x, "float32"), 2, axis=-1)
    rotated = [first * cosines - second * sines, second * cosines + first * sines]
    return ops.cast(ops.concatenate(rotated, axis=-1), x.dtype)


def _masked(is_hidden, bias):
    return ops.cast(is_hidden, bias.dtype) * MASKED_SCORE


def _blocks(x, size):
    """Split positions into blocks, the last one filled up with zeros: float [B, N, T, H] to [B, N, T / K, K, H]."""
    batch_size, num_heads, length, width = ops.shape(x)
    num_missing = (size - length % size) % size  # nothing is negative: ONNX divides toward zero
    filler = ops.zeros((batch_size, num_heads, num_missing, width), x.dtype)
    return ops.reshape(ops.concatenate([x, filler], axis=2), (batch_size, num_heads, -1, size, width))


def _with_neighbors(blocks, reach):
    """Add the positions beside blocks, zeros beyond the ends: [B, N, T / K, K, H] to [B, N, T / K, K + 2 * R, H]."""
    none = ops.zeros_like(blocks[:, :, :1])
    before = ops.concatenate([none, blocks[:, :, :-1]], axis=2)[:, :, :, ops.shape(blocks)[3] - reach :]
    after = ops.concatenate([blocks[:, :, 1:], none], axis=2)[:, :, :, :reach]
    return ops.concatenate([before, blocks, after], axis=3)


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
