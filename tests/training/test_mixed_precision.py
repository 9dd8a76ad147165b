"""Training steps in bfloat16 and float16: close to the reference's, and dynamic loss scaling."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.checkpoints.loading import load
from official_bert.modeling.encoder_options import EncoderOptions
from official_bert.training.step import INITIAL_SCALE, MIN_SCALE, STEPS_TO_DOUBLE, LossScale, TrainingSteps
from tests.training.trajectory import golden_batches, golden_plan, golden_task, golden_trajectory


@pytest.fixture(scope="module")
def golden():
    return golden_trajectory()


def make_steps(model_dir, golden, dtype, strategy=None, num_parts=1):
    strategy = strategy or tf.distribute.get_strategy()
    task = golden_task(model_dir, encoder_options=EncoderOptions(dtype=dtype))
    with strategy.scope():
        model = task.build_model()
    load(CheckpointReader(str(model_dir / "bert_model.ckpt")), model.trainable_variables)
    plan = golden_plan(golden, gradient_accumulation_steps=num_parts)
    return model, TrainingSteps(task, model, strategy, plan)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "num_parts"), [("mixed_bfloat16", 1), ("mixed_float16", 3)])
def test_steps_stay_near_the_reference(model_dir, golden, dtype, num_parts):
    model, steps = make_steps(model_dir, golden, dtype, num_parts=num_parts)
    history = steps.take(iter(golden_batches(golden)), 5)
    np.testing.assert_allclose(history["loss"], golden["loss"][:5], rtol=5e-3)
    np.testing.assert_allclose(history["gradient_norm"][0], golden["grad_global_norm"][0], rtol=2e-2)
    assert model.compute_dtype == dtype.removeprefix("mixed_")
    assert {variable.dtype for variable in [*model.trainable_variables, *steps.slots.values()]} == {"float32"}
    assert set(steps.loss_scale_state) == (
        {"loss_scale/scale", "loss_scale/good_steps"} if dtype == "mixed_float16" else set()
    )


@pytest.mark.slow
def test_a_step_that_overflows_changes_only_the_scale_and_the_count(model_dir, golden, two_devices):
    model, steps = make_steps(model_dir, {**golden, "num_train_steps": 1000}, "mixed_float16", two_devices)
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
    assert history["gradient_norm"][0] == pytest.approx(golden["grad_global_norm"][0], rel=2e-2)
    for variable, value in zip(model.trainable_variables, before, strict=False):
        assert np.any(np.array(variable) != value) or variable.path.endswith("key/bias"), variable.path


@pytest.mark.slow
def test_a_loss_that_is_not_finite_at_the_smallest_scale_ends_the_call(model_dir, golden):
    model, steps = make_steps(model_dir, golden, "mixed_float16")
    bad = np.array(model.encoder.word_embeddings)
    bad[5] = np.nan  # [MASK], which every batch contains
    model.encoder.word_embeddings.assign(bad)
    steps.loss_scale_state["loss_scale/scale"].assign(4 * MIN_SCALE)
    history = steps.take(iter(golden_batches(golden)), 12)
    assert history["overflow_steps"].tolist() == [1, 1, 0]
    assert np.isnan(history["loss"][-1])


def test_the_scale_doubles_after_many_good_steps():
    loss_scale = LossScale()
    loss_scale.state["loss_scale/good_steps"].assign(STEPS_TO_DOUBLE - 2)
    found = []
    for is_finite in (True, True, True, False, True):
        loss_scale.update(tf.constant(is_finite))
        found.append((loss_scale.scale.numpy() / INITIAL_SCALE, loss_scale.state["loss_scale/good_steps"].numpy()))
    assert found == [(1, STEPS_TO_DOUBLE - 1), (2, 0), (2, 1), (1, 0), (1, 1)]


def test_a_checkpoint_of_one_precision_goes_with_another(model_dir, golden, tmp_path):
    made = {dtype: make_steps(model_dir, golden, dtype) for dtype in ("float32", "mixed_float16")}
    model, steps = made["mixed_float16"]
    steps.loss_scale_state["loss_scale/scale"].assign(64.0)
    weights = {variable.path: variable for variable in model.weights}
    path = CheckpointFolder(str(tmp_path), keep_max=1).save(1, {**weights, **steps.slots, **steps.loss_scale_state})
    other, other_steps = made["float32"]
    for variable in other.trainable_variables:
        variable.assign(keras.ops.zeros_like(variable))
    load(CheckpointReader(path), other.weights, other_steps.slots)
    load(CheckpointReader(path), other_steps.loss_scale_state, required=lambda name: False)
    for variable in other.trainable_variables:
        np.testing.assert_array_equal(variable, weights[variable.path])
    _, third = made["mixed_float16"] = make_steps(model_dir, golden, "mixed_float16")
    load(CheckpointReader(path), third.loss_scale_state, required=lambda name: False)
    assert third.loss_scale_state["loss_scale/scale"].numpy() == 64.0
