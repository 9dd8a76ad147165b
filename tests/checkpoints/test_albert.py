"""ALBERT checkpoints, and Hugging Face weights made by `transformers`; PyTorch is not needed."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.loading import load
from official_bert.checkpoints.safetensors import from_hf, read_folder, read_model, to_hf, write_file
from official_bert.commands import convert_hf_checkpoint
from official_bert.commands.convert_hf_checkpoint import HfConversionConfig
from official_bert.config.bert_config import BertConfig
from official_bert.families.albert import AlbertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.support.errors import UserError
from tests.conftest import GOLDEN

FOLDER = GOLDEN / "families" / "albert" / "ForPreTraining"
PLAIN = BertConfig(
    vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=9, type_vocab_size=2,
)  # fmt: skip
ALBERT = AlbertConfig(**{**PLAIN.to_dict(), "embedding_size": 4})


@pytest.fixture
def config():
    return BertConfig.from_json_file(str(FOLDER / "config.json"))


@pytest.fixture
def arrays(config):
    return read_folder(str(FOLDER), config)


def test_a_head_that_transformers_does_not_have_alone_is_refused(config, arrays):
    weights = from_hf(arrays, config, "folder").arrays
    ours = {name: array for name, array in weights.items() if "cls/predictions" not in name}
    with pytest.raises(UserError, match="has a next-sentence head; no class of transformers has this combination"):
        to_hf(ours, config, "checkpoint")


def test_the_output_weights_are_the_word_embeddings(config, arrays, tmp_path):
    words = arrays["albert.embeddings.word_embeddings.weight"]
    copies = {"predictions.decoder.weight": words, "predictions.decoder.bias": arrays["predictions.bias"]}
    write_file(str(tmp_path / "model.safetensors"), arrays | copies)
    assert sorted(read_folder(str(tmp_path), config)) == sorted(arrays)
    write_file(str(tmp_path / "model.safetensors"), arrays | {"predictions.decoder.weight": np.asarray(words) + 1})
    with pytest.raises(UserError, match="predictions.decoder.weight differs from albert.embeddings.word_embeddings"):
        read_folder(str(tmp_path), config)


def test_a_projection_between_equal_widths_must_change_nothing():
    config = dataclasses.replace(ALBERT, embedding_size=8)
    ours = {name: variable.numpy() for name, variable in BertEncoder(config).checkpoint_variables().items()}
    theirs = {f"albert.{name}": array for name, array in to_hf(ours, config, "checkpoint").arrays.items()}
    kernel = theirs["albert.encoder.embedding_hidden_mapping_in.weight"]
    np.testing.assert_array_equal(kernel, np.eye(8))
    assert sorted(from_hf(theirs, config, "folder").arrays) == sorted(ours)
    theirs["albert.encoder.embedding_hidden_mapping_in.weight"] = kernel * 2
    with pytest.raises(UserError, match="folder: embedding_hidden_mapping_in is not the identity, but embedding_size"):
        from_hf(theirs, config, "folder")


def test_unknown_arrays_and_another_number_of_groups_are_named(config, arrays):
    other = dataclasses.replace(config, num_hidden_groups=1)
    with pytest.raises(
        UserError,
        match=r"folder contains albert\S*groups\.1\S* .*an ALBERT with num_hidden_groups=1 and inner_group_num=2",
    ):
        from_hf(arrays, other, "folder")


def checkpoint_of(config, folder):
    return BertEncoder(config).save_checkpoint(folder)


@pytest.mark.parametrize(
    ("given", "wanted", "message"),
    [
        (ALBERT, PLAIN, "has ALBERT's shared layers, but the config is a BERT's; give the albert_config.json"),
        (PLAIN, ALBERT, "has the layers of a BERT, .* is an ALBERT's .num_hidden_groups.; give the bert_config.json"),
    ],
    ids=["ALBERT's checkpoint", "BERT's checkpoint"],
)
def test_the_error_names_the_config_of_the_other_family(tmp_path, given, wanted, message):
    prefix = checkpoint_of(given, tmp_path / "given")
    variables = BertEncoder(wanted).trainable_variables
    with pytest.raises(UserError, match=message):
        load(CheckpointReader(prefix), variables)
    with pytest.raises(UserError, match=message):
        BertEncoder.from_checkpoint(tmp_path / "given", bert_config=wanted)
    reader = CheckpointReader(prefix)
    with pytest.raises(UserError, match=message):
        to_hf({name: reader.read(name) for name in reader.shapes}, wanted, prefix)


def test_a_released_folder_has_another_name_for_its_config(tmp_path):
    encoder = BertEncoder(ALBERT)
    folder = tmp_path / "albert_tiny"
    encoder.save_checkpoint(folder / "model.ckpt-best")
    shutil.move(folder / "bert_config.json", folder / "albert_config.json")
    loaded = BertEncoder.from_checkpoint(folder)
    assert loaded.config == ALBERT
    np.testing.assert_array_equal(loaded.word_embeddings, encoder.word_embeddings)


def test_the_tool_converts_in_both_directions(tmp_path, config, arrays):
    theirs, ours, back = tmp_path / "theirs", tmp_path / "ours", tmp_path / "back"
    shutil.copytree(FOLDER, theirs)
    size = json.loads((theirs / "config.json").read_text())["vocab_size"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{number}" for number in range(size - 5))]
    (theirs / "vocab.txt").write_text("\n".join(pieces) + "\n")
    convert_hf_checkpoint.run(HfConversionConfig(hf_dir=str(theirs), output_dir=str(ours)))
    variables = BertEncoder.from_checkpoint(ours).checkpoint_variables()
    for name, array in read_model(str(FOLDER), config).arrays.items():
        if name in variables:
            np.testing.assert_array_equal(variables[name], array)
    files = {"bert_config_file": "bert_config.json", "vocab_file": "vocab.txt", "init_checkpoint": "bert_model.ckpt"}
    paths = {name: str(ours / path) for name, path in files.items()}
    convert_hf_checkpoint.run(HfConversionConfig(to_hf=True, **paths, output_dir=str(back)))
    again = read_folder(str(back), config)
    assert all(np.array_equal(again[name], array) for name, array in arrays.items())
    written = json.loads((back / "config.json").read_text())
    assert (written["model_type"], written["architectures"]) == ("albert", ["AlbertForPreTraining"])
