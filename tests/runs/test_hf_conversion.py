"""Whole conversions, from folder to folder. Nothing here needs PyTorch."""

import json
import os
import shutil

import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.config.run_configs import HfConversionConfig
from official_bert.errors import UserError
from official_bert.runs import hf_conversion


@pytest.fixture
def checkpoint_flags(model_dir, vocab_file):
    """A checkpoint of the reference, optimizer state included."""
    return {
        "to_hf": True,
        "init_checkpoint": str(model_dir / "trained_model.ckpt-12"),
        "bert_config_file": str(model_dir / "bert_config.json"),
        "vocab_file": vocab_file,
    }


@pytest.fixture
def hf_dir(checkpoint_flags, tmp_path):
    folder = tmp_path / "hf"
    convert(**checkpoint_flags, output_dir=str(folder))
    return folder


def convert(**flags):
    hf_conversion.run(HfConversionConfig(**flags))


def test_there_and_back_gives_the_same_files(checkpoint_flags, hf_dir, model_dir, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    assert sorted(os.listdir(hf_dir)) == ["config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"]
    assert json.loads((hf_dir / "config.json").read_text())["architectures"] == ["BertForPreTraining"]
    out = tmp_path / "new" / "folder"
    convert(hf_dir=str(hf_dir), output_dir=str(out))
    assert sorted(os.listdir(out)) == [
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "vocab.txt",
    ]
    before, after = (
        CheckpointReader(checkpoint_flags["init_checkpoint"]),
        CheckpointReader(str(out / "bert_model.ckpt")),
    )
    assert len(after.shapes) == 62
    for name in after.shapes:
        np.testing.assert_array_equal(after.read(name), before.read(name), err_msg=name)
    assert json.loads((out / "bert_config.json").read_text()) == json.loads(
        (model_dir / "bert_config.json").read_text()
    )
    with open(checkpoint_flags["vocab_file"]) as expected:
        assert (out / "vocab.txt").read_text() == expected.read()
    assert "encoder, pooler, masked-LM head, next-sentence head; 62 arrays" in caplog.text
    assert "use them with --do_lower_case=true" in caplog.text


def test_casing_goes_along(checkpoint_flags, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    hf_dir = tmp_path / "cased"
    convert(**checkpoint_flags, do_lower_case=False, output_dir=str(hf_dir))
    assert json.loads((hf_dir / "tokenizer_config.json").read_text())["do_lower_case"] is False
    convert(hf_dir=str(hf_dir), output_dir=str(tmp_path / "out"))
    assert "--do_lower_case=false" in caplog.text
    os.remove(hf_dir / "tokenizer_config.json")
    convert(hf_dir=str(hf_dir), output_dir=str(tmp_path / "out"))
    assert "does not say whether text is lower-cased" in caplog.text


def test_no_input_is_overwritten(checkpoint_flags, hf_dir, model_dir, tmp_path):
    with pytest.raises(UserError, match=r"--output_dir: .*vocab\.txt is also an input"):
        convert(hf_dir=str(hf_dir), output_dir=str(hf_dir))
    assert "bert_config.json" not in os.listdir(hf_dir)
    mine = tmp_path / "mine"
    mine.mkdir()
    shutil.copy(model_dir / "bert_config.json", mine / "config.json")
    flags = {**checkpoint_flags, "bert_config_file": str(mine / "config.json")}
    with pytest.raises(UserError, match=r"--output_dir: .*config\.json is also an input"):
        convert(**flags, output_dir=str(mine))
    assert os.listdir(mine) == ["config.json"]


def test_a_vocabulary_larger_than_the_model_is_refused(checkpoint_flags, hf_dir, tmp_path):
    with open(hf_dir / "vocab.txt", "a") as vocab:
        vocab.write("one\ntwo\n")
    message = "has 1184 pieces, the model's vocab_size is 1182"
    with pytest.raises(UserError, match=f"the vocabulary of {hf_dir} {message}"):
        convert(hf_dir=str(hf_dir), output_dir=str(tmp_path / "out"))
    with pytest.raises(UserError, match=message):
        convert(**{**checkpoint_flags, "vocab_file": str(hf_dir / "vocab.txt")}, output_dir=str(tmp_path / "out"))
    (hf_dir / "vocab.txt").write_text("")
    with pytest.raises(UserError, match="has 0 pieces"):
        convert(hf_dir=str(hf_dir), output_dir=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.txt"])
def test_a_missing_file_is_named_before_anything_is_written(hf_dir, tmp_path, name):
    os.remove(hf_dir / name)
    with pytest.raises(UserError, match=name):
        convert(hf_dir=str(hf_dir), output_dir=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "--hf_dir is missing; it is needed without --to_hf"),
        ({"hf_dir": "a", "init_checkpoint": "b"}, "--init_checkpoint has no use without --to_hf"),
        ({"to_hf": True, "init_checkpoint": "b"}, "--bert_config_file is missing; it is needed with --to_hf"),
        (
            {"to_hf": True, "init_checkpoint": "b", "bert_config_file": "c", "vocab_file": "d", "hf_dir": "a"},
            "--hf_dir has no use with --to_hf",
        ),
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags, message):
    with pytest.raises(UserError, match=message):
        HfConversionConfig(output_dir="out", **flags)
