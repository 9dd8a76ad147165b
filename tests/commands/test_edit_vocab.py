"""`edit_checkpoint` with a text, which changes the vocabulary: outputs of the new models, and invalid input."""

import json
import os
import re
import shutil

import numpy as np
import pytest

from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.tokenization import FullTokenizer, Vocabulary
from tests.commands.conftest import MODEL_FILES, arrays_of, assert_same_arrays
from tests.conftest import assert_refused, run_script

DOMAIN = "the harbourmasters saw the harbourmasters .\nbridgework is a bridgework of the harbourmasters .\n"


@pytest.fixture
def flags(files_of_model, tmp_path):
    text = tmp_path / "domain.txt"
    text.write_text(DOMAIN * 4)
    return {**files_of_model, "input_file": str(text), "output_dir": str(tmp_path / "out")}


def encoded(folder, vocab_file, text):
    """Return the tokens of a text and the encoder's outputs."""
    tokenizer = FullTokenizer(vocab_file)
    tokens = ["[CLS]", *tokenizer.tokenize(text), "[SEP]"]
    outputs = BertEncoder.from_checkpoint(folder)(np.array([tokenizer.convert_tokens_to_ids(tokens)]))
    return tokens, {name: np.asarray(outputs[name]) for name in ("sequence_output", "pooled_output")}


def assert_same_outputs(flags, text):
    """Assert that the new model tokenizes and encodes a text as the old one does."""
    tokens, outputs = encoded(flags["init_checkpoint"], flags["vocab_file"], text)
    same_tokens, same_outputs = encoded(flags["output_dir"], f"{flags['output_dir']}/vocab.txt", text)
    assert tokens == same_tokens
    assert_same_arrays(outputs, same_outputs)


@pytest.mark.slow
def test_an_extended_model_computes_the_same_of_texts_without_new_tokens(flags):
    result = run_script("edit_checkpoint", **flags, num_new_tokens=3)
    assert result.code == 0, result
    out = flags["output_dir"]
    assert sorted(os.listdir(out)) == MODEL_FILES
    old, new = Vocabulary.from_file(flags["vocab_file"]), Vocabulary.from_file(f"{out}/vocab.txt")
    added = [token for token in new.token_to_id if token not in old.token_to_id]
    assert len(added) == 3 and "adding 3 wordpieces" in result.errors
    assert json.loads(open(f"{out}/bert_config.json").read())["vocab_size"] == new.size
    before, after = map(float, re.findall(r"(\S+) wordpieces per word", result.errors))
    assert after < before

    assert_same_outputs(flags, "the snow is warm")
    first, second = arrays_of(flags["init_checkpoint"]), arrays_of(out)
    tokenizer = FullTokenizer(flags["vocab_file"])
    for name in ("bert/embeddings/word_embeddings", "cls/predictions/output_bias"):
        for token in added:
            parts = tokenizer.convert_tokens_to_ids(tokenizer.tokenize(token.removeprefix("##")))
            if not token.startswith("##"):
                expected = first[name][parts].mean(axis=0)
                np.testing.assert_allclose(second[name][new.token_to_id[token]], expected, rtol=1e-5, atol=1e-7)
    PretrainingModel.from_checkpoint(out)


@pytest.mark.slow
def test_checkpoints_are_averaged_and_extended_by_a_text_with_more_characters_than_wordpieces(flags, tmp_path):
    size = Vocabulary.from_file(flags["vocab_file"]).size
    (tmp_path / "domain.txt").write_text(" ".join(map(chr, range(0xAC00, 0xAC00 + size))) * 2)
    folders = [str(tmp_path / name) for name in ("first", "second")]
    for folder in folders:
        shutil.copytree(os.path.dirname(flags["init_checkpoint"]), folder)
        shutil.copy(flags["vocab_file"], f"{folder}/vocab.txt")
    files = {name: flags[name] for name in ("input_file", "output_dir")}  # the model's are those of the first folder
    files["init_checkpoint"] = ",".join(f"{folder}/bert_model.ckpt" for folder in folders)
    result = run_script("edit_checkpoint", **files, num_new_tokens=5, max_characters=size)
    assert result.code == 0, result
    assert Vocabulary.from_file(f"{flags['output_dir']}/vocab.txt").size == size + 5


@pytest.mark.slow
def test_a_pruned_model_computes_the_same_of_the_text(flags):
    result = run_script("edit_checkpoint", **flags, prune=True)
    assert result.code == 0, result
    out = flags["output_dir"]
    old, new = Vocabulary.from_file(flags["vocab_file"]), Vocabulary.from_file(f"{out}/vocab.txt")
    assert new.size < old.size / 2 and json.loads(open(f"{out}/bert_config.json").read())["vocab_size"] == new.size
    for text in DOMAIN.splitlines():
        assert_same_outputs(flags, text)
    arrays, kept = arrays_of(flags["init_checkpoint"]), old.ids(new.tokens(range(new.size)))
    for name in ("bert/embeddings/word_embeddings", "cls/predictions/output_bias"):
        arrays[name] = arrays[name][kept]
    assert_same_arrays(out, arrays)


@pytest.mark.parametrize("action", [{"num_new_tokens": 9}, {"prune": True}])
def test_files_that_do_not_belong_together_are_refused(flags, tmp_path, action):
    def refuse(changes, *parts):
        assert_refused("edit_checkpoint", {**flags, **action, **changes}, *parts)
        assert not os.path.exists(flags["output_dir"])

    (tmp_path / "empty.txt").write_text("\n\n")
    refuse({"input_file": str(tmp_path / "empty.txt")}, "the text has no words")
    longer = tmp_path / "longer.txt"
    longer.write_text(open(flags["vocab_file"]).read() + "ones\nmores\n")
    refuse({"vocab_file": str(longer)}, "longer.txt", "vocab_size")
    config = json.loads(open(flags["bert_config_file"]).read())
    larger = tmp_path / "larger.json"
    larger.write_text(json.dumps({**config, "vocab_size": config["vocab_size"] + 2}))
    refuse({"vocab_file": str(longer), "bert_config_file": str(larger)}, "has embeddings of", "belong together")


def test_flags_of_the_other_action_are_refused(flags, tmp_path):
    (tmp_path / "old.txt").write_text("the snow\n")
    for changes, part in (
        ({"input_file": tmp_path / "old.txt", "num_new_tokens": 9}, "nothing to add"),
        ({}, "give either --num_new_tokens, to add wordpieces, or --prune"),
        ({"num_new_tokens": 9, "prune": True}, "give either --num_new_tokens"),
        ({"prune": True, "min_frequency": 3}, "--min_frequency needs --num_new_tokens"),
    ):
        assert_refused("edit_checkpoint", {**flags, **changes}, part)
