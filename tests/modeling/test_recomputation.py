"""Recomputing activations instead of storing them: same losses and gradients, including dropout."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.families.albert import AlbertConfig
from official_bert.families.deberta import DebertaConfig
from official_bert.families.modernbert import ModernBertConfig
from official_bert.families.mpnet import MPNetConfig
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import EncoderOptions, UnpaddedLayout
from tests.conftest import endurance

CONFIG = BertConfig(
    vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=48,
    max_position_embeddings=20, type_vocab_size=2, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2,
)  # fmt: skip
ALBERT = AlbertConfig(**{**CONFIG.to_dict(), "embedding_size": 8, "num_hidden_layers": 2})
MPNET = MPNetConfig(**{**CONFIG.to_dict(), "type_vocab_size": 0})
DEBERTA = DebertaConfig(**{**CONFIG.to_dict(), "type_vocab_size": 0, "position_buckets": 6})
MODERNBERT = ModernBertConfig(**{**CONFIG.to_dict(), "type_vocab_size": 0, "local_attention": 4})
IDS = np.arange(36).reshape(3, 12)
MASK = (np.arange(12) < np.array([[12], [5], [8]])).astype(np.int32)
WEIGHTS = np.random.default_rng(1).normal(size=24).astype(np.float32)


def encoder_of(config=CONFIG, **options):
    keras.utils.set_random_seed(1)
    return create_encoder(config, EncoderOptions(**options))


def loss_and_gradients(encoder, compiled):
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

    return tf.function(compute) if compiled else compute


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "compiled"),
    [
        ({"config": ALBERT}, True),
        *endurance(({}, False), ({"dtype": "mixed_bfloat16"}, True)),
        *endurance(*(({"config": config, "layout": UnpaddedLayout}, True) for config in (MPNET, DEBERTA, MODERNBERT))),
    ],
    ids=["shared layers", "eager", "bfloat16", "relative positions", "distances", "rotary positions"],
)
def test_losses_and_gradients_stay_the_same(options, compiled):
    plain, recomputed = encoder_of(**options), encoder_of(**options, recompute_layers=True)
    computed, again = loss_and_gradients(plain, compiled), loss_and_gradients(recomputed, compiled)
    losses = []
    for seed in np.array([3, 100]):  # tensors, for which nothing is traced again
        loss, gradients, drawn = computed(seed)
        other_loss, other_gradients, other_drawn = again(seed)
        np.testing.assert_allclose(loss, other_loss, rtol=1e-6)
        tolerance = 0.02 if "dtype" in options else 1e-6
        for gradient, other, variable in zip(gradients, other_gradients, plain.trainable_variables, strict=True):
            scale = max(np.abs(gradient).max(), 1.0)
            np.testing.assert_allclose(gradient, other, atol=tolerance * scale, err_msg=variable.path)
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
        function = tf.function(lambda: loss_and_gradients(encoder, compiled=False)(np.int64(1))[:2])
        return sum(operation.type == "Softmax" for operation in function.get_concrete_function().graph.get_operations())

    assert num_softmax(recompute_layers=False) == 2
    assert num_softmax(recompute_layers=True) == 4
