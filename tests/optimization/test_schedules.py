"""The schedule, compared with manually computed numbers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.optimization.schedules import (
    SCHEDULES,
    LinearWarmupThenConstant,
    LinearWarmupThenCosine,
    LinearWarmupThenDecay,
    create_schedule,
)
from official_bert.options.training import TrainingOptions
from official_bert.support.errors import UserError


@pytest.mark.parametrize("num_warmup_steps", [0, 10])
def test_without_an_end_the_rates_are_bit_for_bit_those_of_the_reference(num_warmup_steps):
    schedule = LinearWarmupThenDecay(5e-5, num_train_steps=97, num_warmup_steps=num_warmup_steps)
    for step in range(1, 100):
        rate = 5e-5 * (1.0 - tf.minimum(tf.constant(step, tf.float32), 97.0) / 97)
        if step < num_warmup_steps:
            rate = 5e-5 * tf.constant(step, tf.float32) / num_warmup_steps
        computed = schedule(keras.ops.convert_to_tensor(step - 1, "int64"))  # as Keras calls it for this step
        assert computed.dtype == tf.float32 and float(computed) == float(rate)


STEPS = {"num_train_steps": 100, "num_warmup_steps": 10}


@pytest.mark.parametrize(
    ("schedule", "rate_after"),
    [
        (LinearWarmupThenDecay(1.0, **STEPS, end_learning_rate=0.2), lambda share: 1 - 0.8 * share),
        (LinearWarmupThenCosine(1.0, **STEPS), lambda share: (1 + np.cos(np.pi * share)) / 2),
        (LinearWarmupThenCosine(1.0, **STEPS, end_learning_rate=0.2), lambda share: 0.6 + 0.4 * np.cos(np.pi * share)),
        (LinearWarmupThenConstant(1.0, num_warmup_steps=10), lambda share: 1.0),
    ],
)
def test_rates_rise_follow_their_formula_and_are_saved_and_loaded(schedule, rate_after):
    """The line ends where the reference's polynomial would."""
    loaded = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert loaded.get_config() == schedule.get_config()
    for step in range(1, 130):
        rate = step / 10 if step < 10 else rate_after(min(step, 100) / 100)
        np.testing.assert_allclose(schedule(step - 1), rate, atol=1e-6)
        assert float(loaded(step - 1)) == float(schedule(step - 1))


def test_impossible_numbers_are_refused():
    assert LinearWarmupThenDecay(1.0, num_train_steps=1).num_train_steps == 1
    with pytest.raises(ValueError, match="num_train_steps=0"):
        LinearWarmupThenDecay(1.0, num_train_steps=0)
    with pytest.raises(ValueError, match="num_warmup_steps=-1"):
        LinearWarmupThenDecay(1.0, num_train_steps=5, num_warmup_steps=-1)
    with pytest.raises(ValueError, match="end_learning_rate=2.0: must be from 0 to the peak, 1.0"):
        LinearWarmupThenCosine(1.0, num_train_steps=5, end_learning_rate=2.0)


def test_schedules_are_found_by_name(monkeypatch):
    assert set(TrainingOptions.__dataclass_fields__["lr_schedule"].metadata["choices"]) == set(SCHEDULES)

    def square(learning_rate, *, num_train_steps, num_warmup_steps, end_learning_rate):
        return keras.optimizers.schedules.PolynomialDecay(learning_rate, num_train_steps, end_learning_rate, power=2.0)

    monkeypatch.setitem(SCHEDULES, "square", square)
    numbers = {"num_train_steps": 10, "num_warmup_steps": 0, "end_learning_rate": 0.0}
    middles = {name: float(create_schedule(name, 1.0, **numbers)(4)) for name in SCHEDULES}
    expected = {"linear": 0.5, "cosine": 0.5, "constant": 1.0, "square": 0.36}
    assert {name: middles[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert float(create_schedule("linear", 1.0, **{**numbers, "end_learning_rate": 0.25})(9)) == 0.25
    message = "^lr_schedule='root' is unknown; choose one of constant, cosine, .*linear, square$"
    with pytest.raises(UserError, match=message):
        create_schedule("root", 1.0, **numbers)
