"""Steps that save time or memory: without padding, with recomputed layers, XLA, or training a part of the weights."""

import dataclasses
import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader, is_training_state
from official_bert.modeling.encoder_options import PLAIN, UNPADDED, EncoderOptions, LoraSettings
from official_bert.support.errors import UserError
from official_bert.tasks.question_answering.task import QuestionAnsweringTask
from official_bert.training.loop import Trainer
from official_bert.training.task import TrainingPlan
from official_bert.training.tensorflow_step import TensorFlowSteps
from tests.conftest import assert_refused, endurance, prints_error, run_here
from tests.training import task_batches
from tests.training.task_batches import TASKS, batch_of

# Tasks and heads whose graphs together contain everything in the other graphs.
WIDEST = ("classification of windows", "classification by all layers", "tagging by an LSTM", "question answering")


@pytest.fixture
def one_layer(monkeypatch):
    """Let all tasks have one layer."""
    monkeypatch.setattr(task_batches, "CONFIG", dataclasses.replace(task_batches.CONFIG, num_hidden_layers=1))


def make_steps(task, **plan):
    """Return a model of the task with fixed weights, and its training steps."""
    keras.utils.set_random_seed(1)
    model = task.build_model()
    rng = np.random.default_rng(2)
    for variable in model.trainable_variables:
        variable.assign(variable + rng.normal(0, 0.2, variable.shape))
    plan = TrainingPlan(train_batch_size=4, num_train_steps=100, learning_rate=1e-3, **plan)
    return model, TensorFlowSteps(task, model, tf.distribute.get_strategy(), plan)


def gradients(task, batch, **plan):
    """Return the gradients of a step by variable name, its losses, and the steps."""
    model, steps = make_steps(task, **plan)
    computed, sums = tf.function(lambda: steps._gradients(batch, tf.constant(1, tf.int64)), autograph=False)()
    named = zip([variable.path for variable in model.trainable_variables], computed, strict=True)
    return {path: np.asarray(tf.convert_to_tensor(it)) for path, it in named if it is not None}, sums, steps


def with_masked_loss(task):
    """Return the task; question answering ignores padding in its loss, as needed without padding."""
    if isinstance(task, QuestionAnsweringTask):
        task._is_padding_computed = False
    return task


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pretraining", *endurance(*WIDEST)])
def test_padding_left_out_changes_neither_losses_nor_gradients(name, one_layer):
    batch = batch_of(name)
    expected, sums, _ = gradients(with_masked_loss(TASKS[name](PLAIN)), batch)
    found, other_sums, _ = gradients(TASKS[name](UNPADDED), batch)
    np.testing.assert_allclose(other_sums["loss"], sums["loss"], rtol=1e-5)
    assert found.keys() == expected.keys()
    assert_same_gradients(found, expected)
    if name == "question answering":  # padding competes in its loss only where it is computed
        assert gradients(TASKS[name](PLAIN), batch)[1]["loss"] > other_sums["loss"] + 0.01


# A stand-in for a TPU, which compiles everything for fixed shapes: the same compiler on the CPU.
@pytest.mark.endurance
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, EncoderOptions(use_one_hot_embeddings=True)) for name in WIDEST),
        ("pretraining", EncoderOptions(use_one_hot_embeddings=True, recompute_layers=True)),
        ("pretraining", EncoderOptions(dtype="mixed_float16")),
    ],
    ids=[*WIDEST, "recomputed layers", "float16"],
)
def test_xla_compiles_the_step_of_every_task(name, options, one_layer):
    batch = batch_of(name)
    histories, models = [], []
    for use_xla in (False, True):
        model, steps = make_steps(TASKS[name](options), use_xla=use_xla)
        if not name.startswith(("pretraining", "question")):
            model.dropout.rate = 0.0  # XLA draws other random numbers
        histories.append(steps.take(iter(tf.data.Dataset.from_tensors(batch).repeat()), 3))
        models.append(model)
    tolerance = 1e-5 if options.dtype is None else 5e-3
    for column in ("loss", "gradient_norm"):
        np.testing.assert_allclose(histories[1][column], histories[0][column], rtol=10 * tolerance, err_msg=column)
    np.testing.assert_allclose(histories[1]["loss"][0], histories[0]["loss"][0], rtol=tolerance)
    assert histories[0]["loss"][0] != histories[0]["loss"][2]


