"""Inputs of heads, from the encoder's layers: vectors of a whole sequence, or of every position."""

import keras
import numpy as np
from keras import ops

from official_bert.config.poolings import CONCAT_LAST_FOUR, SECOND_TO_LAST, SUM_LAST_FOUR
from official_bert.config.sentence_modules import SPLADE, SPLADE_POOLINGS
from official_bert.metrics.retrieval import BM25_B, BM25_K1
from official_bert.support.errors import UserError

# Choices of `feature_layers`: layers counted from the end, and how they are combined.
EMBEDDINGS, LAST = "embeddings", "last"
WEIGHTED_SUM, WEIGHTED_SUM_LAST_FOUR = "weighted_sum", "weighted_sum_last_four"

_POSITIONS_AT_ONCE = 256  # whose logits are in memory; more are slower on CPUs

_NUM_NEEDED = {SECOND_TO_LAST: 2, SUM_LAST_FOUR: 4, CONCAT_LAST_FOUR: 4, WEIGHTED_SUM_LAST_FOUR: 4}  # layers


def mean_over_positions(sequence, input_mask):
    """Average the vectors of the real positions: float [B, S, D] to float32 [B, D]; zeros if no position is real."""
    weights = ops.expand_dims(ops.cast(input_mask, "float32"), axis=-1)  # [B, S, 1]
    return ops.sum(ops.cast(sequence, "float32") * weights, axis=1) / ops.maximum(ops.sum(weights, axis=1), 1)


def max_over_positions(sequence, input_mask):
    """Return the maximum of each component over the real positions; see `mean_over_positions`."""
    is_real = ops.expand_dims(ops.cast(input_mask, "bool"), axis=-1)  # [B, S, 1]
    largest = ops.max(ops.where(is_real, ops.cast(sequence, "float32"), -np.inf), axis=1)  # [B, D]
    return ops.where(ops.any(is_real, axis=1), largest, 0.0)


def mean_sqrt_len(sequence, input_mask):
    """Divide the sum over the real positions by the square root of their number; see `mean_over_positions`."""
    count = ops.sum(ops.cast(input_mask, "float32"), axis=1, keepdims=True)  # [B, 1]
    return mean_over_positions(sequence, input_mask) * ops.sqrt(count)


def weighted_mean_over_positions(sequence, weights):
    """Compute the mean of the vectors, float32 [B, D], with weights of at least 0; zeros where all weights are 0."""
    total = ops.sum(weights, axis=1, keepdims=True)  # [B, 1]
    shares = weights / ops.where(total > 0, total, 1.0)  # [B, S]
    return ops.sum(ops.cast(sequence, "float32") * ops.expand_dims(shares, axis=-1), axis=1)


def _positions(input_mask):
    """Count the positions from 1, float32 [B, S]; 0 for padding."""
    is_real = ops.cast(input_mask, "float32")
    return is_real * ops.cumsum(ops.ones_like(is_real), axis=1)


def _only_last(input_mask):
    positions = _positions(input_mask)
    return ops.cast(input_mask, "float32") * ops.cast(positions == ops.max(positions, axis=1, keepdims=True), "float32")


# From the outputs of a layer, float [B, S, D], and the mask of the positions that count, to [B, D].
OVER_POSITIONS = {
    "cls": lambda sequence, _: sequence[:, 0],
    "mean": mean_over_positions,
    "max": max_over_positions,
    "mean_sqrt_len_tokens": mean_sqrt_len,
    "weightedmean": lambda sequence, mask: weighted_mean_over_positions(sequence, _positions(mask)),
    "lasttoken": lambda sequence, mask: weighted_mean_over_positions(sequence, _only_last(mask)),
}


def bm25_weights(input_ids, is_word, idf, average_length):
    """Compute weights for `weighted_mean_over_positions`, float32 [B, S]; words with an idf [V] of 0 do not count."""
    idf = ops.take(idf, input_ids, axis=0)  # [B, S]
    is_word = ops.cast(is_word, "float32") * ops.cast(idf > 0, "float32")
    is_same = ops.cast(ops.expand_dims(input_ids, 2) == ops.expand_dims(input_ids, 1), "float32")  # [B, S, S]
    count = ops.einsum("bst,bt->bs", is_same, is_word)
    length = ops.sum(is_word, axis=1, keepdims=True)  # [B, 1]
    # An occurrence has the share 1 / count, which cancels the factor `count`.
    share = (BM25_K1 + 1) / (count + BM25_K1 * (1 - BM25_B + BM25_B * length / average_length))
    return idf * share * is_word


