"""The classification task: losses compared with the reference's, scores with plain arithmetic."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.loading import load
from official_bert.config.bert_config import BertConfig
from official_bert.tasks.classification.task import ClassificationTask
from tests.conftest import GOLDEN, golden_arrays


def make_task(model_dir, problem="single_label", num_labels=3, metric_names=("accuracy",)):
    return ClassificationTask(
        BertConfig.from_json_file(str(model_dir / "bert_config.json")),
        problem=problem,
        num_labels=num_labels,
        metric_names=metric_names,
        max_length=40,
        eval_batch_size=4,
    )


def test_losses_and_probabilities_are_those_of_the_reference(model_dir):
    task, golden = make_task(model_dir), golden_arrays("classifier/activations.npz")
    model = task.build_model()
    load(CheckpointReader(str(GOLDEN / "classifier" / "model.ckpt")), model.weights)
    inputs = golden_arrays("pretraining_model/activations.npz")
    batch = {name: inputs[f"in/{name}"] for name in ("input_ids", "input_mask", "segment_ids")}
    batch |= {"label_ids": golden["label_ids"], "is_real_example": np.ones(6, np.int32)}
    outputs = model(batch)
    (loss,) = task.losses(outputs, batch).values()
    np.testing.assert_allclose(loss.total / loss.weight, golden["loss"], rtol=1e-5)
    predictions = {name: np.asarray(values) for name, values in task.predictions(outputs, batch).items()}
    np.testing.assert_allclose(predictions["probabilities"], golden["probabilities"], atol=1e-5)
    np.testing.assert_allclose(predictions["loss"], golden["per_example_loss"], rtol=1e-5)
    scores = task.scores(predictions)
    hits = golden["probabilities"].argmax(axis=1) == golden["label_ids"]
    assert scores["eval_accuracy"] == pytest.approx(hits.mean())
    assert scores["eval_loss"] == pytest.approx(golden["per_example_loss"].mean(), rel=1e-5)
    batch_means = [golden["per_example_loss"][:4].mean(), golden["per_example_loss"][4:].mean()]
    assert scores["loss"] == pytest.approx(np.mean(batch_means), rel=1e-5)


def predictions_of(task, logits, labels):
    batch = {"label_ids": labels, "is_real_example": np.ones(len(labels), np.int32)}
    return {name: np.asarray(value) for name, value in task.predictions(tf.constant(logits), batch).items()}


def test_several_labels_are_judged_one_by_one(model_dir):
    task = make_task(model_dir, "multi_label", metric_names=("micro_f1", "macro_f1"))
    logits = np.array([[2.0, -1.0, 0.5], [-3.0, 0.1, -0.2]], np.float32)
    labels = np.array([[1, 0, 0], [0, 1, 1]], np.int32)
    shares = 1 / (1 + np.exp(-logits))
    predictions = predictions_of(task, logits, labels)
    expected = -np.where(labels == 1, np.log(shares), np.log(1 - shares)).mean(axis=1)
    np.testing.assert_allclose(predictions["loss"], expected, rtol=1e-5)
    np.testing.assert_allclose(predictions["probabilities"], shares, rtol=1e-5)
    # Right: the first of the first, the second of the second; wrong: one too many, one missing.
    assert task.scores(predictions)["eval_micro_f1"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))


def test_a_regression_minimizes_the_squared_error(model_dir):
    task = make_task(model_dir, "regression", num_labels=1, metric_names=("pearson", "spearman"))
    logits, labels = np.array([[1.0], [2.5], [4.0]], np.float32), np.array([1.5, 2.5, 3.0], np.float32)
    predictions = predictions_of(task, logits, labels)
    np.testing.assert_allclose(predictions["loss"], [0.25, 0.0, 1.0])
    scores = task.scores(predictions)
    assert scores["eval_pearson"] == pytest.approx(np.corrcoef(logits[:, 0], labels)[0, 1])
    assert scores["eval_spearman"] == pytest.approx(1.0)
    assert "eval_accuracy" not in scores
