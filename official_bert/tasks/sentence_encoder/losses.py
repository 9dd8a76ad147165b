"""Losses of sentence encoders.

Each loss takes the vectors of this replica's examples, float32 [b, K, D] (an anchor, its positive and K - 2 negatives),
the batch, and as keywords the flags in `options.LOSSES`. Losses that compare examples with each other gather the
vectors of all replicas, so the sum over the replicas equals the loss of the whole batch on one device.

B: examples on all replicas, b: examples on this replica, K: texts per example, C = B * (K - 1): candidates, D: vector
size.
"""

import functools
from collections.abc import Callable, Mapping

import tensorflow as tf

from official_bert.optimization.replicas import gather_over_replicas, num_replicas
from official_bert.tasks.sentence_encoder.records import LABEL, SCORES, TEXT_NUMBERS
from official_bert.training.distillation import soft_cross_entropy
from official_bert.training.task import WeightedSum

COSENT_SCALE = 20.0

Batch = Mapping[str, tf.Tensor]


def contrastive(vectors: tf.Tensor, batch: Batch, *, temperature: float, symmetric: bool) -> WeightedSum:
    """Return the cross-entropy of picking each anchor's positive from all candidates of the batch (InfoNCE).

    A candidate with the same text or class as the anchor or its positive does not count as a negative. If `symmetric`,
    the anchor of each positive is also picked from all anchors.

    Source: van den Oord et al., "Representation Learning with Contrastive Predictive Coding" (2018); Henderson et al.,
    "Efficient Natural Language Response Suggestion for Smart Reply" (2017).
    """
    vectors, numbers = _unit(vectors), batch[TEXT_NUMBERS]
    num_texts = vectors.shape[1]
    all_vectors, all_numbers = gather_over_replicas(vectors), gather_over_replicas(numbers)
    candidates = tf.reshape(all_vectors[:, 1:], [-1, vectors.shape[2]])  # [C, D]
    candidate_numbers = tf.reshape(all_numbers[:, 1:], [-1])
    rows = _first_row(vectors) + tf.range(tf.shape(vectors)[0])  # [b], among all examples
    targets = rows * (num_texts - 1)
    losses = _ranked(vectors[:, 0], candidates, numbers[:, :2], candidate_numbers, targets, temperature)
    if symmetric:
        back = _ranked(vectors[:, 1], all_vectors[:, 0], numbers[:, :2], all_numbers[:, 0], rows, temperature)
        losses = (losses + back) / 2
    return _mean_of(losses)


def _ranked(queries, candidates, own_numbers, candidate_numbers, targets, temperature: float) -> tf.Tensor:
    """Return the cross-entropy of each query, float32 [b].

    Candidates with one of the query's `own_numbers`, [b, 2], are not negatives.
    """
    logits = tf.matmul(queries, candidates, transpose_b=True) / temperature  # [b, C]
    is_own = tf.reduce_any(own_numbers[:, :, tf.newaxis] == candidate_numbers, axis=1)  # [b, C]
    is_left_out = is_own | (candidate_numbers == 0)
    is_target = tf.range(tf.shape(candidates)[0]) == targets[:, tf.newaxis]
    logits = tf.where(is_left_out & ~is_target, logits.dtype.min, logits)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)


def cosine(vectors: tf.Tensor, batch: Batch) -> WeightedSum:
    """Return the squared error of the cosine similarity of each pair, compared with its score."""
    return _mean_of(tf.math.squared_difference(similarities(vectors)[:, 0], batch[SCORES][:, 0]))


def cosent(vectors: tf.Tensor, batch: Batch) -> WeightedSum:
    """Return the CoSENT loss: a smooth penalty for pairs whose similarities are ordered against their scores.

    Source: Su, "CoSENT: A more efficient sentence vector scheme than Sentence-BERT" (2022).
    """
    scores = gather_over_replicas(batch[SCORES][:, 0])  # [B]
    cosines = gather_over_replicas(similarities(vectors)[:, 0]) * COSENT_SCALE
    differences = cosines[tf.newaxis, :] - cosines[:, tf.newaxis]  # [i, j]: similarity of pair j minus that of pair i
    is_wrong_way = scores[:, tf.newaxis] > scores[tf.newaxis, :]
    terms = tf.where(is_wrong_way, differences, differences.dtype.min)
    loss = tf.reduce_logsumexp(tf.concat([[0.0], tf.reshape(terms, [-1])], axis=0))
    share = 1.0 / num_replicas()  # every replica computes the same loss
    return WeightedSum(loss * share, tf.constant(share))


