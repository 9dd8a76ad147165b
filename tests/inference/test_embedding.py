"""Vectors of texts by `Predictor.embed`."""

import shutil

import numpy as np
import pytest

from official_bert.config.poolings import EMBED, poolings_of
from official_bert.inference.predictor import Predictor
from official_bert.modeling.encoder import BertEncoder
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

    def vectors_of(text):
        outputs = encoder(tokenizer([text], max_seq_length=encoder.max_length))
        before, last = (np.array(layer)[0] for layer in outputs["encoder_layers"][-2:])
        of_last = {"mean": last.mean(axis=0), "cls": last[0], "max": last.max(axis=0)}
        return of_last | {"pooler": np.array(outputs["pooled_output"])[0], "second_to_last": before.mean(axis=0)}

    expected = [*map(vectors_of, TEXTS)]
    for pooling in expected[0]:
        vectors = predictor.embed(TEXTS, pooling=pooling, batch_size=2)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(vectors, [of_text[pooling] for of_text in expected], atol=1e-5)


def test_one_text_gives_one_vector_and_an_empty_list_none(predictor):
    np.testing.assert_allclose(predictor.embed("the town"), predictor.embed(["the town"])[0], atol=1e-6)
    width = len(predictor.embed("the town"))
    assert predictor.embed(("the town", "woke")).shape == (width,)
    assert predictor.embed([]).shape == (0, width)
    short = predictor.embed("a a a", max_seq_length=5)
    np.testing.assert_allclose(predictor.embed("a " * 50, max_seq_length=5), short, atol=1e-6)  # long texts are cut


def test_invalid_arguments_are_errors(predictor):
    with pytest.raises(UserError, match=f"pooling='sum' is unknown; choose one of {', '.join(poolings_of(EMBED))}"):
        predictor.embed("a", pooling="sum")
    with pytest.raises(UserError, match="max_seq_length=65 exceeds the 64 positions of the model"):
        predictor.embed("a", max_seq_length=65)
    with pytest.raises(UserError, match="an encoder without a task.* call embed"):
        predictor("a")
    with pytest.raises(UserError, match="is not a text; give a string"):
        predictor.embed(7)


def test_text_settings_may_be_given(folder, predictor, vocab_file):
    presplit = Predictor(folder, basic_tokenize=False, vocab_file=vocab_file)
    lowercased, capital, unknown, punctuated = presplit.embed(["the town", "The town", "[UNK] town", "the [UNK]"])
    np.testing.assert_allclose(lowercased, predictor.embed("THE town"), atol=1e-5)
    np.testing.assert_allclose(capital, unknown, atol=1e-5)
    np.testing.assert_allclose(punctuated, presplit.embed("the \u2603"), atol=1e-5)
    for given in ({}, {"vocab_file": vocab_file}):
        with pytest.raises(UserError, match="basic_tokenize=false takes words as they are"):
            Predictor(folder, basic_tokenize=False, do_lower_case=True, **given)


@pytest.mark.slow
def test_embed_works_for_a_run_but_not_for_an_export(reviews, version):
    run = Predictor(reviews["output_dir"])
    encoder = BertEncoder.from_checkpoint(reviews["output_dir"])
    batch = FullTokenizer(reviews["vocab_file"])(["the warm town"])
    expected = np.array(encoder(batch)["sequence_output"]).mean(axis=1)
    np.testing.assert_allclose(run.embed(["the warm town"]), expected, atol=1e-5)
    with pytest.raises(UserError, match="an export only predicts its task"):
        Predictor(version).embed("a")
