"""Folders of sentence-transformers give the vectors that it gives."""

import json
import shutil

import numpy as np
import pytest

from official_bert.inference.predictor import Predictor
from official_bert.inference.sentence_modules import read_sentence_modules
from official_bert.support.errors import UserError
from tests.conftest import GOLDEN

FOLDERS = GOLDEN / "sentence_transformers"


@pytest.mark.parametrize("name", ["dense", "poolings"])
def test_vectors_are_those_of_sentence_transformers(name):
    expected = json.loads((FOLDERS / name / "expected.json").read_text())
    encoder = Predictor(str(FOLDERS / name))
    vectors = encoder.embed(expected["texts"])
    np.testing.assert_allclose(vectors, expected["vectors"], atol=1e-5)
    assert encoder.embed(expected["texts"], pooling="mean").shape == (4, 8)  # what is asked for wins
    assert encoder.embed([]).shape[0] == 0


@pytest.fixture
def folder(tmp_path):
    """A copy in the layout of early versions: the transformer in a folder of its own, a key for each pooling."""
    source, copy = FOLDERS / "dense", tmp_path / "early"
    shutil.copytree(source, copy / "0_Transformer", ignore=shutil.ignore_patterns("[0-9]_*", "modules.json"))
    shutil.copytree(source / "2_Dense", copy / "2_Dense")
    (copy / "1_Pooling").mkdir()
    modes = {"cls_token": False, "mean_tokens": True, "max_tokens": False, "mean_sqrt_len_tokens": False}
    pooling = {"word_embedding_dimension": 8, **{f"pooling_mode_{key}": value for key, value in modes.items()}}
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (copy / "0_Transformer" / "sentence_bert_config.json").write_text('{"max_seq_length": 10, "do_lower_case": false}')
    kinds = {"0_Transformer": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense", "3_Normalize": "Normalize"}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    (copy / "modules.json").write_text(json.dumps(modules))
    return copy


def test_folders_of_early_versions_are_read(folder):
    expected = json.loads((FOLDERS / "dense" / "expected.json").read_text())
    np.testing.assert_allclose(Predictor(str(folder)).embed(expected["texts"]), expected["vectors"], atol=1e-5)


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("modules.json", "models.Normalize", "models.CNN", "supported are a Transformer and a Pooling"),
        ("modules.json", '"path": "2_Dense"', '"path": "../2_Dense"', "the path '../2_Dense' leads out of the folder"),
        ("modules.json", '"path": "1_Pooling"', '"folder": 1', "is no module with a type and a path"),
        ("modules.json", "2_Dense", "5_Dense", "5_Dense/config.json"),
        ("1_Pooling/config.json", '_len_tokens": false', '_len_tokens": true',
         "the pooling .*sqrt_len_tokens.* is not supported; choose among cls, max, mean"),
        ("1_Pooling/config.json", "true", "false", "is not supported"),
        ("2_Dense/config.json", "activation.Tanh", "activation.SiLU", "activation_function is SiLU; only Identity"),
        ("2_Dense/config.json", '"in_features": 8', '"in_features": 9', "linear.weight does not have the shape"),
        ("0_Transformer/sentence_bert_config.json", "false", "true", "lowercases text before the tokenizer"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_told(folder, file, old, new, message):
    change(folder / file, old, new)
    with pytest.raises(UserError, match=message):
        read_sentence_modules(str(folder))
