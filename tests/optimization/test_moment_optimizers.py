"""Both optimizers, compared with their formulas, in `fit` on one and several devices, saved and loaded."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.optimization.optimizers import AdamWeightDecay, Lamb, slots_by_name
from official_bert.optimization.schedules import LinearWarmupThenDecay
from official_bert.support.errors import UserError
from tests.optimization.variables import variable

# The fused kernel computes 1 - 0.999 in float32, which differs from 0.001 by 1.3e-5.
TOLERANCE = 5e-5


def make_variables():
    return [
        variable([[1.0, -2.0], [0.5, 3.0]], "layer", "dense", name="kernel"),
        variable([1.0, -2.0], "layer", "dense", name="bias"),
        variable([1.0, 4.0], "layer", "LayerNorm", name="gamma"),
    ]


@keras.saving.register_keras_serializable(package="tests")
class Rates(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return keras.ops.take(keras.ops.convert_to_tensor([0.1, 0.01, 0.3]), step)


def small_model():
    keras.utils.set_random_seed(1)
    inputs = keras.Input([3])
    hidden = keras.layers.LayerNormalization(name="LayerNorm")(keras.layers.Dense(4)(inputs))
    return keras.Model(inputs, keras.layers.Dense(1)(hidden))


def small_batches():
    rng = np.random.default_rng(1)
    numbers = rng.normal(size=[24, 3]).astype(np.float32)
    # Large, so that clipping takes effect.
    return numbers, 100 * numbers.sum(axis=1, keepdims=True)


def fitted(model, epochs=1, optimizer=None):
    if optimizer is not None:
        model.compile(optimizer=optimizer, loss="mse", jit_compile=False)
    model.fit(*small_batches(), batch_size=4, epochs=epochs, shuffle=False, verbose=0)
    return model


def assert_same_weights(model, expected, tolerance):
    for ours, theirs in zip(model.trainable_variables, expected.trainable_variables, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=tolerance, err_msg=ours.path)


def adam_update(first, second, step, weights, is_decayed):
    return first / (np.sqrt(second) + 1e-6) + (0.01 * weights if is_decayed else 0)


def corrected_adam_update(first, second, step, weights, is_decayed):
    update = first / (np.sqrt(second) + 1e-6) * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    return update + (0.01 * weights if is_decayed else 0)


def lamb_update(first, second, step, weights, is_decayed):
    update = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-6)
    if not is_decayed:
        return update
    update += 0.01 * weights
    ratio = np.linalg.norm(weights) / np.linalg.norm(update)
    assert abs(ratio - 1) > 0.5
    return ratio * update


@pytest.mark.parametrize("backend", ["tensorflow", "another"])
@pytest.mark.parametrize(
    ("make", "update_of"),
    [
        (AdamWeightDecay, adam_update),
        (lambda rates: AdamWeightDecay(rates, bias_correction=True), corrected_adam_update),
        (Lamb, lamb_update),
    ],
    ids=["adam", "adam with bias correction", "lamb"],
)
def test_updates_follow_the_formula(make, update_of, backend, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)  # only TensorFlow has the fused kernel
    variables = make_variables()
    optimizer = make(Rates())
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
            is_decayed = index == 0  # only the kernel, not bias and LayerNorm
            expected[index] -= rate * update_of(first[index], second[index], step, expected[index], is_decayed)
    assert int(optimizer.iterations) == 3
    slots = slots_by_name(optimizer, variables)
    assert len(slots) == 6
    for index, weights in enumerate(expected):
        path = variables[index].path
        np.testing.assert_allclose(variables[index], weights, rtol=TOLERANCE, err_msg=path)
        for name, moment in zip(optimizer.slot_names, (first, second), strict=True):
            np.testing.assert_allclose(slots[f"{path}/{name}"], moment[index], rtol=TOLERANCE)


def test_weights_or_updates_of_norm_0_take_the_plain_step_of_lamb():
    zeros, still = variable(np.zeros(4), name="zeros"), variable(np.ones(4), name="still")
    optimizer = Lamb(0.1, no_decay=(), weight_decay_rate=0.0)
    optimizer.apply([tf.constant([1.0, -1.0, 2.0, 0.0]), tf.zeros(4)], [zeros, still])
    np.testing.assert_allclose(zeros, [-0.1, 0.1, -0.1, 0.0], rtol=TOLERANCE)
    np.testing.assert_array_equal(still, np.ones(4))


def test_a_word_s_gradient_counts_once_however_often_it_occurs():
    changes = []
    rows = tf.IndexedSlices(tf.constant([[3.0, 0.0], [4.0, 0.0], [1.0, 2.0]]), [1, 1, 0], dense_shape=[2, 2])
    for gradient in (rows, tf.constant([[1.0, 2.0], [7.0, 0.0]])):
        words = variable(np.ones([2, 2]), name="words")
        optimizer = AdamWeightDecay(1.0, no_decay=())
        optimizer.apply([gradient], [words])
        changes.append([np.asarray(values) for values in (words, *optimizer.variables[-2:])])
    for sparse, dense in zip(*changes, strict=True):
        np.testing.assert_array_equal(sparse, dense)
    np.testing.assert_allclose(changes[0][1], 0.1 / np.sqrt(54) * np.array([[1.0, 2.0], [7.0, 0.0]]), rtol=1e-5)


def test_a_pattern_that_matches_nothing_is_an_error():
    trained, frozen = make_variables()[:2], make_variables()[2:]
    with pytest.raises(ValueError, match="no variable path matches 'LayerNorm' of no_decay"):
        AdamWeightDecay().build(trained)
    AdamWeightDecay(no_decay=["bias"]).build(trained)
    optimizer = AdamWeightDecay(frozen=frozen)
    optimizer.build(trained)
    AdamWeightDecay.from_config(optimizer.get_config()).build(trained)  # a saved one does not include frozen variables


def test_keras_s_decay_of_all_variables_is_refused():
    with pytest.raises(ValueError, match="use weight_decay_rate"):
        AdamWeightDecay(weight_decay=0.1)


OPTIONS = {AdamWeightDecay: {"bias_correction": True}, Lamb: {}}


def optimizer_for_fit(optimizer_class, **options):
    schedule = LinearWarmupThenDecay(0.05, num_train_steps=12, num_warmup_steps=3)
    return optimizer_class(schedule, **OPTIONS[optimizer_class], **options)


@pytest.fixture(scope="module", params=[AdamWeightDecay, pytest.param(Lamb, marks=pytest.mark.slow)])
def optimizer_class(request):
    return request.param


@pytest.fixture(scope="module")
def twelve_small_steps(optimizer_class):
    return fitted(small_model(), epochs=2, optimizer=optimizer_for_fit(optimizer_class))


@pytest.mark.endurance
def test_a_saved_model_continues_training_exactly(optimizer_class, twelve_small_steps, tmp_path):
    model = fitted(small_model(), optimizer=optimizer_for_fit(optimizer_class))
    model.save(tmp_path / "half.keras")
    loaded = keras.models.load_model(tmp_path / "half.keras")
    assert isinstance(loaded.optimizer, optimizer_class)
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    assert_same_weights(fitted(loaded), twelve_small_steps, 1e-6)


@pytest.mark.slow
def test_several_devices_clip_the_sum_of_their_gradients(optimizer_class, twelve_small_steps, two_devices):
    with two_devices.scope():
        model = small_model()
        model.compile(optimizer=optimizer_for_fit(optimizer_class), loss="mse")
    assert_same_weights(fitted(model, epochs=2), twelve_small_steps, 1e-5)


@pytest.mark.slow
def test_options_unsupported_on_several_devices_are_refused(two_devices):
    with two_devices.scope():
        model = small_model()
        model.compile(optimizer=optimizer_for_fit(AdamWeightDecay, use_ema=True), loss="mse")
    with pytest.raises(UserError, match="use_ema is not supported"):
        fitted(model)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer_class", [AdamWeightDecay], scope="module")
def test_a_scaled_loss_gives_the_same_steps(optimizer_class, twelve_small_steps):
    # A scale that is a power of two does not change gradients.
    scaled = keras.optimizers.LossScaleOptimizer(optimizer_for_fit(optimizer_class), initial_scale=2.0**10)
    model = fitted(small_model(), epochs=2, optimizer=scaled)
    assert float(scaled.dynamic_scale) == 2.0**10  # no gradient was too large
    assert_same_weights(model, twelve_small_steps, 1e-5)
