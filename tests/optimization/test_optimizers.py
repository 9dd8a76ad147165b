"""Optimizers by name: a new one needs a class and a row, and trains, saves and resumes like the reference's."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import is_training_state
from official_bert.optimization.optimizers import OPTIMIZERS, AdamWeightDecay, create_optimizer, slots_by_name
from official_bert.optimization.schedules import LinearWarmupThenDecay
from official_bert.options.training import TrainingOptions
from official_bert.support.errors import UserError
from official_bert.training.loop import Trainer
from official_bert.training.task import TrainingPlan
from tests.record_files import arrays_of
from tests.training.sum_task import PLAN, SumTask, batches

NUM_STEPS = 6


class Momentum(keras.optimizers.Optimizer):
    """Gradient descent with momentum."""

    def __init__(self, learning_rate, *, momentum=0.9, **options):
        super().__init__(learning_rate, **options)
        self.momentum = momentum

    def build(self, variables):
        super().build(variables)
        self.velocities = self.add_optimizer_variables(variables, "velocity")

    def update_step(self, gradient, variable, learning_rate):
        velocity = self.velocities[self._get_variable_index(variable)]
        self.assign(velocity, self.momentum * velocity + gradient)
        self.assign_sub(variable, learning_rate * velocity)


@pytest.fixture
def momentum_row(monkeypatch):
    monkeypatch.setitem(OPTIMIZERS, "momentum", Momentum)


def train(folder, *, strategy=None, learning_rate=0.1, **changes):
    """Train six steps with a checkpoint after each; return the trainable variables' paths."""
    plan = TrainingPlan(
        train_batch_size=PLAN.train_batch_size,
        num_train_steps=NUM_STEPS,
        learning_rate=learning_rate,
        save_checkpoints_steps=1,
        keep_checkpoint_max=0,
        **changes,
    )
    keras.backend.clear_session()  # numbering of names restarts, as in a new process
    trainer = Trainer(SumTask(), strategy or tf.distribute.get_strategy(), seed=1)
    assert trainer.train(plan, batches, output_dir=str(folder), init_checkpoint=None)
    return [variable.path for variable in trainer.model.trainable_variables]


def arrays(folder, step):
    return arrays_of(folder / f"model.ckpt-{step}")


@pytest.mark.endurance
def test_another_optimizer_trains_is_saved_and_resumes(tmp_path, momentum_row):
    options = {"optimizer": "momentum", "optimizer_options": {"momentum": 0.5, "global_clipnorm": 0.1}}
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    paths = train(whole, **options)
    end = arrays(whole, NUM_STEPS)
    assert set(end) == {*paths, *(f"{path}/velocity" for path in paths), "global_step"}
    assert end["global_step"] == NUM_STEPS
    assert {name for name in end if is_training_state(name, end)} == set(end) - set(paths)

    for step in range(1, NUM_STEPS + 1):
        before, after = arrays(whole, step - 1), arrays(whole, step)
        rate = 0.1 * (1 - step / NUM_STEPS)
        gradients = [after[f"{path}/velocity"] - 0.5 * before[f"{path}/velocity"] for path in paths]
        np.testing.assert_allclose(np.sqrt(sum(np.sum(gradient**2) for gradient in gradients)), 0.1, rtol=1e-4)
        for path in paths:
            moved = after[path] - before[path]
            np.testing.assert_allclose(moved, -rate * after[f"{path}/velocity"], atol=1e-6, err_msg=path)

    resumed.mkdir()
    for file in whole.glob("model.ckpt-3.*"):
        (resumed / file.name).write_bytes(file.read_bytes())
    (resumed / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    train(resumed, **options)
    assert not (resumed / "model.ckpt-2.index").exists()
    for name, values in arrays(resumed, NUM_STEPS).items():
        np.testing.assert_array_equal(values, end[name], err_msg=name)


@pytest.mark.slow
def test_another_optimizer_s_checkpoint_is_not_resumed_from(tmp_path, momentum_row):
    train(tmp_path, optimizer="momentum")
    with pytest.raises(UserError, match="lacks .*adam_m.*: it was trained with another optimizer; use that optimizer"):
        train(tmp_path)


@pytest.mark.endurance
@pytest.mark.parametrize("name", ["momentum", "lamb"])
def test_another_optimizer_takes_the_same_steps_on_two_devices(name, tmp_path, momentum_row, two_devices):
    options = {"optimizer": name, "optimizer_options": {"global_clipnorm": 0.5}}
    train(tmp_path / "one", **options)
    train(tmp_path / "two", strategy=two_devices, **options)
    expected = arrays(tmp_path / "one", NUM_STEPS)
    for name, values in arrays(tmp_path / "two", NUM_STEPS).items():
        np.testing.assert_allclose(values, expected[name], atol=1e-6, err_msg=name)


def test_invalid_names_and_options_are_refused(momentum_row):
    assert {*TrainingOptions.__dataclass_fields__["optimizer"].metadata["choices"], "momentum"} == set(OPTIMIZERS)
    model = SumTask().build_model()
    with pytest.raises(UserError, match="optimizer='lion' is unknown; choose one of adam, lamb, momentum"):
        create_optimizer("lion", 0.1, model, {})
    with pytest.raises(UserError, match=r"'momentum' with optimizer_options=\{'bias_correction': True\}: Argument"):
        create_optimizer("momentum", 0.1, model, {"bias_correction": True})
    with pytest.raises(UserError, match="Momentum: clipnorm, use_ema is not supported in the training loop"):
        create_optimizer("momentum", 0.1, model, {"clipnorm": 1.0, "use_ema": True})


def test_slots_are_named_for_their_variables_even_where_names_begin_alike():
    with keras.name_scope("a"):
        variables = [keras.Variable([1.0], name="kernel"), keras.Variable([1.0], name="kernel_1")]
    optimizer = AdamWeightDecay(LinearWarmupThenDecay(0.1, num_train_steps=5), no_decay=())
    optimizer.build(variables)
    names = [f"{path}/{slot}" for path in ("a/kernel", "a/kernel_1") for slot in ("adam_m", "adam_v")]
    slots = slots_by_name(optimizer, variables)
    assert list(slots) == names
    assert len({id(slot) for slot in slots.values()}) == 4
