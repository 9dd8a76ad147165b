"""Vectors of exported sentence encoders, compared with `TextEncoder` and NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.config.sentence_modules import Prompts
from official_bert.inference.predictor import Predictor
from official_bert.inference.text_encoder import TextEncoder
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import UnpaddedLayout
from official_bert.modeling.sentence import SentenceModel
from official_bert.serving.exports import write_export
from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.reader import results
from official_bert.tasks.sentence_encoder.servable import SentenceServable
from tests.export_fixtures import AWKWARD_TEXTS
from tests.exports import TOLERANCE

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


def outputs_for(ids, model, tokenizer, **options):
    outputs = servable_of(model, tokenizer, **options).predict(ids)
    return {name: values.numpy() for name, values in outputs.items()}


def vectors_of(model, tokenizer, texts, **options):
    outputs = servable_of(model, tokenizer, **options).answer(text=tf.constant(texts))
    return {name: values.numpy() for name, values in outputs.items()}


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.endurance
def test_vectors_equal_those_of_the_text_encoder(encoder, tokenizer):
    model = SentenceModel(encoder)
    texts = [PREFIX + text for text in AWKWARD_TEXTS]  # one text is longer than the limit
    expected = TextEncoder(encoder, tokenizer).embed(texts, pooling="mean", max_seq_length=LENGTH, batch_size=4)
    found = vectors_of(model, tokenizer, texts)
    assert found.keys() == {"vectors"}
    np.testing.assert_allclose(found["vectors"], expected, atol=TOLERANCE)
    assert len(results(found)) == len(texts)
    found = vectors_of(model, tokenizer, AWKWARD_TEXTS, prompts=Prompts({}, PREFIX), normalize=True)
    np.testing.assert_allclose(found["vectors"], unit(expected), atol=TOLERANCE)


def test_sizes_and_types(model, tokenizer, encoder):
    ids = {name: tf.constant(array) for name, array in tokenizer(AWKWARD_TEXTS, max_seq_length=LENGTH).items()}
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


@pytest.mark.endurance
def test_an_export_gives_what_the_model_does(model, tokenizer, tmp_path):
    servable = servable_of(model, tokenizer, prompts=Prompts({}, PREFIX), vector_types=("int8", "binary"))
    expected = servable.answer(text=tf.constant(AWKWARD_TEXTS))
    servable.use_export_stack(2)
    path = write_export(str(tmp_path / "sentences"), servable)
    ids = {name: values.numpy().tolist() for name, values in servable.tokenize(tf.constant(AWKWARD_TEXTS)).items()}
    signatures = tf.saved_model.load(path).signatures
    tensors = {name: tf.constant(values) for name, values in ids.items()}
    answers = signatures["text"](text=tf.constant(AWKWARD_TEXTS)), signatures["serving_default"](**tensors)
    of_tokens = signatures["token_vectors"](**tensors)
    mask = np.array(ids["input_mask"])
    assert of_tokens["lengths"].numpy().tolist() == mask.sum(axis=1).tolist()
    tokens = model.encoder(**{name: np.array(values) for name, values in ids.items()})["sequence_output"].numpy()
    np.testing.assert_allclose(np.array(of_tokens["token_vectors"])[mask == 1], tokens[mask == 1], atol=TOLERANCE)
    many = tf.ones([(1 << 21) // tokens.shape[2] // LENGTH + 1, LENGTH], tf.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="each table of the response is limited to 2097152 cells"):
        signatures["token_vectors"](**dict.fromkeys(ids, many))
    for answer in answers:
        assert answer.keys() == expected.keys()
        np.testing.assert_allclose(answer["vectors"], expected["vectors"], atol=TOLERANCE)
        np.testing.assert_allclose(answer["int8_vectors"], expected["int8_vectors"], atol=1)

    predict = Predictor(path)
    np.testing.assert_allclose(predict(AWKWARD_TEXTS), expected["vectors"], atol=TOLERANCE)
    np.testing.assert_allclose(predict.embed(AWKWARD_TEXTS, batch_size=2), expected["vectors"], atol=TOLERANCE)
    np.testing.assert_allclose(predict.embed(AWKWARD_TEXTS[0]), expected["vectors"][0], atol=TOLERANCE)
    assert predict.embed([]).shape == (0, WIDTH)
    with pytest.raises(UserError, match="pooling: this export has only its own vectors"):
        predict.embed("a", pooling="mean")
    with pytest.raises(UserError, match="max_seq_length=5 needs pooling"):
        predict.embed("a", max_seq_length=5)
