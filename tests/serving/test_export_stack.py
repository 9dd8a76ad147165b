"""The layers of an export give the same results for any number of parts."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.families.mpnet import MPNetConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.serving import export_stack
from official_bert.serving.export_stack import ExportStack
from official_bert.serving.versions import export_parts
from official_bert.support.errors import UserError

pytestmark = pytest.mark.slow

CONFIG = BertConfig(
    vocab_size=50, hidden_size=24, num_hidden_layers=3, num_attention_heads=6, intermediate_size=48,
    max_position_embeddings=20, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    layer_norm_eps=1e-3,
)  # fmt: skip
MPNET = MPNetConfig(**{**CONFIG.to_dict(), "type_vocab_size": 0})
MASK = np.array([[1] * 12, [1] * 3 + [0] * 9, [1] + [0] * 11])
IDS = np.random.default_rng(2).integers(0, 50, MASK.shape)
SEGMENTS = np.random.default_rng(3).integers(0, 2, MASK.shape)


def random_encoder(dtype="float32", config=CONFIG):
    encoder = BertEncoder(config, dtype=dtype)
    rng = np.random.default_rng(1)
    for variable in encoder.weights:
        if variable.dtype == dtype:
            variable.assign(rng.normal(0, 0.3, variable.shape))
    return encoder


def as_exported(encoder, num_parts):
    return ExportStack(encoder.transformer, num_parts).replacing_layers(encoder)


@pytest.mark.parametrize(
    ("num_parts", "config", "scores"),
    [(1, CONFIG, None), (2, CONFIG, None), (3, MPNET, None), (2, CONFIG, 2 * 12**2)],
    ids=["1", "2", "3, MPNet", "2, long"],
)
def test_parts_give_the_same_numbers(num_parts, config, scores, monkeypatch):
    if scores:  # the heads of two sequences at a time
        monkeypatch.setattr(export_stack, "_MOST_SCORES", scores)
    encoder = random_encoder(config=config)
    num_weights = len(encoder.weights)
    expected, expected_pooled = encoder(IDS, MASK, SEGMENTS), encoder.pool(IDS, MASK, SEGMENTS)
    with as_exported(encoder, num_parts):
        found, pooled = encoder(IDS, MASK, SEGMENTS), encoder.pool(IDS, MASK, SEGMENTS)
    np.testing.assert_allclose(pooled, expected_pooled, atol=1e-6)
    np.testing.assert_allclose(found["pooled_output"], expected["pooled_output"], atol=1e-6)
    for layer, other in zip(found["encoder_layers"], expected["encoder_layers"], strict=True):
        # Three layers, summed in different orders.
        np.testing.assert_allclose(layer[MASK == 1], other[MASK == 1], atol=1e-5)
    assert found["attention_probabilities"] == [None] * CONFIG.num_hidden_layers
    assert len(encoder.weights) == num_weights == len(encoder.checkpoint_variables())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_call_gives_the_same_bits(dtype):
    sizes = {"hidden_size": 192, "num_hidden_layers": 2, "intermediate_size": 768, "max_position_embeddings": 32}
    config = dataclasses.replace(CONFIG, **sizes)
    encoder = random_encoder(dtype, config)
    ids = tf.constant(np.random.default_rng(4).integers(0, 50, (4, 32)))
    with as_exported(encoder, 2):
        compute = tf.function(lambda ids: encoder(ids, tf.ones_like(ids), tf.zeros_like(ids))["sequence_output"])
        expected = compute(ids).numpy().tobytes()
    with ThreadPoolExecutor(4) as pool:
        answers = [*map(compute, [ids] * 30), *pool.map(compute, [ids] * 30)]
    assert {answer.numpy().tobytes() for answer in answers} == {expected}


def test_the_weights_are_copies_and_the_encoder_stays_as_it_is(tmp_path):
    encoder = random_encoder()
    in_parts = ExportStack(encoder.transformer, 2)
    kernel = encoder.transformer.layers[0].intermediate.dense.kernel
    before = encoder.pool(IDS, MASK, SEGMENTS)
    kernel.assign(2 * kernel)
    with in_parts.replacing_layers(encoder):
        np.testing.assert_allclose(encoder.pool(IDS, MASK, SEGMENTS), before, atol=1e-6)
    after = encoder.pool(IDS, MASK, SEGMENTS)
    assert np.abs(after - before).max() > 0.01
    encoder.save(tmp_path / "encoder.keras")
    loaded = keras.models.load_model(tmp_path / "encoder.keras")
    np.testing.assert_array_equal(loaded.pool(IDS, MASK, SEGMENTS), after)


def test_parts_of_an_export():
    def parts(parallelism, num_heads=12, intermediate_size=3072):
        sizes = {"hidden_size": 12 * num_heads, "intermediate_size": intermediate_size}
        return export_parts(BertConfig(vocab_size=9, num_attention_heads=num_heads, **sizes), parallelism)

    assert [parts(parallelism) for parallelism in (0, 1, 2, 12)] == [2, 1, 2, 12]
    assert parts(0, num_heads=3) == parts(0, intermediate_size=31) == 1
    with pytest.raises(UserError, match="=5 does not divide num_attention_heads=12 of the exported model"):
        parts(5)
    with pytest.raises(UserError, match="=3 does not divide intermediate_size=31 of the exported model"):
        parts(3, intermediate_size=31)
