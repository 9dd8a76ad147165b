"""Losses of unbalanced classes, compared with plain arithmetic and scikit-learn's rule."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.support.errors import UserError
from official_bert.tasks.classification.task import ClassificationTask, ClassLoss, balanced_weights
from tests.training.task_batches import CONFIG

WEIGHTS = (1.0, 0.25, 4.0)


@pytest.fixture
def examples():
    rng = np.random.default_rng(1)
    return rng.normal(size=[20, 3]), rng.integers(3, size=20)


def plain_loss(logits, labels, weights=(1.0, 1.0, 1.0), label_smoothing=0.0, focal_gamma=0.0):
    """Return the mean over the examples, computed one by one as the papers and PyTorch define it."""
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        probabilities = np.exp(row) / np.exp(row).sum()
        for number, probability in enumerate(probabilities):
            target = label_smoothing / 3 + (1 - label_smoothing) * (number == label)
            total -= target * weights[number] * (1 - probability) ** focal_gamma * np.log(probability)
    return total / sum(weights[label] for label in labels)


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), WEIGHTS])
@pytest.mark.parametrize(
    "options", [{}, {"label_smoothing": 0.2}, {"focal_gamma": 2.0}, {"focal_gamma": 0.5}], ids=repr
)
def test_losses_are_those_of_the_definition(examples, weights, options):
    logits, labels = examples
    losses, sums = ClassLoss(weights, **options)(tf.constant(labels), tf.constant(logits, tf.float32))
    mean = float(tf.reduce_sum(losses) / tf.reduce_sum(sums))
    assert mean == pytest.approx(plain_loss(logits, labels, weights, **options), rel=1e-5)


@pytest.mark.parametrize("focal_gamma", [0.0, 0.5, 2.0])
def test_certain_predictions_have_finite_losses_and_gradients(focal_gamma):
    logits = tf.Variable([[200.0, -200.0], [200.0, -200.0]])
    with tf.GradientTape() as tape:
        losses, _ = ClassLoss(WEIGHTS[:2], 0.0, focal_gamma)(tf.constant([0, 1]), logits)
    gradients = tape.gradient(losses, logits).numpy()
    np.testing.assert_allclose(losses, [0.0, 0.25 * 400], atol=1e-6)
    assert np.isfinite(gradients).all() and abs(gradients[1, 1]) > 0.2


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_a_task_weights_real_examples_in_training_but_not_in_evaluation(examples, weights):
    logits, labels = examples
    options = {"problem": "single_label", "num_labels": 3, "metric_names": (), "max_length": 8, "eval_batch_size": 8}
    task = ClassificationTask(CONFIG, **options, training_loss=weights and ClassLoss(weights))
    is_real = np.arange(20) < 15  # the rest fills the batch
    batch = {"label_ids": tf.constant(labels), "is_real_example": tf.constant(is_real, tf.int32)}
    outputs = tf.constant(logits, tf.float32)
    (loss,) = task.losses(outputs, batch).values()
    expected = plain_loss(logits[:15], labels[:15], weights or (1.0, 1.0, 1.0))
    assert float(loss.total / loss.weight) == pytest.approx(expected, rel=1e-5)
    mean = float(tf.reduce_mean(task.predictions(outputs, batch)["loss"]))
    assert mean == pytest.approx(plain_loss(logits, labels), rel=1e-5)


def test_balanced_weights_give_each_class_the_same_total():
    labels = [0] * 90 + [1] * 10
    weights = balanced_weights(labels, ["bad", "good"])
    assert weights == pytest.approx([100 / 2 / 90, 100 / 2 / 10])  # scikit-learn's compute_class_weight
    assert np.mean([weights[label] for label in labels]) == pytest.approx(1)
    with pytest.raises(UserError, match="no training example has the label 'good'; give the weights"):
        balanced_weights([0, 2], ["bad", "good", "neutral"])
