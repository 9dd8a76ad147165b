"""Vectors of exported sentence encoders, compared with `TextEncoder` and NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.config.sentence_modules import Prompts
from official_bert.inference.text_encoder import TextEncoder
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import UnpaddedLayout
from official_bert.modeling.sentence import SentenceModel
from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.servable import SentenceServable
from tests.export_fixtures import AWKWARD_TEXTS
from tests.exports import TOLERANCE, graph_predictor

pytestmark = pytest.mark.slow
LENGTH, PREFIX, WIDTH = 12, "the Query: ", 13


@pytest.fixture(scope="module")
def encoder(one_layer_config_file):
    """An encoder with random weights, large enough that the vectors depend on the text."""
    tf.keras.utils.set_random_seed(1)
    encoder = BertEncoder(BertConfig.from_json_file(one_layer_config_file), layout=UnpaddedLayout)
    for variable in encoder.trainable_variables:
        variable.assign(variable + tf.random.normal(variable.shape, stddev=0.1))
    return encoder


@pytest.fixture(scope="module")
def model(encoder):
    """A model with mean and [CLS] pooling, a dense layer and normalization."""
    return SentenceModel(encoder, poolings=("mean", "cls"), layers_after=[(WIDTH, "tanh"), None])


def servable_of(model, tokenizer, **options):
    return SentenceServable(model, model.encoder.config, tokenizer, max_seq_length=LENGTH, **options)


@pytest.fixture(scope="module")
def ids(tokenizer):
    return {name: tf.constant(array) for name, array in tokenizer(AWKWARD_TEXTS, max_seq_length=LENGTH).items()}


def outputs_for(ids, *arguments, **options):
    outputs = servable_of(*arguments, **options).predict(ids)
    return {name: values.numpy() for name, values in outputs.items()}


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_vectors_equal_those_of_the_text_encoder(encoder, tokenizer, ids):
    texts = [PREFIX + text for text in AWKWARD_TEXTS]  # one text is longer than the limit
    expected = TextEncoder(encoder, tokenizer).embed(texts, pooling="mean", max_seq_length=LENGTH, batch_size=4)
    servable = servable_of(SentenceModel(encoder), tokenizer, prompts=Prompts({}, PREFIX), normalize=True)
    predict = graph_predictor(servable)
    np.testing.assert_allclose(predict(AWKWARD_TEXTS), unit(expected), atol=TOLERANCE)
    np.testing.assert_allclose(predict.embed(AWKWARD_TEXTS, batch_size=2), unit(expected), atol=TOLERANCE)
    np.testing.assert_allclose(predict.embed(AWKWARD_TEXTS[0]), unit(expected)[0], atol=TOLERANCE)
    assert predict.embed([]).shape == (0, expected.shape[1])
    with pytest.raises(UserError, match="pooling: this export has only its own vectors"):
        predict.embed("a", pooling="mean")
    with pytest.raises(UserError, match="max_seq_length=5 needs pooling"):
        predict.embed("a", max_seq_length=5)

    of_tokens = servable.signature("token_vectors")(**ids)
    is_token = ids["input_mask"] == 1
    assert of_tokens["lengths"].numpy().tolist() == np.sum(is_token, axis=1).tolist()
    tokens = encoder(**ids)["sequence_output"]
    np.testing.assert_allclose(of_tokens["token_vectors"][is_token], tokens[is_token], atol=TOLERANCE)


def test_sizes_and_types(model, tokenizer, encoder, ids):
    whole = outputs_for(ids, model, tokenizer)["vectors"]
    assert whole.shape == (len(AWKWARD_TEXTS), WIDTH)
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1, atol=TOLERANCE)
    found = outputs_for(ids, model, tokenizer, size=9, vector_types=("int8", "binary"))
    assert {name: (values.shape[1], str(values.dtype)) for name, values in found.items()} == {
        "vectors": (9, "float32"), "int8_vectors": (9, "int8"), "binary_vectors": (2, "uint8")
    }  # fmt: skip
    np.testing.assert_allclose(found["vectors"], unit(whole[:, :9]), atol=TOLERANCE)
    assert (np.abs(found["int8_vectors"]).max(axis=1) == 127).all()
    expected = found["vectors"] / np.abs(found["vectors"]).max(axis=1, keepdims=True) * 127
    np.testing.assert_array_equal(found["int8_vectors"], np.round(expected))
    np.testing.assert_array_equal(found["binary_vectors"], np.packbits(found["vectors"] > 0, axis=1))
    plain = SentenceModel(encoder)
    cut, mean = (outputs_for(ids, plain, tokenizer, size=size)["vectors"] for size in (9, None))
    np.testing.assert_array_equal(cut, mean[:, :9])
    with pytest.raises(UserError, match="vector_size=14 exceeds the 13 components"):
        servable_of(model, tokenizer, size=14)