def splade(hidden, input_mask, word_embeddings, bias, pooling: str = SPLADE, training: bool = False):
    """Pool log(1 + relu(logits)) over the real positions, with the logits of a few rows at a time.

    Args:
      hidden: float [B, S, E], what the masked-LM head multiplies with the word embeddings, float [V, E].
      pooling: a key of `SPLADE_POOLINGS`.

    Returns:
      float32 [B, V].
    Source: Formal et al., "SPLADE v2" (2021).
    """
    strategy, activation = SPLADE_POOLINGS[pooling]

    def pooled(hidden, input_mask, word_embeddings, bias):
        logits = ops.cast(ops.matmul(hidden, ops.transpose(word_embeddings)), "float32") + bias  # [b, S, V]
        weights = ops.relu(ops.where(ops.expand_dims(input_mask, axis=-1) > 0, logits, 0.0))
        if strategy == "max":  # the logarithms of the maximum are the maximum of the logarithms
            weights = ops.max(weights, axis=1, keepdims=True)
        weights = ops.log1p(weights)
        return ops.sum(ops.log1p(weights) if activation == "log1p_relu" else weights, axis=1)

    if training:
        pooled = keras.remat(pooled)  # the backward pass computes the logits again instead of keeping them
    num_rows, length, _ = ops.shape(hidden)
    if isinstance(num_rows, int) and num_rows == 1:  # LiteRT cannot repeat this
        return pooled(hidden, input_mask, word_embeddings, bias)
    at_once = _at_least_one(_POSITIONS_AT_ONCE // length)
    num_blocks = _at_least_one((num_rows + at_once - 1) // at_once)  # ONNX divides toward zero

    def blocks(tensor):
        """Pad float [B, ...] with zeros, and reshape to [blocks, b, ...]."""
        missing = ops.zeros((num_blocks * at_once - num_rows, *ops.shape(tensor)[1:]), tensor.dtype)
        return ops.reshape(ops.concatenate([tensor, missing]), (num_blocks, at_once, *ops.shape(tensor)[1:]))

    parts = blocks(hidden), blocks(ops.cast(input_mask, "float32"))  # TensorFlow warns of integers in `remat`
    vectors = ops.map(lambda part: pooled(*part, word_embeddings, bias), parts)  # [blocks, b, V]
    return ops.reshape(vectors, (-1, vectors.shape[-1]))[:num_rows]


def _at_least_one(number):
    return max(number, 1) if isinstance(number, int) else ops.maximum(number, 1)  # JAX needs known sizes as integers


def num_vectors(feature_layers: str | None, num_layers: int, *, parameter: str = "feature_layers") -> int:
    """Return the number of vectors in `sequence_features` or `position_features` for a choice of layers."""
    num_needed = _NUM_NEEDED.get(feature_layers, 1)
    if num_layers < num_needed:
        raise UserError(f"{parameter}={feature_layers} needs {num_needed} layers, but the model has {num_layers}")
    return {CONCAT_LAST_FOUR: 4, WEIGHTED_SUM_LAST_FOUR: 4, WEIGHTED_SUM: num_layers}.get(feature_layers, 1)


def is_weighted(feature_layers: str | None) -> bool:
    return feature_layers in (WEIGHTED_SUM, WEIGHTED_SUM_LAST_FOUR)


def sequence_features(encoder_layers, input_mask, feature_layers: str):
    """Compute float [B, K, D], K `num_vectors`, from L outputs [B, S, D]; BERT paper, section 5.3."""
    means = ops.stack([mean_over_positions(layer, input_mask) for layer in encoder_layers], axis=1)  # [B, L, D]
    return {
        LAST: lambda: means[:, -1:],
        SECOND_TO_LAST: lambda: means[:, -2:-1],
        SUM_LAST_FOUR: lambda: ops.sum(means[:, -4:], axis=1, keepdims=True),
        CONCAT_LAST_FOUR: lambda: means[:, -4:],
        WEIGHTED_SUM: lambda: means,
    }[feature_layers]()


def position_features(embedding_output, encoder_layers, feature_layers: str):
    """Compute float [B, S, K, D] at every position, K `num_vectors`; BERT paper, section 5.3, table 7."""
    layers = {
        EMBEDDINGS: [embedding_output],
        LAST: encoder_layers[-1:],
        SECOND_TO_LAST: encoder_layers[-2:-1],
        CONCAT_LAST_FOUR: encoder_layers[-4:],
        WEIGHTED_SUM_LAST_FOUR: encoder_layers[-4:],
        WEIGHTED_SUM: encoder_layers,
    }[feature_layers]
    return ops.stack(layers, axis=2)
