"""Layers that are computed in parts: the same numbers."""

import keras
import numpy as np
import pytest

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.layout import FlatSequences, padded_sequences
from official_bert.modeling.unpadding import UnpaddedLayout

CONFIG = BertConfig(
    vocab_size=50, hidden_size=24, num_hidden_layers=3, num_attention_heads=6, intermediate_size=48,
    max_position_embeddings=20, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
LAYOUTS = {"padded": padded_sequences, "flat": FlatSequences.of, "unpadded": UnpaddedLayout.of}
MASK = np.array([[1] * 12, [1] * 3 + [0] * 9, [1] + [0] * 11])
IDS = np.random.default_rng(2).integers(0, 50, MASK.shape)
SEGMENTS = np.random.default_rng(3).integers(0, 2, MASK.shape)


def random_encoder(layout_maker, dtype="float32"):
    encoder = BertEncoder(CONFIG, layout_maker=layout_maker, dtype=dtype)
    rng = np.random.default_rng(1)
    for variable in encoder.weights:
        if variable.dtype == dtype:
            variable.assign(rng.normal(0, 0.3, variable.shape))
    return encoder


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("num_parts", [2, 3, 6])
def test_parts_give_the_same_numbers(layout, num_parts):
    encoder = random_encoder(LAYOUTS[layout])
    num_weights = len(encoder.weights)
    expected, expected_pooled = encoder(IDS, MASK, SEGMENTS), encoder.pool(IDS, MASK, SEGMENTS)
    encoder.split_layers(num_parts)
    found, pooled = encoder(IDS, MASK, SEGMENTS), encoder.pool(IDS, MASK, SEGMENTS)
    np.testing.assert_allclose(pooled, expected_pooled, atol=1e-6)
    np.testing.assert_allclose(found["pooled_output"], expected["pooled_output"], atol=1e-6)
    for layer, other in zip(found["encoder_layers"], expected["encoder_layers"], strict=True):
        np.testing.assert_allclose(
            layer[MASK == 1], other[MASK == 1], atol=1e-5
        )  # three layers of sums in other orders
    assert found["attention_probabilities"] == [None] * CONFIG.num_hidden_layers
    assert len(encoder.weights) == num_weights == len(encoder.checkpoint_variables())


def test_parts_in_bfloat16():
    encoder = random_encoder(UnpaddedLayout.of, "bfloat16")
    expected = np.asarray(keras.ops.cast(encoder.pool(IDS, MASK, SEGMENTS), "float32"))
    encoder.split_layers(2)
    found = encoder.pool(IDS, MASK, SEGMENTS)
    assert found.dtype == "bfloat16"
    np.testing.assert_allclose(np.asarray(keras.ops.cast(found, "float32")), expected, atol=0.1)


def test_the_parts_are_copies_and_training_does_not_use_them():
    encoder = random_encoder(UnpaddedLayout.of)
    encoder.split_layers(2)
    before = encoder.pool(IDS, MASK, SEGMENTS)
    kernel = encoder.transformer.layers[0].intermediate.dense.kernel
    kernel.assign(2 * kernel)
    np.testing.assert_array_equal(encoder.pool(IDS, MASK, SEGMENTS), before)
    trained = encoder.pool(IDS, MASK, SEGMENTS, training=True)  # without dropout
    encoder.split_layers(2)
    np.testing.assert_allclose(encoder.pool(IDS, MASK, SEGMENTS), trained, atol=1e-6)
    assert np.abs(trained - before).max() > 0.01