def test_xla_compiles_for_one_device(two_devices):
    with pytest.raises(UserError, match="use_xla compiles for one device alone"):
        Trainer(TASKS["classification"](PLAIN), two_devices, seed=1, use_xla=True)


def assert_same_gradients(found, expected, scale=1e-5):
    for path, gradient in found.items():
        tolerance = scale * max(np.abs(gradient).max(), 1.0)  # float32
        np.testing.assert_allclose(gradient, expected[path], atol=tolerance, err_msg=path)


@pytest.mark.slow
def test_updates_have_the_same_gradients_when_layers_are_recomputed(one_layer):
    settings, batch = LoraSettings(2, 6.0, ("value", "dense")), batch_of("pretraining")
    plain, _, steps = gradients(TASKS["pretraining"](EncoderOptions(lora=settings)), batch)
    recomputed, _, _ = gradients(TASKS["pretraining"](EncoderOptions(lora=settings, recompute_layers=True)), batch)
    assert sum("/lora_kernel_" in path for path in plain) == 4 * 2  # places and factors
    assert all("/lora_kernel_" in path or path.startswith(("cls/", "bert/pooler/")) for path in plain)
    assert {name.rsplit("/", 1)[0] for name in steps.slots} == set(plain)
    assert list(recomputed) == list(plain)
    assert_same_gradients(recomputed, plain)
    assert np.any(plain["bert/encoder/layer_0/output/dense/lora_kernel_b"])


def test_the_encoder_must_have_that_many_layers():
    with pytest.raises(UserError, match="train_layers=last:3: the model has only 2 layers"):
        make_steps(TASKS["classification"](PLAIN), num_trained_layers=3)


@pytest.fixture
def flags(files_of_model, tmp_path):
    config = json.loads(open(files_of_model["bert_config_file"]).read())
    (tmp_path / "two_layers.json").write_text(json.dumps(config | {"num_hidden_layers": 2}))
    rows = "".join(f"the {word} town\t{number % 2}\n" for number, word in enumerate(["empty", "bright"] * 8))
    (tmp_path / "train.tsv").write_text("sentence\tlabel\n" + rows)
    return {
        **files_of_model, "bert_config_file": str(tmp_path / "two_layers.json"), "task_name": "sst-2",
        "data_dir": str(tmp_path), "output_dir": str(tmp_path / "out"), "do_train": True, "max_seq_length": 16,
        "train_batch_size": 8,
    }  # fmt: skip


def test_mistakes_are_one_message(flags):
    for changes, message in (
        ({"train_layers": "4"}, "--train_layers=4: write last:N, as in last:4"),
        ({"train_layers": "last:0"}, "--train_layers=last:0: write last:N"),
        ({"train_only": "kernel"}, "--train_only=kernel: must be one of bias"),
        ({"train_only": "bias", "init_checkpoint": None}, "--train_only needs --init_checkpoint"),
        ({"train_layers": "last:1", "trainable_encoder": False}, "--train_layers cannot be used with --notrainable"),
    ):
        assert_refused("run_classifier", {**flags, **changes}, message)


@pytest.mark.slow
def test_frozen_weights_stay_and_a_run_resumes_with_no_other_selection(flags, tmp_path):
    flags |= {"train_layers": "last:1", "train_only": "bias", "learning_rate": 1e-2, "lr_schedule": "constant"}
    flags["warmup_proportion"] = 0.0
    run_here("run_classifier", **flags, num_train_epochs=1.0)
    whole, released = (CheckpointReader(path) for path in (f"{tmp_path}/out/model.ckpt-2", flags["init_checkpoint"]))
    encoder = [name for name in whole.shapes if name.startswith("bert/") and not is_training_state(name, whole.shapes)]
    changed = {name for name in encoder if not np.array_equal(whole.read(name), released.read(name))}
    expected = re.compile(r"^bert/(encoder/layer_1|pooler)/.*/(bias|beta)$")
    assert changed == {name for name in encoder if expected.search(name)}
    slots = {name.removesuffix("/adam_m") for name in whole.shapes if name.endswith("/adam_m")}
    assert slots == {*changed, "output_weights", "output_bias"}

    for changes in ({"train_layers": "last:2"}, {"train_only": None}, {"train_layers": None}):
        with prints_error("its checkpoint holds the slots of that optimizer and of the weights trained then"):
            run_here("run_classifier", **{**flags, "num_train_epochs": 2.0, **changes})
