"""Optimizers by name: a new one needs a class and a row, and trains, saves and resumes like the reference's."""

import itertools

import keras
import numpy as np
import pytest

from official_bert.checkpoints.bundle import is_training_state
from official_bert.optimization.optimizers import OPTIMIZERS, AdamWeightDecay, create_optimizer, slots_by_name
from official_bert.optimization.schedules import LinearWarmupThenDecay
from official_bert.options.training import TrainingOptions
from official_bert.support.errors import UserError
from tests.record_files import arrays_of
from tests.training.sum_runs import SumTask, begun, new_trainer, saved_steps, train

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


def train_six(folder, **changes):
    """Train six steps with a checkpoint after each."""
    settings = {"num_train_steps": NUM_STEPS, "num_warmup_steps": 0, "learning_rate": 0.1, "save_checkpoints_steps": 1}
    assert train(folder, **settings, **changes)


@pytest.mark.endurance
def test_another_optimizer_trains_is_saved_and_resumes(tmp_path, momentum_row):
    options = {"optimizer": "momentum", "optimizer_options": {"momentum": 0.5, "global_clipnorm": 0.1}}
    whole = tmp_path / "whole"
    train_six(whole, **options)
    states = [arrays_of(whole / f"model.ckpt-{step}") for step in range(NUM_STEPS + 1)]
    end = states[-1]
    paths = [variable.path for variable in new_trainer().model.trainable_variables]
    assert set(end) == {*paths, *(f"{path}/velocity" for path in paths), "global_step"}
    assert end["global_step"] == NUM_STEPS
    assert {name for name in end if is_training_state(name, end)} == set(end) - set(paths)

    for step, (before, after) in enumerate(itertools.pairwise(states), 1):
        rate = 0.1 * (1 - step / NUM_STEPS)
        gradients = [after[f"{path}/velocity"] - 0.5 * before[f"{path}/velocity"] for path in paths]
        np.testing.assert_allclose(np.sqrt(sum(np.sum(gradient**2) for gradient in gradients)), 0.1, rtol=1e-4)
        for path in paths:
            moved = after[path] - before[path]
            np.testing.assert_allclose(moved, -rate * after[f"{path}/velocity"], atol=1e-6, err_msg=path)

    resumed = begun(whole, 3)
    train_six(resumed, **options)
    assert saved_steps(resumed) == [3, 4, 5, 6]
    for name, values in arrays_of(resumed / f"model.ckpt-{NUM_STEPS}").items():
        np.testing.assert_array_equal(values, end[name], err_msg=name)


@pytest.mark.slow
def test_another_optimizer_s_checkpoint_is_not_resumed_from(tmp_path, momentum_row):
    train_six(tmp_path, optimizer="momentum")
    with pytest.raises(UserError, match="lacks .*adam_m.*: it was trained with another optimizer; use that optimizer"):
        train_six(tmp_path)


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
