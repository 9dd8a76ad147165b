"""Left-to-right attention: later positions have no effect."""

import contextlib
import dataclasses

import numpy as np
import pytest

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder_options import UnpaddedLayout
from official_bert.serving.export_stack import ExportStack
from tests.modeling.model_cases import random_encoder

CONFIG = BertConfig(
    vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, intermediate_size=48,
    max_position_embeddings=20, type_vocab_size=2, attention_direction="left_to_right",
)  # fmt: skip
LENGTHS = np.array([12, 3, 1, 7])
MASK = (np.arange(12) < LENGTHS[:, np.newaxis]).astype(np.int32)
IDS = np.random.default_rng(2).integers(0, 50, MASK.shape)


@pytest.fixture(scope="module")
def encoder():
    return random_encoder(CONFIG)


@pytest.fixture(scope="module")
def encoded(encoder):
    return encoder(IDS, MASK)


def test_a_position_depends_on_itself_and_on_those_before_it_alone(encoder, encoded):
    changed = IDS.copy()
    changed[:, 5:] = (changed[:, 5:] + 1) % 50
    other = encoder(changed, MASK)["sequence_output"]
    np.testing.assert_allclose(other[:, :5], encoded["sequence_output"][:, :5], atol=1e-6)
    assert np.abs(other[0, 11] - encoded["sequence_output"][0, 11]).max() > 1e-4
    bidirectional = random_encoder(dataclasses.replace(CONFIG, attention_direction="bidirectional"))
    outputs = [bidirectional(ids, MASK)["sequence_output"] for ids in (IDS, changed)]
    assert np.abs(outputs[0][0, :5] - outputs[1][0, :5]).max() > 1e-4


def test_later_positions_and_padding_get_no_attention(encoded):
    is_seen = np.tri(12, dtype=bool)[np.newaxis, np.newaxis] & (MASK == 1)[:, np.newaxis, np.newaxis, :]
    is_real = (MASK == 1)[:, np.newaxis, :, np.newaxis]
    for probabilities in encoded["attention_probabilities"]:
        probabilities = np.asarray(probabilities)
        np.testing.assert_allclose(probabilities.sum(axis=-1), 1.0, atol=1e-5)
        assert probabilities[np.broadcast_to(~is_seen & is_real, probabilities.shape)].max() == 0
        assert probabilities[np.broadcast_to(is_seen & is_real, probabilities.shape)].min() > 0


def test_the_pooler_reads_the_last_real_position(encoder, encoded):
    last = np.asarray(encoded["sequence_output"])[np.arange(len(LENGTHS)), LENGTHS - 1]
    np.testing.assert_allclose(encoded["pooled_output"], encoder.pooler(last), atol=1e-6)
    np.testing.assert_allclose(encoder.pool(IDS, MASK), encoded["pooled_output"], atol=1e-6)
    for row, length in enumerate(LENGTHS):
        alone = encoder.pool(IDS[row : row + 1, :length], MASK[row : row + 1, :length])
        np.testing.assert_allclose(alone[0], encoded["pooled_output"][row], atol=1e-5)


@pytest.mark.parametrize("num_parts", [1, 2])
def test_other_ways_of_computing_give_the_same_numbers(encoded, num_parts):
    other = random_encoder(CONFIG, layout=UnpaddedLayout)
    in_parts = ExportStack(other.transformer, num_parts).replacing_layers(other)
    with in_parts if num_parts > 1 else contextlib.nullcontext():
        found, pooled = other(IDS, MASK), other.pool(IDS, MASK)
    np.testing.assert_allclose(found["pooled_output"], encoded["pooled_output"], atol=1e-5)
    np.testing.assert_allclose(pooled, encoded["pooled_output"], atol=1e-5)
    for layer, expected in zip(found["encoder_layers"], encoded["encoder_layers"], strict=True):
        np.testing.assert_allclose(layer[MASK == 1], expected[MASK == 1], atol=1e-5)