def triplet(vectors: tf.Tensor, batch: Batch, *, margin: float) -> WeightedSum:
    """Return the triplet loss: the Euclidean distance of each negative should exceed the positive's by the margin.

    Source: Reimers and Gurevych, "Sentence-BERT" (2019), section 3.
    """
    squares = tf.reduce_sum(tf.square(vectors[:, 1:] - vectors[:, :1]), axis=-1)
    distances = tf.sqrt(tf.maximum(squares, 1e-12))  # [b, K - 1]; the gradient of sqrt at 0 is infinite
    is_real = tf.cast(batch[TEXT_NUMBERS][:, 2:] != 0, tf.float32)  # [b, K - 2]
    losses = tf.nn.relu(distances[:, :1] - distances[:, 1:] + margin) * is_real
    return WeightedSum(tf.reduce_sum(losses), tf.reduce_sum(is_real))


def distillation(vectors: tf.Tensor, batch: Batch, *, temperature: float | None = None) -> WeightedSum:
    """Return the loss of the similarities against the scores of another model; see `soft_targets`."""
    return soft_targets(vectors, batch[SCORES], batch, temperature=temperature)


def soft_targets(
    vectors: tf.Tensor, scores: tf.Tensor, batch: Batch, *, temperature: float | None = None
) -> WeightedSum:
    """Return the loss of the similarities of each example against target scores, float32 [b, K - 1].

    Pairs use the squared error, examples with several candidates the KL divergence of their softmax distributions, at
    the temperature.
    """
    cosines = similarities(vectors)
    if vectors.shape[1] == 2:
        return _mean_of(tf.math.squared_difference(cosines, scores)[:, 0])
    is_missing = batch[TEXT_NUMBERS][:, 1:] == 0
    student, teacher = (tf.where(is_missing, -1e9, values) for values in (cosines, scores))
    return _mean_of(soft_cross_entropy(student, teacher, temperature) / temperature**2)


def softmax(logits: tf.Tensor, batch: Batch) -> WeightedSum:
    """Return the cross-entropy of the classes of pairs.

    Source: Reimers and Gurevych, "Sentence-BERT" (2019), section 3.
    """
    return _mean_of(tf.nn.sparse_softmax_cross_entropy_with_logits(batch[LABEL], logits))


LOSSES: dict[str, Callable[..., WeightedSum]] = {
    "contrastive": contrastive,
    "cosine": cosine,
    "cosent": cosent,
    "triplet": triplet,
    "distillation": distillation,
}


def of_all_sizes(
    loss: Callable[[tf.Tensor], WeightedSum], name: str, vectors: tf.Tensor, sizes: tuple[int, ...]
) -> dict[str, WeightedSum]:
    """Compute a loss on full vectors and on vectors truncated to each size.

    Args:
      loss: a function of vectors, float32 [b, K, D].
      name: its name.
      vectors: float32 [b, K, D].
      sizes: numbers of leading components to keep.

    Returns:
      The losses, named NAME and NAME_SIZE.
    Source: Kusupati et al., "Matryoshka Representation Learning" (2022).
    """
    losses = {f"{name}_{size}": loss(vectors[..., :size]) for size in sizes}
    return {name: loss(vectors), **losses}


def similarities(vectors: tf.Tensor) -> tf.Tensor:
    """Return the cosine similarity of each anchor with its candidates: [b, K, D] to [b, K - 1]."""
    unit = _unit(vectors)
    return tf.reduce_sum(unit[:, :1] * unit[:, 1:], axis=-1)


_unit = functools.partial(tf.math.l2_normalize, axis=-1)


def _first_row(values: tf.Tensor) -> tf.Tensor:
    """Return the index of this replica's first example in the whole batch."""
    return tf.distribute.get_replica_context().replica_id_in_sync_group * tf.shape(values)[0]


def _mean_of(losses: tf.Tensor) -> WeightedSum:
    return WeightedSum(tf.reduce_sum(losses), tf.cast(tf.size(losses), tf.float32))
