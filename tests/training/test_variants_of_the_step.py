"""Options that save time or memory do not change results: no padding, recomputed layers, XLA."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.modeling.encoder_options import PLAIN, UNPADDED, EncoderOptions
from official_bert.support.errors import UserError
from official_bert.tasks.question_answering.task import QuestionAnsweringTask
from official_bert.training.loop import Trainer
from official_bert.training.step import TrainingSteps
from official_bert.training.task import TrainingPlan
from tests.training.task_batches import TASKS, batch_of

# Tasks and heads whose graphs together contain everything in the other graphs.
WIDEST = ("classification of windows", "classification by all layers", "tagging by an LSTM", "question answering")


def make_steps(task, **plan):
    """Return a model of the task with fixed weights, and its training steps."""
    keras.utils.set_random_seed(1)
    model = task.build_model()
    rng = np.random.default_rng(2)
    for variable in model.trainable_variables:
        variable.assign(variable + rng.normal(0, 0.2, variable.shape))
    plan = TrainingPlan(train_batch_size=4, num_train_steps=100, learning_rate=1e-3, **plan)
    return model, TrainingSteps(task, model, tf.distribute.get_strategy(), plan)


def gradients(task, batch):
    """Return the gradients of a step by variable name, and its losses."""
    model, steps = make_steps(task)
    computed, sums = tf.function(lambda: steps._gradients(batch, tf.constant(1, tf.int64)), autograph=False)()
    named = zip([variable.path for variable in model.trainable_variables], computed, strict=True)
    return {path: np.asarray(tf.convert_to_tensor(value)) for path, value in named if value is not None}, sums


def with_masked_loss(task):
    """Return the task; question answering ignores padding in its loss, as needed without padding."""
    if isinstance(task, QuestionAnsweringTask):
        task._is_padding_computed = False
    return task


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pretraining", *WIDEST])
def test_padding_left_out_changes_neither_losses_nor_gradients(name):
    batch = batch_of(name)
    expected, sums = gradients(with_masked_loss(TASKS[name](PLAIN)), batch)
    found, other_sums = gradients(TASKS[name](UNPADDED), batch)
    np.testing.assert_allclose(other_sums["loss"], sums["loss"], rtol=1e-5)
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        tolerance = 1e-5 * max(np.abs(value).max(), 1.0)
        np.testing.assert_allclose(found[path], value, atol=tolerance, err_msg=path)


@pytest.mark.slow
def test_padding_competes_in_the_loss_of_question_answering_only_where_it_is_computed():
    batch = batch_of("question answering")
    losses = [gradients(TASKS["question answering"](options), batch)[1]["loss"] for options in (PLAIN, UNPADDED)]
    assert losses[0] > losses[1] + 0.01


# One head for each way of using the layers.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [("classification", PLAIN), ("classification by all layers", UNPADDED), ("pretraining", UNPADDED)],
)
def test_recomputed_layers_change_neither_losses_nor_gradients(name, options):
    recomputing = EncoderOptions(layout=options.layout, recompute_layers=True)
    batch = batch_of(name)
    (expected, sums), (found, other_sums) = (gradients(TASKS[name](each), batch) for each in (options, recomputing))
    np.testing.assert_allclose(other_sums["loss"], sums["loss"], rtol=1e-6)
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_allclose(found[path], value, atol=1e-6 * max(np.abs(value).max(), 1.0), err_msg=path)


@pytest.mark.slow
@pytest.mark.endurance
def test_recomputed_layers_and_parts_of_a_batch_go_together(two_devices):
    batch = batch_of("pretraining")
    trajectories = []
    for recompute_layers in (False, True):
        keras.utils.set_random_seed(1)
        task = TASKS["pretraining"](EncoderOptions(recompute_layers=recompute_layers))
        with two_devices.scope():
            model = task.build_model()
        plan = TrainingPlan(train_batch_size=4, num_train_steps=100, learning_rate=1e-2, gradient_accumulation_steps=2)
        steps = TrainingSteps(task, model, two_devices, plan)
        dataset = tf.data.Dataset.from_tensor_slices(batch).batch(4).repeat()
        trajectories.append(steps.take(iter(two_devices.experimental_distribute_dataset(dataset)), 3)["loss"])
    np.testing.assert_allclose(*trajectories, rtol=1e-5)
    assert trajectories[0][2] < trajectories[0][0]


# A stand-in for a TPU, which compiles everything for fixed shapes: the same compiler on the CPU.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(
            pytest.param(name, EncoderOptions(use_one_hot_embeddings=True), id=name, marks=pytest.mark.endurance)
            for name in WIDEST
        ),
        pytest.param(
            "pretraining", EncoderOptions(use_one_hot_embeddings=True, recompute_layers=True), id="recomputed layers"
        ),
        pytest.param("pretraining", EncoderOptions(dtype="mixed_float16"), id="float16", marks=pytest.mark.endurance),
    ],
)
def test_xla_compiles_the_step_of_every_task(name, options):
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
    task = TASKS["classification"](PLAIN)
    with pytest.raises(UserError, match="use_xla compiles for one device alone"):
        Trainer(task, two_devices, seed=1, use_xla=True)
