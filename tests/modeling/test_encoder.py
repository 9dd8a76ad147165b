"""The model compared with the reference's activations, and its properties."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.loading import load
from official_bert.config.bert_config import ACTIVATION_NAMES
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.modeling.transformer import ACTIVATIONS

LAYER_TOLERANCE, STACK_TOLERANCE = 1e-6, 1e-5


def golden_model(config, model_dir, **options):
    model = PretrainingModel(BertEncoder(config, **options))
    load(CheckpointReader(str(model_dir / "bert_model.ckpt")), model.trainable_variables)
    return model


@pytest.fixture(scope="module")
def model(config, model_dir):
    return golden_model(config, model_dir)


def encode(model, batch):
    return model.encoder(batch["input_ids"], batch["input_mask"], batch["segment_ids"])


def test_variables_are_those_of_the_reference_checkpoint(model, model_dir):
    reader = tf.train.load_checkpoint(str(model_dir / "bert_model.ckpt"))
    shapes = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()}
    assert {variable.path: tuple(variable.shape) for variable in model.trainable_variables} == shapes


def test_encoder_gives_the_reference_activations(model, batch, golden):
    encoded = encode(model, batch)
    np.testing.assert_allclose(encoded["embedding_output"], golden["out/embedding_output"], atol=LAYER_TOLERANCE)
    layers = np.stack(encoded["encoder_layers"])
    np.testing.assert_allclose(layers, golden["out/all_encoder_layers"], atol=STACK_TOLERANCE)
    np.testing.assert_allclose(encoded["sequence_output"], golden["out/sequence_output"], atol=STACK_TOLERANCE)
    np.testing.assert_allclose(encoded["pooled_output"], golden["out/pooled_output"], atol=STACK_TOLERANCE)


def test_heads_give_the_reference_log_probabilities(model, batch, golden):
    outputs = model(batch)
    masked_lm = keras.ops.reshape(keras.ops.log_softmax(outputs["masked_lm_logits"]), (-1, 1182))
    np.testing.assert_allclose(masked_lm, golden["out/masked_lm_log_probs"], atol=STACK_TOLERANCE)
    next_sentence = keras.ops.log_softmax(outputs["next_sentence_logits"])
    np.testing.assert_allclose(next_sentence, golden["out/next_sentence_log_probs"], atol=STACK_TOLERANCE)


def test_one_hot_and_gather_lookup_agree(config, model_dir, model, batch):
    one_hot = golden_model(config, model_dir, use_one_hot_embeddings=True)
    np.testing.assert_allclose(
        encode(one_hot, batch)["sequence_output"], encode(model, batch)["sequence_output"], atol=STACK_TOLERANCE
    )


def test_longer_padding_leaves_real_positions_alone(model, batch):
    longer = {name: np.pad(batch[name], [[0, 0], [0, 9]]) for name in ("input_ids", "input_mask", "segment_ids")}
    longer["input_ids"][:, -9:] = 77  # arbitrary ids under the padding
    real = batch["input_mask"] == 1
    short_output = np.asarray(encode(model, batch)["sequence_output"])
    long_output = np.asarray(encode(model, longer)["sequence_output"])[:, : real.shape[1]]
    np.testing.assert_allclose(long_output[real], short_output[real], atol=STACK_TOLERANCE)


def test_dropout_acts_in_training_alone(config, batch):
    keras.utils.set_random_seed(1)
    config = dataclasses.replace(config, num_hidden_layers=1)
    encoder = BertEncoder(config)
    inputs = (batch["input_ids"], batch["input_mask"], batch["segment_ids"])
    first, second = (np.asarray(encoder(*inputs, training=True)["sequence_output"]) for _ in range(2))
    assert np.abs(first - second).max() > 0.1
    calm = [np.asarray(encoder(*inputs)["sequence_output"]) for _ in range(2)]
    np.testing.assert_array_equal(*calm)
    silent = BertEncoder(dataclasses.replace(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    for variable, other in zip(silent.trainable_variables, encoder.trainable_variables, strict=True):
        variable.assign(other)
    np.testing.assert_allclose(silent(*inputs, training=True)["sequence_output"], calm[0], atol=LAYER_TOLERANCE)


def test_weights_begin_as_the_reference_begins_them(config):
    keras.utils.set_random_seed(2)
    model = PretrainingModel(BertEncoder(dataclasses.replace(config, hidden_size=128, intermediate_size=256)))
    for variable in model.trainable_variables:
        values = np.asarray(variable)
        if variable.path.endswith("gamma"):
            assert (values == 1.0).all()
        elif variable.path.endswith(("beta", "bias")):
            assert (values == 0.0).all()
        else:  # truncated at two standard deviations of 0.02
            assert np.abs(values).max() <= 0.04
            assert 0.016 < values.std() < 0.019, variable.path
    kernels = [np.asarray(variable) for variable in model.trainable_variables if variable.path.endswith("query/kernel")]
    assert np.abs(kernels[0] - kernels[1]).max() > 0.02


def test_activations():
    assert set(ACTIVATIONS) == set(ACTIVATION_NAMES)
    x = np.array([-3.0, -1.0, 0.0, 0.5, 2.0], np.float32)
    tanh_form = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    erf = np.array([-0.9973002, -0.6826895, 0.0, 0.3829249, 0.9544997])  # at x / sqrt(2), from tables
    np.testing.assert_allclose(ACTIVATIONS["gelu"](x), tanh_form, atol=1e-6)
    np.testing.assert_allclose(ACTIVATIONS["gelu_erf"](x), 0.5 * x * (1 + erf), atol=1e-6)
    assert np.abs(np.asarray(ACTIVATIONS["gelu"](x)) - np.asarray(ACTIVATIONS["gelu_erf"](x))).max() > 1e-4
    np.testing.assert_array_equal(ACTIVATIONS["relu"](x), np.maximum(x, 0))
    np.testing.assert_allclose(ACTIVATIONS["tanh"](x), np.tanh(x), atol=1e-6)
    np.testing.assert_array_equal(ACTIVATIONS["linear"](x), x)
