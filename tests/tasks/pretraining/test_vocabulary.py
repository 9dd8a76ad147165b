"""The vocabulary of a pretraining run, as given by records, flags and the output folder."""

import os
import pathlib
import shutil

import pytest

from official_bert.config.text_settings import TextSettings
from official_bert.support.errors import UserError
from official_bert.support.manifest import find_inputs, is_no_sidecar
from official_bert.tasks.pretraining.data import find_tokenizer, with_vocabulary
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.tokenization import Vocabulary
from tests.conftest import run_here

CASED = {"do_lower_case": False}
SHARDED = {"sampling": "sharded", "num_processes": 1, "num_shards": 2}


@pytest.fixture
def make(tmp_path, corpus_file, vocab_file):
    """Return a function that makes records with some flags and returns their paths, found as in training."""

    def run(name, **changes):
        flags = {"input_file": corpus_file, "vocab_file": vocab_file, "max_seq_length": 64, "dupe_factor": 1}
        run_here("create_pretraining_data", **{**flags, "output_file": tmp_path / name, **changes})
        return find_inputs(f"{tmp_path / name}*", is_input=is_no_sidecar)

    return run


def config(**flags):
    return PretrainingConfig(bert_config_file="c", output_dir="absent", input_file="i", do_train=True, **flags)


@pytest.mark.parametrize("flags", [CASED, {**SHARDED, **CASED}], ids=["serial", "sharded"])
def test_records_keep_it_beside_them(make, vocab_file, tmp_path, flags):
    paths = make("records", **flags)
    assert len(paths) == flags.get("num_shards", 1)
    completed = with_vocabulary(config(), paths[-1:])
    assert completed.vocab_file == str(tmp_path / "records.vocab.txt")
    assert pathlib.Path(completed.vocab_file).read_bytes() == pathlib.Path(vocab_file).read_bytes()
    assert completed.text_settings == TextSettings(do_lower_case=False)
    given = with_vocabulary(config(vocab_file=vocab_file), paths)
    assert (given.vocab_file, given.text_settings) == (vocab_file, completed.text_settings)
    with pytest.raises(UserError, match="strip_accents=false, but .*tokenizer.json says .* strip_accents=true; leave"):
        with_vocabulary(config(strip_accents=False), paths)


def test_it_is_not_taken_from_what_does_not_know_it(make, vocab_file, tmp_path):
    (path,) = make("records")
    lines = Vocabulary.from_file(vocab_file).tokens(range(1100))
    other, copy = tmp_path / "other.txt", tmp_path / "copy.tfrecord"
    other.write_text("\n".join([*lines[:-2], lines[-1], lines[-2]]) + "\n")
    with pytest.raises(UserError, match="other.txt is not the vocabulary that the records .*; leave vocab_file out"):
        with_vocabulary(config(vocab_file=str(other)), [path])
    (cased,) = make("cased", **CASED)
    with pytest.raises(UserError, match="another vocabulary or other text settings"):
        with_vocabulary(config(), [path, cased])
    shutil.copy(path, copy)
    assert with_vocabulary(config(), [str(copy)]).vocab_file is None
    assert with_vocabulary(config(), [str(copy), path]).vocab_file == f"{path}.vocab.txt"
    with pytest.raises(UserError, match="dynamic_masking needs the vocab_file that the records were made with"):
        with_vocabulary(config(dynamic_masking=True), [str(copy)])
    shutil.copy(other, f"{path}.vocab.txt")
    with pytest.raises(UserError, match="records.vocab.txt is not the vocabulary .*; restore it or delete .*json"):
        with_vocabulary(config(), [path])
    with open(path, "ab") as replaced:
        replaced.write(b"more")
    assert find_tokenizer([path]) is None
    with open(f"{path}.tokenizer.json", "w") as note:
        note.write('{"file": 3}')
    with pytest.raises(UserError, match="json has no num_bytes; restore or delete it"):
        find_tokenizer([path])


def test_keeping_it_overwrites_no_input_and_needs_complete_records(make, tmp_path, corpus_file):
    corpus = tmp_path / "text.vocab.txt"
    shutil.copy(corpus_file, corpus)
    with pytest.raises(UserError, match="text.vocab.txt is also an input"):
        make("text", input_file=str(corpus))
    (tmp_path / "blank").write_text("\n")
    with pytest.raises(UserError, match="no text in"):
        make("records", input_file=str(tmp_path / "blank"))
    assert sorted(os.listdir(tmp_path)) == ["blank", "text.vocab.txt"]


def test_the_folder_of_the_first_weights_is_asked_last(tmp_path):
    (tmp_path / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\n[MASK]\nTown\n")
    names = {"bert_config_file": "b", "output_dir": str(tmp_path / "out"), "init_checkpoint": str(tmp_path)}
    config = with_vocabulary(PretrainingConfig(**names, do_export=True, export_dir="e"), [])
    assert (config.vocab_file, config.do_lower_case) == (str(tmp_path / "vocab.txt"), False)
    config = PretrainingConfig(**names, do_eval=True, input_file="r")  # needs no vocabulary
    assert with_vocabulary(config, []) == config
