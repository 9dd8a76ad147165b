"""The layers of DeBERTa-v2 and -v3: words and their distances have vectors of their own, which attend to each other.

A word embedding says nothing about its position. Instead, the score of a query for a key is the sum of three products:
query and key, query and the distance (content to position), and the distance and key (position to content). Distances
have embeddings that all layers share; each layer projects them like its words.

Source: He et al., "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", 2021, and "DeBERTaV3", 2023;
transformers, `modeling_deberta_v2.py`.
"""

import functools
import math

import numpy as np
from keras import ops

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.transformer import (
    Dropout,
    EncoderLayer,
    LayerNorm,
    SelfAttention,
    TransformerStack,
    initializer,
)


@functools.cache
def bucket_rows(num_buckets: int, num_positions: int) -> np.ndarray:
    """Return the rows of the distance embeddings: int32 [2P + 1], for the distances -P to P of P positions.

    Row `num_buckets` is for the distance 0. Half of the buckets of a direction have one distance each; the others share
    the longer distances, in logarithmic steps.
    """
    middle, distances = num_buckets // 2, np.arange(num_positions + 1)
    # float32 in this order, as trained models computed them: rounding decides where a step begins.
    ratios = np.log(np.maximum(distances, middle - 1).astype(np.float32) / np.float32(middle))
    steps = ratios / np.log(np.float32((num_positions - 1) / middle)) * np.float32(middle - 1)
    buckets = np.where(distances <= middle, distances, np.ceil(steps) + middle).astype(np.int32)
    buckets = np.concatenate([-buckets[:0:-1], buckets])
    return np.clip(buckets + num_buckets, 0, 2 * num_buckets - 1)


class DistanceEmbeddings(EncoderLayer):
    """The normalized embeddings of distances, which all layers share."""

    def __init__(self, config: BertConfig, *, name: str = "distances", **kwargs):
        super().__init__(config, name=name, **kwargs)
        self.layer_norm = LayerNorm(config, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(2 * self.config.position_buckets, self.config.hidden_size),
            initializer=initializer(self.config.initializer_range),
            autocast=False,
        )
        self.layer_norm.build((None, self.config.hidden_size))

    def normalized(self):
        """Return float [2 * buckets, D]."""
        return self.layer_norm(ops.convert_to_tensor(self.embeddings))


class DisentangledAttention(SelfAttention):
    """Self-attention whose scores also compare words with distances."""

    def __init__(self, config: BertConfig, distances: DistanceEmbeddings, **kwargs):
        super().__init__(config, **kwargs)
        self.distances = distances  # a part of each layer, so that recomputation gives it gradients
        self.distance_dropout = Dropout(config.hidden_dropout_prob, dtype=self.dtype_policy)

    def attend(self, query, key, value, bias, *, layout, training):
        """Compute attention with the sum of three products; see `SelfAttention.attend`."""
        num_queries, num_keys, width = ops.shape(query)[2], ops.shape(key)[2], query.shape[3]
        rows = bucket_rows(self.config.position_buckets, self.config.max_position_embeddings)
        embedded = self.distance_dropout(self.distances.normalized(), training=training)  # [2 * buckets, D]

        def scores(x, projection, first, last, sign):
            """Score x, float [B, N, A, H], for distances from `first` to `last`: float [B, N, A, last - first + 1]."""
            places = sign * ops.arange(first, last + 1, dtype="int32") + self.config.max_position_embeddings
            of_distances = projection(ops.take(embedded, ops.take(rows, places), axis=0))  # [R, D]
            of_distances = ops.reshape(of_distances, (-1, self.config.num_attention_heads, width))
            return ops.einsum("bnah,rnh->bnar", x, of_distances)

        # The distance of a query at f and a key at t is f - t.
        to_keys = scores(query, self.key, 1 - num_queries, num_keys, -1)  # of t - f
        to_queries = scores(key, self.query, 1 - num_keys, num_queries, 1)  # of f - t
        by_position = _aligned(to_keys, num_queries, num_keys)  # [B, N, F, T]
        by_position += ops.transpose(_aligned(to_queries, num_keys, num_queries), (0, 1, 3, 2))
        scale = 1 / math.sqrt(3 * width)
        bias = ops.cast(bias, "float32") + ops.cast(by_position, "float32") * scale
        return super().attend(query * (1 / math.sqrt(3)), key, value, bias, layout=layout, training=training)


def _aligned(scores, num_from, num_to):
    """Pick the score of each pair of positions: float [B, N, F, F + T] to [B, N, F, T].

    The scores of the position f are those of distances from 1 - F to T: the one of t is at t - f + F - 1. Rows that are
    read one number shorter move by one each, which needs no indices.
    """
    batch_size, num_heads = ops.shape(scores)[0], scores.shape[1]
    width = num_from + num_to - 1
    flat = ops.reshape(scores, (batch_size, num_heads, -1))[:, :, num_from - 1 : num_from - 1 + num_from * width]
    return ops.reshape(flat, (batch_size, num_heads, num_from, width))[..., :num_to]


class DisentangledStack(TransformerStack):
    """All layers in sequence, with the embeddings of distances that they share."""

    scores_distances = True

    def _make_layers(self):
        self.distances = DistanceEmbeddings(self.config, dtype=self.dtype_policy)
        return super()._make_layers()

    def _make_attention(self):
        return DisentangledAttention(self.config, self.distances, dtype=self.dtype_policy)

    def _build_layers(self):
        self.distances.build()
        super()._build_layers()
