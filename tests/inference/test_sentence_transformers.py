"""Folders of sentence-transformers give the vectors that it gives."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from official_bert import load_tokenizer
from official_bert.commands.extract_features import FeatureConfig
from official_bert.commands.extract_features import run as extract
from official_bert.commands.sentence_similarity import SimilarityConfig
from official_bert.commands.sentence_similarity import run as compare
from official_bert.config.sentence_modules import MODEL, encoder_folder
from official_bert.inference.predictor import Predictor
from official_bert.inference.sentence_head import find_head
from official_bert.inference.text_encoder import TextEncoder, VectorSettings
from official_bert.support.errors import UserError
from official_bert.training.model_files import complete_model_flags
from tests.conftest import GOLDEN

FOLDERS = GOLDEN / "sentence_transformers"
OLDER = FOLDERS / "older"


def golden(name):
    """Texts and their vectors."""
    expected = json.loads((FOLDERS / name / "expected.json").read_text())
    return expected["texts"], np.array(expected["vectors"])


def config_of(config_class, **given):
    """The config of a command line."""
    values = {field.name: field.default for field in dataclasses.fields(config_class)} | given
    return config_class(**complete_model_flags(config_class, values, given))


@pytest.mark.parametrize("name", ["dense", "poolings", "older"])
def test_vectors_are_those_of_sentence_transformers(name):
    predictor, (texts, expected) = Predictor(FOLDERS / name), golden(name)
    np.testing.assert_allclose(predictor.embed(texts), expected, atol=1e-5)
    assert predictor.embed([]).shape == (0, expected.shape[1])
    assert predictor.embed(texts, pooling="mean").shape == (len(texts), 8)  # what is asked for wins


def test_commands_follow_the_folder(tmp_path, capsys):
    texts, vectors = golden("older")
    lines = [number for number, text in enumerate(texts) if text]
    source, target, expected = tmp_path / "texts.txt", tmp_path / "vectors.npy", vectors[lines]
    source.write_text("\n".join(texts[number] for number in lines))
    files = {"init_checkpoint": str(OLDER), "input_file": str(source), "output_file": str(target)}
    config = config_of(FeatureConfig, **files, output_format="npy")
    assert (config.pooling, config.layers, config.max_seq_length) == (MODEL, "-1", 9)
    extract(config)
    np.testing.assert_allclose(np.load(target)[:, 0], expected, atol=1e-5)
    config = config_of(FeatureConfig, **files, pooling="max", max_seq_length=12)
    assert (config.pooling, config.layers, config.max_seq_length) == ("max", "-1,-2,-3,-4", 12)
    assert config_of(FeatureConfig, **files, layers="-2").pooling == "none"
    pairs = {"init_checkpoint": str(OLDER), "sts_file": str(source)}
    assert config_of(SimilarityConfig, **pairs).pooling == "mean"  # which has no effect

    query = {"candidates_file": str(source), "query": texts[0], "top_k": 9, "index_dir": str(tmp_path / "index")}
    for _ in range(2):  # the second time with the index
        compare(config_of(SimilarityConfig, init_checkpoint=str(OLDER), **query))
        rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
        found = {int(row[3]): float(row[2]) for row in rows}
        unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose([found[line + 1] for line in range(len(lines))], unit @ unit[0], atol=1e-5)


def test_the_encoder_may_lie_in_a_folder_of_its_own():
    assert encoder_folder(str(OLDER)) == str(OLDER / "0_Transformer")
    tokenizer = load_tokenizer(OLDER)
    assert (tokenizer.settings.do_lower_case, tokenizer.settings.strip_accents) == (True, False)
    assert tokenizer.tokenize("Café CAFE") == ["café", "cafe"]
    assert find_head(str(OLDER / "0_Transformer"), 8) is None
    with pytest.raises(UserError, match=r"pooling=model needs the folder of a sentence-transformers model"):
        TextEncoder(None, tokenizer, VectorSettings(pooling=MODEL))


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(OLDER, tmp_path / "older")


def edit(file, key, value):
    values = json.loads(file.read_text())
    values[key] = value
    file.write_text(json.dumps(values))


def test_keys_of_early_versions_and_activations(folder):
    pooled = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    vectors, prints = {}, set()
    for name in ("Tanh", "Identity", "ReLU"):
        edit(folder / "2_Dense/config.json", "activation_function", f"torch.nn.{name}")
        head = find_head(str(folder), 8)
        vectors[name] = head(pooled)
        prints.add(head.fingerprint)
    np.testing.assert_allclose(np.tanh(vectors["Identity"]), vectors["Tanh"], atol=1e-6)
    np.testing.assert_allclose(vectors["Identity"].clip(0), vectors["ReLU"], atol=1e-6)
    modes = {"cls_token": True, "mean_tokens": True, "max_tokens": False, "mean_sqrt_len_tokens": False}
    keys = {f"pooling_mode_{key}": value for key, value in modes.items()}
    (folder / "1_Pooling/config.json").write_text(json.dumps(keys))
    edit(folder / "modules.json", 2, {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"})
    head = find_head(str(folder), 8)
    assert (head.poolings, head.width) == (("cls", "mean"), 16)
    np.testing.assert_allclose(np.linalg.norm(head(pooled[:2])), 1, atol=1e-6)
    assert len(prints | {head.fingerprint}) == 4


MODULE = {"type": "sentence_transformers.models.Normalize", "path": ""}
POOLING, DENSE, TEXTS = "1_Pooling/config.json", "2_Dense/config.json", "0_Transformer/sentence_bert_config.json"


@pytest.mark.parametrize(
    ("file", "key", "value", "message"),
    [
        (POOLING, "pooling_mode", "lasttoken", "has the pooling 'lasttoken', .* pooling=mean"),
        (POOLING, "pooling_mode", 3, "1_Pooling: the pooling is 3"),
        ("modules.json", 2, MODULE | {"type": "models.CNN"}, "older has a CNN, which is not supported"),
        ("modules.json", 2, "Dense", "'Dense' is not a module with a type and a path"),
        ("modules.json", 2, MODULE | {"path": "../2_Dense"}, r"path '\.\./2_Dense'; only folders within"),
        ("modules.json", 1, MODULE, "does not begin with a Transformer and a Pooling"),
        ("modules.json", 2, MODULE | {"type": "models.Dense", "path": "5_Dense"}, "5_Dense/config.json"),
        (DENSE, "activation_function", "torch.os.system", "the activation_function is 'torch.os.system'"),
        (DENSE, "use_residual", True, "a layer beside others"),
        (DENSE, "module_input_name", "token_embeddings", "of anything but the sentence_embedding"),
        (TEXTS, "max_seq_length", "8", "number of wordpieces is '8'"),
    ],
)
def test_what_is_damaged_or_not_supported_is_told(folder, file, key, value, message):
    edit(folder / file, key, value)
    with pytest.raises(UserError, match=message):
        _ = [find_head(str(folder), 8).width, find_head(str(folder), 8).max_seq_length]


def test_weights_that_do_not_fit_are_told(folder):
    with pytest.raises(UserError, match=r"2_Dense does not hold one layer of 27 inputs: linear\.weight is \[7, 24\]"):
        _ = find_head(str(folder), 9).width
    (folder / "2_Dense" / "pytorch_model.bin").unlink()
    with pytest.raises(UserError, match=r"2_Dense has no model\.safetensors"):
        _ = find_head(str(folder), 8).width
    for content, message in (("{}", "list of modules must be a list"), ("[]", "names no modules")):
        (folder / "modules.json").write_text(content)
        with pytest.raises(UserError, match=message):
            _ = find_head(str(folder), 8).width
