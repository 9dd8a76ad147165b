"""ALBERT in the scripts: fine-tuning, export, features, attention; with its own tokenizer in test_spm_model_file.py."""

import json
import os
import shutil

import numpy as np
import pytest

from official_bert.config.bert_config import BertConfig
from official_bert.families.albert import AlbertConfig
from official_bert.inference.attention_reader import AttentionReader
from official_bert.modeling.encoder import BertEncoder
from official_bert.tokenization import FullTokenizer
from tests.conftest import assert_refused, run_here


@pytest.fixture(scope="module")
def config(model_dir):
    golden = BertConfig.from_json_file(str(model_dir / "bert_config.json")).to_dict()
    return AlbertConfig(**{**golden, "embedding_size": 8, "num_hidden_layers": 2, "inner_group_num": 2})


@pytest.fixture(scope="module")
def albert(config, vocab_file, tmp_path_factory):
    """The flags of a new model."""
    folder = tmp_path_factory.mktemp("albert")
    prefix = BertEncoder(config).save_checkpoint(folder / "model.ckpt-best")
    shutil.move(folder / "bert_config.json", folder / "albert_config.json")
    files = {"bert_config_file": str(folder / "albert_config.json"), "vocab_file": vocab_file}
    return {**files, "init_checkpoint": prefix}


def test_features_of_all_layers(albert, tmp_path):
    (tmp_path / "in.txt").write_text("the harbour ||| the town\n")
    flags = {**albert, "input_file": str(tmp_path / "in.txt"), "output_file": str(tmp_path / "out.jsonl")}
    run_here("extract_features", **flags, layers="0,1,2,3", max_seq_length=16)
    (line,) = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    vectors = np.array([[layer["values"] for layer in token["layers"]] for token in line["features"]])
    tokenizer = FullTokenizer(albert["vocab_file"])
    ids = np.array([tokenizer.convert_tokens_to_ids([token["token"] for token in line["features"]])])
    segments = np.array([[0, 0, 0, 0, 1, 1, 1]])
    encoder = BertEncoder.from_checkpoint(os.path.dirname(albert["init_checkpoint"]))
    expected = encoder(ids, np.ones_like(ids), segments)["encoder_layers"]
    assert len(expected) == 4
    np.testing.assert_allclose(vectors, np.stack([layer[0] for layer in expected], axis=1), atol=1e-5)


def test_attention_of_all_layers(albert, config):
    tokenizer = FullTokenizer(albert["vocab_file"])
    view = AttentionReader(config, tokenizer, albert["init_checkpoint"], top_k=3)("the harbour woke")
    assert view.attention.shape == (4, config.num_attention_heads, 5, 5)
    np.testing.assert_allclose(view.attention.sum(-1), 1, atol=1e-3)


def test_no_layers_are_taken_out(albert, tmp_path):
    flags = {**albert, "num_layers": 1, "output_dir": str(tmp_path / "out")}
    message = "is of an ALBERT, whose layers share their weights; for another number of layers change num_hidden_layers"
    assert_refused("edit_checkpoint", flags, message)
