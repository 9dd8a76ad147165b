"""The losses of distillation, compared with plain sums, and their use in a distilled task."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder_options import PLAIN
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.tasks.pretraining.task import LayeredModel
from official_bert.training.task import TEACHER_LOGITS, DistilledTask, soft_binary_cross_entropy, soft_cross_entropy
from tests.training.task_batches import TASKS, batch_of

DISTILLED = ("classification", "multiple choice", "tagging", "question answering")


def distribution(logits):
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def divergence(student, teacher, temperature):
    p, q = distribution(teacher / temperature), distribution(student / temperature)
    return temperature**2 * sum(a * np.log(a / b) for a, b in zip(p, q, strict=True))


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_soft_targets_are_a_divergence_times_the_squared_temperature(temperature):
    rng = np.random.default_rng(1)
    student, teacher = rng.normal(size=(2, 4, 3)).astype(np.float32)
    expected = [divergence(*pair, temperature) for pair in zip(student, teacher, strict=True)]
    assert soft_cross_entropy(student, teacher, temperature).numpy() == pytest.approx(expected, rel=1e-4)
    turned = soft_cross_entropy(student.T, teacher.T, temperature, axis=0)
    assert turned.numpy() == pytest.approx(expected, rel=1e-4)
    of_labels = [
        np.mean([divergence(np.array([s, 0]), np.array([t, 0]), temperature) for s, t in zip(*pair, strict=True)])
        for pair in zip(student, teacher, strict=True)
    ]
    assert soft_binary_cross_entropy(student, teacher, temperature).numpy() == pytest.approx(of_labels, rel=1e-4)


def outputs_of(task, batch):
    outputs = task.build_model()(batch, training=False)
    return outputs, task.logits(outputs).numpy()


@pytest.mark.parametrize("name", DISTILLED)
def test_a_student_learns_from_what_its_teacher_says_otherwise_at_real_positions(name):
    task, batch = TASKS[name](PLAIN), batch_of(name)
    outputs, logits = outputs_of(task, batch)
    assert logits.shape[1:] == task.teacher_field.shape
    same = task.soft_target_loss(outputs, logits, batch, 2.0)
    assert float(same.total) == pytest.approx(0, abs=1e-5)
    other = logits + np.random.default_rng(1).normal(size=logits.shape).astype(np.float32)
    different = task.soft_target_loss(outputs, other, batch, 2.0)
    assert float(different.total) > 0
    assert float(different.weight) == float(task.losses(outputs, batch).popitem()[1].weight)
    if name in ("tagging", "question answering"):
        changed = np.where(batch["input_mask"].numpy()[..., None] == 1, other, 77)
        assert not np.array_equal(changed, other)
        again = task.soft_target_loss(outputs, changed, batch, 2.0)
        assert float(again.total) == pytest.approx(float(different.total), abs=1e-6)


def test_labels_and_teacher_share_the_loss():
    task, batch = TASKS["classification"](PLAIN), batch_of("classification")
    outputs, logits = outputs_of(task, batch)
    batch = {**batch, TEACHER_LOGITS: logits[::-1] * 3}
    parts = {
        weight: DistilledTask(task, soft_target_weight=weight, temperature=2.0).losses(outputs, batch)
        for weight in (0.0, 0.25, 1.0)
    }
    label, soft = parts[0.0]["classification"].total, parts[1.0]["soft_target"].total
    assert float(label) > 0 < float(soft)
    assert float(parts[0.0]["soft_target"].total) == float(parts[1.0]["classification"].total) == 0
    assert float(parts[0.25]["classification"].total) == pytest.approx(0.75 * float(label))
    assert float(parts[0.25]["soft_target"].total) == pytest.approx(0.25 * float(soft))


def test_numbers_are_learned_by_their_squared_distance():
    config = BertConfig(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
    task = ClassificationTask(
        config, problem="regression", num_labels=1, metric_names=(), max_length=4, eval_batch_size=2
    )
    batch = {"is_real_example": tf.constant([1, 1, 0])}
    loss = task.soft_target_loss(tf.constant([[1.0], [2.0], [9.0]]), tf.constant([[3.0], [2.5], [0.0]]), batch, 2.0)
    assert (float(loss.total), float(loss.weight)) == (4.25, 2.0)


def test_a_model_that_shows_its_last_layer_computes_the_same():
    model, batch = TASKS["pretraining"](PLAIN).build_model(), batch_of("pretraining")
    inputs = {name: batch[name] for name in model.INPUTS}
    shown = LayeredModel(model)(inputs)
    tf.nest.map_structure(
        lambda one, other: np.testing.assert_allclose(one, other, atol=1e-5), model(inputs), shown.outputs
    )
    encoded = model.encoder(*(batch[name] for name in model.encoder.INPUTS))
    np.testing.assert_allclose(shown.layer, encoded["encoder_layers"][-1], atol=1e-5)
