"""The models under Keras's `mixed_bfloat16` policy: critical parts stay float32."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.loading import load
from official_bert.modeling.encoder import BertEncoder, Embeddings
from official_bert.modeling.pooling import mean_over_positions
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.modeling.transformer import Dropout

BFLOAT16_STEP = 2.0**-8  # between 1 and the next number


@pytest.fixture(autouse=True)
def mixed_bfloat16():
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy(policy)


def test_pretraining_stays_near_the_reference(config, model_dir, golden, batch):
    model = PretrainingModel(BertEncoder(config))
    load(CheckpointReader(str(model_dir / "bert_model.ckpt")), model.trainable_variables)
    encoded = model.encoder(batch["input_ids"], batch["input_mask"], batch["segment_ids"])
    assert encoded["sequence_output"].dtype == tf.bfloat16
    difference = np.asarray(tf.cast(encoded["sequence_output"], tf.float32)) - golden["out/sequence_output"]
    assert 0 < np.abs(difference).max() < 24 * BFLOAT16_STEP  # CPUs without bfloat16 products round more often
    for probabilities in encoded["attention_probabilities"]:
        np.testing.assert_allclose(np.asarray(probabilities).sum(axis=-1), 1.0, atol=1e-5)
    outputs = model(batch)
    for name, shape in (("masked_lm", (-1, config.vocab_size)), ("next_sentence", (-1, 2))):
        logits = np.asarray(outputs[f"{name}_logits"])
        assert logits.dtype == np.float32
        log_probabilities = keras.ops.log_softmax(logits.reshape(shape))
        np.testing.assert_allclose(log_probabilities, golden[f"out/{name}_log_probs"], atol=24 * BFLOAT16_STEP)


def test_gradient_of_a_common_word_is_summed_in_float32(config):
    keras.utils.set_random_seed(1)
    embeddings = Embeddings(config, use_one_hot_embeddings=False)
    embeddings.build()
    ids = np.full([32, 64], 5, np.int32)
    weights = np.random.default_rng(1).normal(1.0, 0.1, [32, 64, config.hidden_size])
    with tf.GradientTape() as tape:
        output = embeddings(ids, np.zeros_like(ids))
        loss = tf.reduce_sum(tf.cast(output, tf.float32) * weights.astype(np.float32))
    tables = [embeddings.word_embeddings.value, embeddings.position_embeddings.value]
    words, positions = (tf.convert_to_tensor(gradient).numpy() for gradient in tape.gradient(loss, tables))
    # Each term of the word's gradient is a term of a position's gradient.
    expected = positions.sum(axis=0)
    np.testing.assert_allclose(words[5], expected, atol=1e-4 * np.abs(expected).max())


def test_means_over_positions_are_taken_in_float32():
    sequence = tf.cast(np.random.default_rng(2).normal(size=[2, 301, 8]), tf.bfloat16)
    mask = np.ones([2, 301], np.int32)
    expected = np.asarray(tf.cast(sequence, tf.float64)).mean(axis=1)
    np.testing.assert_allclose(mean_over_positions(sequence, mask), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("shape", [(1601, 999), (2, 3, 27, 9001)])
def test_dropout_has_the_configured_rate(dtype, shape):
    dropout = Dropout(0.1, seed=1, dtype=dtype)
    outputs = dropout(np.ones(shape, np.float32), training=True)
    assert outputs.dtype == dropout.compute_dtype
    kept = np.asarray(tf.cast(outputs, tf.float32)) != 0
    standard_error = np.sqrt(0.1 * 0.9 / kept.size)
    assert kept.mean() == pytest.approx(0.9, abs=3 * standard_error)
    # Two draws come from one random number: neither half depends on the other.
    pairs = kept.reshape(-1)[: kept.size // 2 * 2].reshape(-1, 2)
    assert pairs.all(axis=1).mean() == pytest.approx(0.81, abs=3 * np.sqrt(0.81 * 0.19 / len(pairs)))
    assert np.asarray(dropout(np.ones(shape, np.float32), training=True) != outputs).any()
