"""The reference's trajectory: its batches, the plan of its twelve steps, and the task that they train."""

import dataclasses

import numpy as np
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.config.bert_config import BertConfig
from official_bert.tasks.pretraining.task import PretrainingTask
from official_bert.training.task import TrainingPlan
from tests.conftest import golden_arrays

NUM_STEPS = 12
# The gradient of a key bias is zero up to rounding (softmax ignores it), so its slots are noise below this.
NOISE = 1e-9


def golden_trajectory():
    """Return batches, losses, norms, and the values of the schedule: name to array."""
    return golden_arrays("pretraining_model/trajectory.npz")


def golden_task(model_dir, *, dropout=0.0, num_layers=3, **options):
    config = BertConfig.from_json_file(str(model_dir / "bert_config.json"))
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = dataclasses.replace(config, num_hidden_layers=num_layers, **rates)
    return PretrainingTask(config, max_seq_length=40, max_predictions_per_seq=8, eval_batch_size=6, **options)


def golden_plan(golden, **changes):
    steps = {name: int(golden[name]) for name in ("num_train_steps", "num_warmup_steps")}
    return TrainingPlan(train_batch_size=6, learning_rate=float(golden["learning_rate"]), **steps, **changes)


def golden_batches(golden):
    names = sorted({name.split("/")[1] for name in golden if name.startswith("batch")})
    columns = {name: np.stack([golden[f"batch{number:02d}/{name}"] for number in range(NUM_STEPS)]) for name in names}
    columns["next_sentence_labels"] = columns["next_sentence_labels"][:, :, 0]  # as returned by RecordSchema.decode
    columns = {
        name: values.astype(np.float32 if name == "masked_lm_weights" else np.int32) for name, values in columns.items()
    }
    return tf.data.Dataset.from_tensor_slices(columns)


def assert_follows_the_reference(history, found, golden, model_dir):
    """Compare the scalars of twelve steps, and the weights and slots after them, by name."""
    np.testing.assert_allclose(history["loss"], golden["loss"], rtol=1e-4)
    np.testing.assert_allclose(history["gradient_norm"][0], golden["grad_global_norm"][0], rtol=1e-5)
    reference = CheckpointReader(str(model_dir / "trained_model.ckpt-12"))
    assert set(reference.shapes) == {*found, "global_step"}
    for name, array in found.items():
        expected = reference.read(name)
        np.testing.assert_allclose(array, expected, atol=max(1e-3 * np.abs(expected).max(), NOISE), err_msg=name)
