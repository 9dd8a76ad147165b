"""Recomputing activations instead of storing them: same losses and gradients, including dropout."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import EncoderOptions, UnpaddedLayout
from tests.conftest import endurance
from tests.modeling.model_cases import ALBERT, CONFIG, DEBERTA, MODERNBERT, MPNET, D

IDS = np.arange(27).reshape(3, 9)
MASK = (np.arange(9) < np.array([[9], [5], [8]])).astype(np.int32)
WEIGHTS = np.random.default_rng(1).normal(size=D).astype(np.float32)


def encoder_of(config=CONFIG, **options):
    keras.utils.set_random_seed(1)
    return create_encoder(config, EncoderOptions(**options))


def loss_and_gradients(encoder):
    """Return a function from a seed to the loss of an encoder, its gradients, and the next seeds of its layers."""
    states = [state for state in encoder.non_trainable_variables if "seed_generator" in state.path]

    def compute(seed):
        seeds = [(state, tf.stack([seed + index, 7])) for index, state in enumerate(states)]
        with tf.GradientTape() as tape:
            with keras.StatelessScope(seeds) as scope:
                outputs = encoder(IDS, MASK, training=True)
            total = tf.reduce_sum(tf.cast(outputs["sequence_output"], tf.float32)[:, 0] * WEIGHTS)
            loss = total + tf.reduce_sum(tf.cast(outputs["pooled_output"], tf.float32))
        variables = [variable.value for variable in encoder.trainable_variables]
        gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]
        return loss, gradients, [scope.get_current_value(state) for state in states]

    return compute


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "options"),
    [
        (dataclasses.replace(ALBERT, num_hidden_groups=1), {}),
        *endurance(*((config, {"layout": UnpaddedLayout}) for config in (MPNET, DEBERTA, MODERNBERT))),
    ],
    ids=["shared layers", "relative positions", "distances", "rotary positions"],
)
def test_losses_and_gradients_stay_the_same(config, options):
    plain, recomputed = encoder_of(config, **options), encoder_of(config, **options, recompute_layers=True)
    computed, again = (tf.function(loss_and_gradients(encoder)) for encoder in (plain, recomputed))
    losses = []
    for seed in np.array([3, 100]):  # tensors, for which nothing is traced again
        loss, gradients, drawn = computed(seed)
        other_loss, other_gradients, other_drawn = again(seed)
        np.testing.assert_allclose(loss, other_loss, rtol=1e-6)
        for gradient, other, variable in zip(gradients, other_gradients, plain.trainable_variables, strict=True):
            scale = max(np.abs(gradient).max(), 1.0)
            np.testing.assert_allclose(gradient, other, atol=1e-6 * scale, err_msg=variable.path)
        np.testing.assert_array_equal(drawn, other_drawn)
        losses.append(float(loss))
    assert losses[0] != losses[1]  # dropout was on


def test_without_a_scope_each_call_has_another_dropout_mask():
    encoder = encoder_of(recompute_layers=True)
    first, second = (np.asarray(encoder(IDS, MASK, training=True)["sequence_output"]) for _ in range(2))
    assert np.abs(first - second).max() > 0.1
    assert encoder(IDS, MASK, training=True)["attention_probabilities"] == [None] * 2


@pytest.mark.slow
def test_only_what_enters_a_layer_is_stored():
    """The backward pass uses no intermediate result of a layer's first forward pass."""

    def num_softmax(recompute_layers):
        encoder = encoder_of(recompute_layers=recompute_layers)
        function = tf.function(lambda: loss_and_gradients(encoder)(np.int64(1))[:2])
        return sum(operation.type == "Softmax" for operation in function.get_concrete_function().graph.get_operations())

    assert num_softmax(recompute_layers=False) == 2
    assert num_softmax(recompute_layers=True) == 4
