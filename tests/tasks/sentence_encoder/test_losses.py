"""Losses of sentence encoders: compared with NumPy, with gradient accumulation, and on two devices."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.tasks.sentence_encoder.data import example_schema
from official_bert.tasks.sentence_encoder.task import (
    LOSSES,
    Objective,
    SentenceEncoderTask,
    flops,
    of_all_sizes,
    softmax,
)
from official_bert.training.task import TrainingPlan
from official_bert.training.tensorflow_step import TensorFlowSteps

B, K, D, LENGTH = 8, 3, 6, 7
RNG = np.random.default_rng(3)
VECTORS = RNG.normal(size=(B, K, D)).astype(np.float32)
# Examples 2 and 5 have the same positive, the negative of 3 is the anchor of 0, and 6 has no negative.
NUMBERS = np.arange(1, B * K + 1).reshape(B, K)
NUMBERS[5, 1], NUMBERS[3, 2], NUMBERS[6, 2] = NUMBERS[2, 1], NUMBERS[0, 0], 0
SCORES = np.array([0.1, 0.9, 0.5, 0.5, 0.2, 0.8, 0.3, 1.0], np.float32)
CONFIG = BertConfig(
    vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=LENGTH, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip

CONTRASTIVE = {"temperature": 0.05, "symmetric": False}


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def mean_loss(name, vectors=VECTORS, *, options=None, **fields):
    batch = {"text_numbers": tf.constant(NUMBERS[:, : vectors.shape[1]], tf.int32)}
    batch |= {field: tf.constant(values) for field, values in fields.items()}
    loss = LOSSES[name](tf.constant(vectors if name == "triplet" else unit(vectors)), batch, **options or {})
    return float(loss.total / loss.weight)


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum())


def ranked_by_hand(row, query, candidates, target, temperature):
    """Return the cross-entropy of a text over candidates, each given by its example and its index in the example."""
    vectors = unit(VECTORS.astype(np.float64))
    own = NUMBERS[row, :2]
    kept = [(i, k) for i, k in candidates if (i, k) == target or (NUMBERS[i, k] and NUMBERS[i, k] not in own)]
    logits = np.array([vectors[row, query] @ vectors[place] / temperature for place in kept])
    return -log_softmax(logits)[kept.index(target)]


@pytest.mark.parametrize("is_symmetric", [False, True])
def test_contrastive_loss_leaves_out_false_and_missing_negatives(is_symmetric):
    found = mean_loss("contrastive", options={"temperature": 0.2, "symmetric": is_symmetric})
    candidates, anchors, expected = [(i, k) for i in range(B) for k in range(1, K)], [(i, 0) for i in range(B)], []
    for row in range(B):
        forth = ranked_by_hand(row, 0, candidates, (row, 1), 0.2)
        back = ranked_by_hand(row, 1, anchors, (row, 0), 0.2)
        expected.append((forth + back) / 2 if is_symmetric else forth)
    assert found == pytest.approx(np.mean(expected), rel=1e-5)


def test_losses_of_scored_pairs():
    pairs, scores = VECTORS[:, :2], SCORES[:, None]
    cosines = (unit(pairs)[:, 0] * unit(pairs)[:, 1]).sum(-1)
    assert mean_loss("cosine", pairs, scores=scores) == pytest.approx(np.mean((cosines - SCORES) ** 2), rel=1e-5)
    wrong = [np.exp(20 * (cosines[j] - cosines[i])) for i in range(B) for j in range(B) if SCORES[i] > SCORES[j]]
    assert mean_loss("cosent", pairs, scores=scores) == pytest.approx(np.log(1 + np.sum(wrong)), rel=1e-5)
    assert mean_loss("distillation", pairs, scores=scores) == mean_loss("cosine", pairs, scores=scores)


def test_triplets_without_a_negative_are_ignored():
    distances = np.linalg.norm(VECTORS[:, 1:] - VECTORS[:, :1], axis=-1)
    losses = np.maximum(distances[:, 0] - distances[:, 1] + 0.7, 0)[NUMBERS[:, 2] != 0]
    assert mean_loss("triplet", options={"margin": 0.7}) == pytest.approx(losses.mean(), rel=1e-5)


def test_distillation_loss_is_zero_if_similarities_equal_scores():
    cosines, options = (unit(VECTORS)[:, :1] * unit(VECTORS)[:, 1:]).sum(-1), {"temperature": 0.05}
    assert mean_loss("distillation", options=options, scores=cosines) == pytest.approx(0, abs=1e-5)
    assert mean_loss("distillation", options=options, scores=cosines[:, ::-1].copy()) > 0.1


def test_the_loss_on_truncated_vectors():
    batch = {"text_numbers": tf.constant(NUMBERS, tf.int32)}
    loss = functools.partial(LOSSES["contrastive"], batch=batch, **CONTRASTIVE)
    losses = of_all_sizes(lambda vectors: loss(unit(vectors)), "contrastive", VECTORS, (2, 4))
    assert list(losses) == ["contrastive", "contrastive_2", "contrastive_4"]
    shorter, expected = losses["contrastive_4"], mean_loss("contrastive", VECTORS[..., :4], options=CONTRASTIVE)
    assert float(shorter.total / shorter.weight) == pytest.approx(expected, rel=1e-6)


def test_the_regularizer_and_the_dot_products_of_sparse_vectors():
    """In sentence-transformers: `FlopsLoss` and `SparseMultipleNegativesRankingLoss` with a scale of 2."""
    vectors = np.maximum(VECTORS, 0) * (NUMBERS != 0)[..., None]
    loss = flops(tf.constant(vectors[:, 1:]), tf.constant(NUMBERS[:, 1:]), 0.5)
    means = vectors[:, 1:].sum(axis=(0, 1)) / (NUMBERS[:, 1:] != 0).sum()
    assert float(loss.total / loss.weight) == pytest.approx(0.5 * (means**2).sum(), rel=1e-5)
    distinct = {"text_numbers": tf.constant(np.arange(1, 2 * B + 1).reshape(B, 2), tf.int32)}
    loss = LOSSES["contrastive"](vectors[:, :2], distinct, temperature=0.5, symmetric=False)
    logits = 2 * vectors[:, 0] @ vectors[:, 1].T
    expected = -np.mean([log_softmax(row)[number] for number, row in enumerate(logits)])
    assert float(loss.total / loss.weight) == pytest.approx(expected, rel=1e-5)


def test_classes_of_pairs():
    logits = RNG.normal(size=(B, 3)).astype(np.float32)
    loss = softmax(tf.constant(logits), {"label_ids": tf.constant([0, 1, 2, 0, 1, 2, 0, 1])})
    expected = -np.mean([log_softmax(row)[number % 3] for number, row in enumerate(logits)])
    assert float(loss.total / loss.weight) == pytest.approx(expected, rel=1e-5)


def batch():
    """Return the examples of a step."""
    rng = np.random.default_rng(4)
    lengths = rng.integers(3, LENGTH + 1, (B, K))
    mask = np.arange(K * LENGTH) < lengths.sum(axis=1, keepdims=True)
    ids = np.where(mask, rng.integers(5, 50, mask.shape), 0)
    values = {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(mask)}
    values |= {"text_lengths": lengths, "text_numbers": NUMBERS}
    tensors = {name: tf.constant(array, tf.int32) for name, array in values.items()}
    return {**tensors, "scores": tf.constant(SCORES[:, None])}


def trained(objective, *, num_steps=2, strategy=None, num_parts=1, learning_rate=1e-3, **model_options):
    """Return the history of some steps and the weights after them."""
    strategy = strategy or tf.distribute.get_strategy()
    task = SentenceEncoderTask(CONFIG, example_schema(LENGTH, K, 50, 2), objective, **model_options)
    keras.utils.set_random_seed(5)
    with strategy.scope():
        model = task.build_model()
    plan = TrainingPlan(
        train_batch_size=B, num_train_steps=2 * num_steps, num_warmup_steps=0, learning_rate=learning_rate,
        gradient_accumulation_steps=num_parts,
    )  # fmt: skip
    batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(batch()).repeat())
    history = TensorFlowSteps(task, model, strategy, plan).take(iter(batches), num_steps)
    return history, [np.asarray(weight) for weight in model.trainable_weights]


@pytest.mark.endurance
def test_the_weight_of_a_regularizer_rises_quadratically():
    objective = Objective("triplet", {"margin": 1.0}, regularizer_weights=(1.0, 0.0))
    history, _ = trained(objective, num_steps=6, learning_rate=0.0, poolings=["splade"])
    found = history["query_regularizer_loss"]
    np.testing.assert_allclose(found / found[-1], [0, 1 / 16, 4 / 16, 9 / 16, 1, 1], rtol=1e-5)


@pytest.mark.endurance
def test_two_devices_with_gradient_accumulation_match_one_device(two_devices):
    """Each example is compared with the whole batch, across devices and accumulated parts."""
    objective = Objective("contrastive", {"temperature": 0.05, "symmetric": True}, vector_sizes=(5,))
    history, weights = trained(objective, layers_after=[None])
    other_history, other_weights = trained(objective, strategy=two_devices, num_parts=2, layers_after=[None])
    np.testing.assert_allclose(other_history["loss"], history["loss"], rtol=1e-5)
    np.testing.assert_allclose(other_history["gradient_norm"], history["gradient_norm"], rtol=1e-4)
    for ours, expected in zip(other_weights, weights, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)
