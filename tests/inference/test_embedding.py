"""Vectors of texts by `Predictor.embed`."""

import shutil

import numpy as np
import pytest

from official_bert.config.poolings import EMBED, poolings_of
from official_bert.inference.predictor import Predictor
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.pooling import mean_over_positions
from official_bert.support.errors import UserError
from official_bert.tokenization import FullTokenizer

TEXTS = ["the baker woke before the town did .", "the town", ("the baker woke .", "the town did"), "a " * 100, ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, model_dir, vocab_file):
    """A pretrained model as published: without a task and without a state file."""
    folder = tmp_path_factory.mktemp("published")
    for path in model_dir.glob("bert_*"):
        shutil.copy(path, folder)
    shutil.copy(vocab_file, folder / "vocab.txt")
    return folder


@pytest.fixture(scope="module")
def predictor(folder):
    return Predictor(folder)


@pytest.mark.endurance
def test_vectors_are_those_of_each_text_alone(folder, predictor):
    encoder, tokenizer = BertEncoder.from_checkpoint(folder), FullTokenizer.from_folder(folder)
    outputs = []
    for text in TEXTS:
        batch = tokenizer([text], max_seq_length=encoder.max_length)
        outputs.append({**encoder(batch), "input_mask": batch["input_mask"]})

    def mean(layer, output):
        return np.array(mean_over_positions(layer, output["input_mask"]))[0]

    expected = {
        "mean": lambda output: mean(output["sequence_output"], output),
        "cls": lambda output: np.array(output["sequence_output"])[0, 0],
        "max": lambda output: np.array(output["sequence_output"])[0][output["input_mask"][0] > 0].max(axis=0),
        "pooler": lambda output: np.array(output["pooled_output"])[0],
        "second_to_last": lambda output: mean(output["encoder_layers"][-2], output),
    }
    for pooling, pooled in expected.items():
        vectors = predictor.embed(TEXTS, pooling=pooling, batch_size=2)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, [pooled(output) for output in outputs], atol=1e-5)


def test_one_text_gives_one_vector_and_an_empty_list_none(predictor):
    np.testing.assert_allclose(predictor.embed("the town"), predictor.embed(["the town"])[0], atol=1e-6)
    width = len(predictor.embed("the town"))
    assert predictor.embed(("the town", "woke")).shape == (width,)
    assert predictor.embed([]).shape == (0, width)


def test_long_texts_are_truncated(predictor):
    short = predictor.embed("a a a", max_seq_length=5)
    np.testing.assert_allclose(predictor.embed("a " * 50, max_seq_length=5), short, atol=1e-6)
    with pytest.raises(UserError, match="max_seq_length=65 exceeds the 64 positions of the model"):
        predictor.embed("a", max_seq_length=65)


def test_invalid_arguments_are_errors(predictor):
    with pytest.raises(UserError, match=f"pooling='sum' is unknown; choose one of {', '.join(poolings_of(EMBED))}"):
        predictor.embed("a", pooling="sum")
    with pytest.raises(UserError, match="an encoder without a task.* call embed"):
        predictor("a")
    with pytest.raises(UserError, match="is not a text; give a string"):
        predictor.embed(7)


@pytest.mark.parametrize("gives_vocabulary", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_text_settings_may_be_given(folder, predictor, vocab_file, gives_vocabulary):
    given = {"basic_tokenize": False, **({"vocab_file": vocab_file} if gives_vocabulary else {})}
    presplit = Predictor(folder, **given)
    lowercased, capital, unknown, punctuated = presplit.embed(["the town", "The town", "[UNK] town", "the [UNK]"])
    np.testing.assert_allclose(lowercased, predictor.embed("THE town"), atol=1e-5)
    np.testing.assert_allclose(capital, unknown, atol=1e-5)
    np.testing.assert_allclose(punctuated, presplit.embed("the \u2603"), atol=1e-5)
    with pytest.raises(UserError, match="basic_tokenize=false takes words as they are"):
        Predictor(folder, do_lower_case=True, **given)


@pytest.mark.slow
def test_embed_works_for_a_run_but_not_for_an_export(reviews, version):
    run = Predictor(reviews["output_dir"])
    encoder = BertEncoder.from_checkpoint(reviews["output_dir"])
    batch = FullTokenizer(reviews["vocab_file"])(["the warm town"])
    expected = np.array(encoder(batch)["sequence_output"]).mean(axis=1)
    np.testing.assert_allclose(run.embed(["the warm town"]), expected, atol=1e-5)
    with pytest.raises(UserError, match="an export only predicts its task"):
        Predictor(version).embed("a")
