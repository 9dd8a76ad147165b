"""The compiled step compared with the reference's trajectory, in float32 and in mixed precision."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.checkpoints.loading import load
from official_bert.modeling.encoder_options import EncoderOptions
from official_bert.training.step import INITIAL_SCALE, MIN_SCALE, STEPS_TO_DOUBLE, LossScale
from official_bert.training.tensorflow_step import TensorFlowSteps
from tests.training import trajectory
from tests.training.trajectory import NUM_STEPS, assert_follows_the_reference, golden_batches, golden_plan, golden_task


@pytest.fixture(scope="module")
def golden():
    return trajectory.golden_trajectory()


def make_steps(model_dir, golden, *, dtype=None, strategy=None, dropout=0.0, num_parts=1, num_layers=3, **plan):
    strategy = strategy or tf.distribute.get_strategy()
    task = golden_task(model_dir, dropout=dropout, num_layers=num_layers, encoder_options=EncoderOptions(dtype=dtype))
    with strategy.scope():
        model = task.build_model()
    load(CheckpointReader(str(model_dir / "bert_model.ckpt")), model.trainable_variables)
    plan = golden_plan(golden, **{"random_seed": 1, "gradient_accumulation_steps": num_parts, **plan})
    return model, TensorFlowSteps(task, model, strategy, plan)


def test_twelve_steps_follow_the_reference(model_dir, golden):
    model, steps = make_steps(model_dir, golden)
    iterator = iter(golden_batches(golden))
    # Five steps in one compiled call, then seven: how steps are grouped must not matter.
    first, second = [steps.take(iterator, count) for count in (5, 7)]
    history = {name: np.concatenate([first[name], second[name]]) for name in first}
    assert steps.step.numpy() == NUM_STEPS
    found = {**{variable.path: variable for variable in model.trainable_variables}, **steps.slots}
    assert_follows_the_reference(history, found, golden, model_dir)
    np.testing.assert_allclose(history["loss"], history["masked_lm_loss"] + history["next_sentence_loss"], rtol=1e-6)
    np.testing.assert_allclose(history["next_sentence_loss"], golden["next_sentence_loss"], rtol=1e-3)
    masks = [golden[f"batch{n:02d}/input_mask"] for n in range(NUM_STEPS)]
    assert history["tokens"].tolist() == [mask.sum() for mask in masks]
    assert history["positions"].tolist() == [mask.size for mask in masks]
    expected_rates = [0.25e-3, 0.5e-3, 0.75e-3, *(1e-3 * (1 - n / 12) for n in range(4, 13))]
    np.testing.assert_allclose(history["learning_rate"], expected_rates, atol=1e-9)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_the_call_once_the_scale_is_the_smallest(model_dir, golden):
    model, steps = make_steps(model_dir, golden, dtype="mixed_float16", num_layers=1)
    bad = np.array(model.encoder.word_embeddings)
    bad[5] = np.nan  # [MASK], which every batch contains
    model.encoder.word_embeddings.assign(bad)
    for scale in steps.loss_scale_state.values():
        scale.assign(4 * MIN_SCALE if scale.dtype == tf.float32 else 0)
    history = steps.take(iter(golden_batches(golden)), 12)
    assert history["overflow_steps"].tolist() == [1, 1, 0]
    assert np.isnan(history["loss"][-1]) and steps.step.numpy() == 3


def seeds(steps, part):
    """Return the dropout seeds of all layers in a part of a step."""
    pairs = steps._dropout_seeds(tf.constant(part, tf.int64))
    return [tuple(value.numpy().tolist()) for _, value in pairs]


def test_every_layer_and_every_part_of_a_step_drops_out_by_itself(model_dir, golden):
    _, steps = make_steps(model_dir, golden, dropout=0.1, num_layers=2)
    drawn = [seed for part in range(10) for seed in seeds(steps, part)]
    assert len(drawn) == 5 * 2 * (1 + 2 * 3)  # the embeddings' dropout, and three in each layer
    assert len(set(drawn)) == len(drawn)
    assert seeds(steps, 3) == seeds(steps, 3)
    _, other = make_steps(model_dir, golden, dropout=0.1, num_layers=2, random_seed=2)
    assert not set(seeds(other, 1)) & set(seeds(steps, 1))


@pytest.mark.endurance
@pytest.mark.parametrize(("dtype", "num_parts"), [("mixed_bfloat16", 1), ("mixed_float16", 3)])
def test_steps_stay_near_the_reference(model_dir, golden, dtype, num_parts):
    model, steps = make_steps(model_dir, golden, dtype=dtype, num_parts=num_parts)
    history = steps.take(iter(golden_batches(golden)), 5)
    np.testing.assert_allclose(history["loss"], golden["loss"][:5], rtol=5e-3)
    np.testing.assert_allclose(history["gradient_norm"][0], golden["grad_global_norm"][0], rtol=2e-2)
    assert model.compute_dtype == dtype.removeprefix("mixed_")
    assert {variable.dtype for variable in [*model.trainable_variables, *steps.slots.values()]} == {"float32"}
    of_scale = {"loss_scale/scale", "loss_scale/good_steps"}
    assert set(steps.loss_scale_state) == (of_scale if dtype == "mixed_float16" else set())


@pytest.mark.endurance
def test_a_step_that_overflows_changes_only_the_scale_and_the_count(model_dir, golden, two_devices):
    golden = {**golden, "num_train_steps": 1000}
    model, steps = make_steps(model_dir, golden, dtype="mixed_float16", strategy=two_devices, num_layers=1)
    scale = steps.loss_scale_state["loss_scale/scale"]
    too_large = 2.0**30
    scale.assign(too_large)
    variables = [*model.trainable_variables, *steps.slots.values()]
    before = [np.array(variable) for variable in variables]
    iterator = iter(two_devices.experimental_distribute_dataset(golden_batches(golden).take(1).repeat()))
    history = steps.take(iterator, 2)
    assert history["overflow_steps"].tolist() == [1, 1]
    assert history["loss_scale"].tolist() == [too_large, too_large / 2]
    assert scale.numpy() == too_large / 4
    assert steps.step.numpy() == 2  # their batches are consumed
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    while scale.numpy() > INITIAL_SCALE:
        history = steps.take(iterator, 1)
        if not history["overflow_steps"][0]:
            break
    assert not history["overflow_steps"][0]
    for variable, value in zip(model.trainable_variables, before, strict=False):
        assert np.any(np.array(variable) != value) or variable.path.endswith("key/bias"), variable.path


def test_the_scale_doubles_after_many_good_steps():
    loss_scale = LossScale()
    loss_scale.state["loss_scale/good_steps"].assign(STEPS_TO_DOUBLE - 2)
    found = []
    for is_finite in (True, True, True, False, True):
        loss_scale.update(tf.constant(is_finite))
        found.append((loss_scale.scale.numpy() / INITIAL_SCALE, loss_scale.state["loss_scale/good_steps"].numpy()))
    assert found == [(1, STEPS_TO_DOUBLE - 1), (2, 0), (2, 1), (1, 0), (1, 1)]


@pytest.mark.slow
def test_a_checkpoint_of_one_precision_goes_with_another(model_dir, golden, tmp_path):
    model, steps = make_steps(model_dir, golden, dtype="mixed_float16", num_layers=1)
    steps.loss_scale_state["loss_scale/scale"].assign(64.0)
    weights = {variable.path: variable for variable in model.weights}
    path = CheckpointFolder(str(tmp_path), keep_max=1).save(1, {**weights, **steps.slots, **steps.loss_scale_state})
    other, other_steps = make_steps(model_dir, golden, num_layers=1)
    for variable in other.trainable_variables:
        variable.assign(keras.ops.zeros_like(variable))
    load(CheckpointReader(path), other.weights, other_steps.slots)
    load(CheckpointReader(path), other_steps.loss_scale_state, required=lambda name: False)
    for variable in other.trainable_variables:
        np.testing.assert_array_equal(variable, weights[variable.path])
    _, third = make_steps(model_dir, golden, dtype="mixed_float16", num_layers=1)
    load(CheckpointReader(path), third.loss_scale_state, required=lambda name: False)
    assert third.loss_scale_state["loss_scale/scale"].numpy() == 64.0
