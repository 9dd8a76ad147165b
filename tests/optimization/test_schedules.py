"""The schedule against numbers worked out by hand."""

import keras
import numpy as np
import pytest

from official_bert.optimization.schedules import SCHEDULES, LinearWarmupThenDecay, create_schedule
from official_bert.support.errors import UserError


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 0.1), (5, 0.5), (9, 0.9), (10, 0.9), (50, 0.5), (99, 0.01), (100, 0.0), (200, 0.0)]
)
def test_warmup_and_decay(step, rate):
    schedule = LinearWarmupThenDecay(1.0, num_train_steps=100, num_warmup_steps=10)
    computed = schedule(keras.ops.convert_to_tensor(step - 1, "int64"))  # as Keras calls it for this step
    assert keras.backend.standardize_dtype(computed.dtype) == "float32"
    np.testing.assert_allclose(computed, rate, atol=1e-6)


@pytest.mark.parametrize(("step", "rate"), [(1, 1.98), (50, 1.0), (100, 0.0)])
def test_decay_without_warmup(step, rate):
    np.testing.assert_allclose(LinearWarmupThenDecay(2.0, num_train_steps=100)(step - 1), rate, atol=1e-6)


def test_a_schedule_is_saved_and_loaded():
    schedule = LinearWarmupThenDecay(0.5, num_train_steps=30, num_warmup_steps=7)
    loaded = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert [float(loaded(step)) for step in range(30)] == [float(schedule(step)) for step in range(30)]
    assert loaded.get_config() == schedule.get_config()


def test_impossible_numbers_are_refused():
    with pytest.raises(ValueError, match="num_train_steps=0"):
        LinearWarmupThenDecay(1.0, num_train_steps=0)
    with pytest.raises(ValueError, match="num_warmup_steps=-1"):
        LinearWarmupThenDecay(1.0, num_train_steps=5, num_warmup_steps=-1)


def test_schedules_are_found_by_name(monkeypatch):
    def cosine(peak, *, num_train_steps, num_warmup_steps):
        return keras.optimizers.schedules.CosineDecay(peak, num_train_steps)

    monkeypatch.setitem(SCHEDULES, "cosine", cosine)
    schedule = create_schedule("cosine", 1.0, num_train_steps=10, num_warmup_steps=0)
    np.testing.assert_allclose(schedule(5), 0.5, atol=1e-6)
    with pytest.raises(UserError, match="schedule='square' is unknown; choose one of cosine, linear_warmup_then_decay"):
        create_schedule("square", 1.0, num_train_steps=10, num_warmup_steps=0)
