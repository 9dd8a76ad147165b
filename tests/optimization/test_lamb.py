"""LAMB, compared with its formula, in Keras's `fit`, and on several devices and backends."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.optimization.optimizers import Lamb, slots_by_name
from official_bert.optimization.schedules import LinearWarmupThenDecay
from tests.optimization.small_models import (
    TOLERANCE,
    Rates,
    assert_close,
    assert_same_weights,
    fitted,
    fitted_with_jax,
    make_variables,
    small_model,
    variable,
)


@pytest.mark.parametrize("backend", ["tensorflow", "another"])
def test_updates_follow_the_paper_s_algorithm(backend, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    variables = make_variables()
    optimizer = Lamb(Rates())
    rng = np.random.default_rng(1)
    expected = [np.asarray(v).astype(np.float64) for v in variables]
    first = [np.zeros_like(w) for w in expected]
    second = [np.zeros_like(w) for w in expected]
    for step, rate in enumerate((0.1, 0.01, 0.3), start=1):
        gradients = [3 * rng.normal(size=w.shape).astype(np.float32) for w in expected]
        optimizer.apply([tf.constant(gradient) for gradient in gradients], variables)
        norm = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients))
        assert norm > 2  # so that clipping takes effect
        for index, gradient in enumerate(gradients):
            first[index] = 0.9 * first[index] + 0.1 * gradient / norm
            second[index] = 0.999 * second[index] + 0.001 * (gradient / norm) ** 2
            update = first[index] / (1 - 0.9**step) / (np.sqrt(second[index] / (1 - 0.999**step)) + 1e-6)
            ratio = 1
            if index == 0:  # only the kernel decays and is scaled, not bias and LayerNorm
                update += 0.01 * expected[index]
                ratio = np.linalg.norm(expected[index]) / np.linalg.norm(update)
                assert abs(ratio - 1) > 0.5
            expected[index] -= rate * ratio * update
    slots = slots_by_name(optimizer, variables)
    assert len(slots) == 6
    for index, weights in enumerate(expected):
        path = variables[index].path
        np.testing.assert_allclose(variables[index], weights, rtol=TOLERANCE, err_msg=path)
        np.testing.assert_allclose(slots[f"{path}/lamb_m"], first[index], rtol=TOLERANCE)
        np.testing.assert_allclose(slots[f"{path}/lamb_v"], second[index], rtol=TOLERANCE)


def test_weights_or_updates_of_norm_0_take_the_plain_step():
    zeros, still = variable(np.zeros(4), name="zeros"), variable(np.ones(4), name="still")
    optimizer = Lamb(0.1, no_decay=(), weight_decay_rate=0.0)
    optimizer.apply([tf.constant([1.0, -1.0, 2.0, 0.0]), tf.zeros(4)], [zeros, still])
    np.testing.assert_allclose(zeros, [-0.1, 0.1, -0.1, 0.0], rtol=TOLERANCE)
    np.testing.assert_array_equal(still, np.ones(4))


def optimizer_for_fit(**options):
    return Lamb(LinearWarmupThenDecay(0.05, num_train_steps=12, num_warmup_steps=3), **options)


@pytest.fixture(scope="module")
def twelve_small_steps():
    return fitted(small_model(), epochs=2, optimizer=optimizer_for_fit())


@pytest.mark.slow
def test_several_devices_take_the_same_steps(twelve_small_steps, two_devices):
    with two_devices.scope():
        model = small_model()
        model.compile(optimizer=optimizer_for_fit(), loss="mse")
    assert_same_weights(fitted(model, epochs=2), twelve_small_steps, 1e-5)


@pytest.mark.slow
def test_a_saved_model_continues_training_exactly(twelve_small_steps, tmp_path):
    model = fitted(small_model(), optimizer=optimizer_for_fit())
    model.save(tmp_path / "half.keras")
    loaded = keras.models.load_model(tmp_path / "half.keras")
    assert isinstance(loaded.optimizer, Lamb)
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    assert_same_weights(fitted(loaded), twelve_small_steps, 1e-6)


@pytest.mark.slow
@pytest.mark.endurance
def test_jax_takes_the_same_steps(twelve_small_steps, tmp_path):
    assert_close(fitted_with_jax(tmp_path, "Lamb"), twelve_small_steps.get_weights(), 1e-4)
