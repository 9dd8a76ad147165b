"""Whole conversions from folder to folder, without PyTorch."""

import json
import os

import pytest
import tokenizers

from official_bert.commands.convert_hf_checkpoint import HfConversionConfig
from official_bert.tokenization import load_tokenizer
from tests.commands.conftest import MODEL_FILES, arrays_of, assert_same_arrays
from tests.conftest import GOLDEN, prints_error, run_here


@pytest.fixture
def checkpoint_flags(model_dir, vocab_file):
    """A checkpoint of the reference, including optimizer state."""
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
    run_here("convert_hf_checkpoint", **flags)


def test_there_and_back_gives_the_same_files(checkpoint_flags, hf_dir, model_dir, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    written = ["README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    assert sorted(os.listdir(hf_dir)) == written
    assert json.loads((hf_dir / "config.json").read_text())["architectures"] == ["BertForPreTraining"]
    out = tmp_path / "new" / "folder"
    convert(hf_dir=str(hf_dir), output_dir=str(out))
    assert sorted(os.listdir(out)) == MODEL_FILES
    after = arrays_of(out / "bert_model.ckpt")
    assert len(after) == 62
    assert_same_arrays(checkpoint_flags["init_checkpoint"], after, after)
    before, after = (json.loads((folder / "bert_config.json").read_text()) for folder in (model_dir, out))
    assert before == after
    assert (out / "vocab.txt").read_text() == open(checkpoint_flags["vocab_file"]).read()
    assert "encoder, pooler, masked-LM head, next-sentence head; 62 arrays" in caplog.text
    assert "use them with --do_lower_case=true" in caplog.text


@pytest.mark.slow
def test_casing_goes_along(checkpoint_flags, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    for name, given, told in (
        ("cased", {"do_lower_case": False}, "--do_lower_case=false"),
        ("accented", {"strip_accents": False}, "--do_lower_case=true --strip_accents=false"),
        ("split", {"do_lower_case": False, "basic_tokenize": False}, "--do_lower_case=false --basic_tokenize=false"),
    ):
        convert(**checkpoint_flags, **given, output_dir=str(tmp_path / name))
        convert(hf_dir=str(tmp_path / name), output_dir=str(tmp_path / f"back_{name}"))
        assert caplog.messages[-1] == f"use them with {told}"
        is_told = "says do_basic_tokenize: false, which only the Python tokenizer" in caplog.text
        assert is_told == ("basic_tokenize" in given)
    cased = tmp_path / "cased"
    assert json.loads((cased / "tokenizer_config.json").read_text())["do_lower_case"] is False
    os.remove(cased / "tokenizer_config.json")
    os.remove(cased / "tokenizer.json")
    convert(hf_dir=str(cased), output_dir=str(tmp_path / "out"))
    assert caplog.messages[-1] == "use them with --do_lower_case=true"  # as its vocabulary


def test_added_tokens_go_along(checkpoint_flags, hf_dir, tmp_path):
    os.remove(hf_dir / "tokenizer.json")
    *lines, _, _ = (hf_dir / "vocab.txt").read_text().splitlines(keepends=True)
    (hf_dir / "vocab.txt").write_text("".join(lines))
    (hf_dir / "added_tokens.json").write_text(json.dumps({"<e1>": len(lines), "</e1>": len(lines) + 1}))
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    convert(hf_dir=str(hf_dir), output_dir=str(ours))
    assert "vocab.txt" not in os.listdir(ours)
    files = {"bert_config_file": str(ours / "bert_config.json"), "vocab_file": str(ours / "wordpiece.json")}
    convert(**{**checkpoint_flags, **files, "init_checkpoint": str(ours / "bert_model.ckpt")}, output_dir=str(theirs))
    assert (theirs / "vocab.txt").read_text() == "".join(lines)
    text = "The <e1>harbour</E1> slept, <e2> [MASK]"
    ids = load_tokenizer(hf_dir).encode(text)
    assert {len(lines), len(lines) + 1} < set(ids)
    assert load_tokenizer(ours, do_lower_case=True).encode(text) == load_tokenizer(theirs).encode(text) == ids
    plain = text.removesuffix("[MASK]")  # which is special there
    splitter = tokenizers.Tokenizer.from_file(str(theirs / "tokenizer.json"))
    assert splitter.encode(plain, add_special_tokens=False).ids == load_tokenizer(theirs).encode(plain)


def test_no_model_is_overwritten(checkpoint_flags, hf_dir):
    with prints_error(r"--output_dir=.*README\.md exists already; give another folder"):
        convert(hf_dir=str(hf_dir), output_dir=str(hf_dir))
    assert "bert_config.json" not in os.listdir(hf_dir)
    with prints_error(r"--output_dir=.*README\.md exists already; give another folder"):
        convert(**checkpoint_flags, output_dir=str(hf_dir))


@pytest.mark.parametrize("name", ["bert_labels", "electra_tags"])
def test_labels_go_along_and_a_card_says_what_the_model_is(name, tmp_path):
    source = GOLDEN / "families" / "answers" / name
    here, back = tmp_path / "here", tmp_path / "back"
    convert(hf_dir=str(source), output_dir=str(here))
    flags = {"bert_config_file": str(here / "bert_config.json"), "vocab_file": str(here / "vocab.txt")}
    convert(to_hf=True, init_checkpoint=str(here), **flags, output_dir=str(back))
    assert (back / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (source, back))
    assert [after[key] for key in ("id2label", "label2id")] == [before[key] for key in ("id2label", "label2id")]
    purpose, labels = {
        "bert_labels": ("text-classification", "`bad, sad`, `soso`, `naïf`"),
        "electra_tags": ("token-classification", "`O`, `B-PER`, `I-PER`, `B-LOC`"),
    }[name]
    card = (back / "README.md").read_text()
    lines = {f"pipeline_tag: {purpose}", f"| labels | {labels} |", "| layers | 1 |", "# back", "do_lower_case: true"}
    assert all(line in card for line in lines)
    assert "license:" not in card
    (here / "labels.json").write_text('["one"]')
    with prints_error("has . classes, but .*here names 1: 'one'; correct its labels.json"):
        convert(to_hf=True, init_checkpoint=str(here), **flags, output_dir=str(tmp_path / "other"))


def test_the_kind_of_problem_goes_along(tmp_path):
    source = GOLDEN / "families" / "answers" / "bert_several"
    flags = {"bert_config_file": str(source / "config.json"), "vocab_file": str(source / "vocab.txt")}
    convert(to_hf=True, init_checkpoint=str(source), **flags, output_dir=str(tmp_path / "hf"))
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["problem_type"] == "multi_label_classification"


def test_a_larger_vocabulary_or_a_missing_file_is_refused_before_anything_is_written(hf_dir, tmp_path):
    def refused(message):
        with prints_error(message):
            convert(hf_dir=str(hf_dir), output_dir=str(tmp_path / "out"))
        assert not (tmp_path / "out").exists()

    os.remove(hf_dir / "tokenizer.json")
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        (hf_dir / name).rename(tmp_path / "aside")
        refused(name)
        (tmp_path / "aside").rename(hf_dir / name)
    with open(hf_dir / "vocab.txt", "a") as vocab:
        vocab.write("ones\ntwos\n")
    refused(f"{hf_dir}/vocab.txt has 1184 wordpieces, .*config.json a vocab_size of 1182")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "give --hf_dir, or --init_checkpoint with --to_hf"),
        ({"hf_dir": "a", "init_checkpoint": "b"}, "--init_checkpoint cannot be used with --hf_dir"),
        ({"to_hf": True, "init_checkpoint": "b"}, "--bert_config_file is missing; it is needed with --to_hf"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags, message):
    with prints_error(message):
        HfConversionConfig(output_dir="out", **flags)
