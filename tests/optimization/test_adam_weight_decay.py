"""The optimizer against its formula, and the schedule against numbers worked out by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.optimization.adam_weight_decay import AdamWeightDecay
from official_bert.optimization.schedules import linear_warmup_then_decay


def variable(values, *scopes, name):
    if scopes:
        with keras.name_scope(scopes[0]):
            return variable(values, *scopes[1:], name=name)
    return keras.Variable(np.array(values, np.float32), name=name)


def make_variables():
    return [
        variable([[1.0, -2.0], [0.5, 3.0]], "layer", "dense", name="kernel"),
        variable([1.0, -2.0], "layer", "dense", name="bias"),
        variable([1.0, 4.0], "layer", "LayerNorm", name="gamma"),
    ]


# The fused kernel takes 1 - 0.999 in float32, which is 1.3e-5 off 0.001.
TOLERANCE = 5e-5


@pytest.mark.parametrize("bias_correction", [False, True])
def test_updates_follow_the_formula(bias_correction):
    variables = make_variables()
    optimizer = AdamWeightDecay(variables, bias_correction=bias_correction)
    rng = np.random.default_rng(1)
    expected = [np.asarray(v).astype(np.float64) for v in variables]
    first = [np.zeros_like(w) for w in expected]
    second = [np.zeros_like(w) for w in expected]
    for step, rate in enumerate((0.1, 0.01, 0.3), start=1):
        gradients = [rng.normal(size=w.shape).astype(np.float32) for w in expected]
        optimizer.apply(variables, [tf.constant(g) for g in gradients], tf.constant(rate), tf.constant(step))
        for index, gradient in enumerate(gradients):
            first[index] = 0.9 * first[index] + 0.1 * gradient
            second[index] = 0.999 * second[index] + 0.001 * gradient**2
            update = first[index] / (np.sqrt(second[index]) + 1e-6)
            if bias_correction:
                update *= np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            if index == 0:  # the kernel alone decays
                update += 0.01 * expected[index]
            expected[index] -= rate * update
    for index, weights in enumerate(expected):
        np.testing.assert_allclose(variables[index], weights, rtol=TOLERANCE, err_msg=variables[index].path)
        path = variables[index].path
        np.testing.assert_allclose(optimizer.slots[f"{path}/adam_m"], first[index], rtol=TOLERANCE)
        np.testing.assert_allclose(optimizer.slots[f"{path}/adam_v"], second[index], rtol=TOLERANCE)


def test_a_variable_without_gradient_stays():
    variables = make_variables()
    optimizer = AdamWeightDecay(variables)
    optimizer.apply(variables[1:], [tf.ones(2), tf.ones(2)], tf.constant(0.1), tf.constant(1))
    np.testing.assert_array_equal(variables[0], [[1.0, -2.0], [0.5, 3.0]])
    assert np.abs(np.asarray(variables[1]) - [1.0, -2.0]).min() > 0.1


def test_a_pattern_that_matches_nothing_is_an_error():
    with pytest.raises(ValueError, match="no variable path matches 'LayerNorm'"):
        AdamWeightDecay(make_variables()[:2])


@pytest.mark.parametrize(
    ("step", "rate"), [(0, 0.0), (1, 0.1), (5, 0.5), (9, 0.9), (10, 0.9), (50, 0.5), (99, 0.01), (100, 0.0), (200, 0.0)]
)
def test_warmup_and_decay(step, rate):
    computed = linear_warmup_then_decay(tf.constant(step, tf.int64), peak=1.0, num_train_steps=100, num_warmup_steps=10)
    assert computed.dtype == tf.float32
    np.testing.assert_allclose(computed, rate, atol=1e-6)


@pytest.mark.parametrize(("step", "rate"), [(0, 2.0), (50, 1.0), (100, 0.0)])
def test_decay_without_warmup(step, rate):
    computed = linear_warmup_then_decay(tf.constant(step, tf.int64), peak=2.0, num_train_steps=100, num_warmup_steps=0)
    np.testing.assert_allclose(computed, rate, atol=1e-6)
