"""Shared by the tests of commands: generated data in the layout of SST-2, and what runs wrote."""

import json
import os
import random

import numpy as np
import pytest

from official_bert.training.run_folder import read_results
from tests.conftest import run_here
from tests.record_files import arrays_of
from tests.sentences import sentence

MODEL_FILES = ["bert_config.json", "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index", "vocab.txt"]


def bytes_in(folder):
    """Return the contents of all files by name, except logs, to which every run appends."""
    paths = (os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return {os.path.relpath(path, folder): open(path, "rb").read() for path in paths if "/events." not in path}


def assert_same_arrays(first, second, names=None):
    """Compare arrays by name, or those of checkpoints; all of them or only some."""
    first, second = (each if isinstance(each, dict) else arrays_of(each) for each in (first, second))
    if names is None:
        assert first.keys() == second.keys()
    for name in names or second:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def results_of(settings, name="eval_results.txt"):
    return read_results(os.path.join(settings["output_dir"], name))


def json_lines(path):
    with open(path, encoding="utf-8") as source:
        return [json.loads(line) for line in source]


def table(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as source:
        return [line.rstrip("\n").split("\t") for line in source]


def write_rows(path, header, rows):
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in [*([header] if header else []), *rows]))


def other_vocabulary(vocab_file, folder):
    """Write a vocabulary whose last two tokens are in the other order."""
    with open(vocab_file, encoding="utf-8") as source:
        *lines, last, first = source.read().splitlines()
    (folder / "other.txt").write_text("\n".join([*lines, first, last, ""]), encoding="utf-8")
    return str(folder / "other.txt")


def of_run(folder):
    """Flags for the model of a finished run."""
    files = {"init_checkpoint": "", "bert_config_file": "bert_config.json", "vocab_file": "vocab.txt"}
    return {flag: os.path.join(folder, name) for flag, name in files.items()}


def converted(run, folder, **flags):
    """Return the Hugging Face folder of a finished run, after writing it."""
    run_here("convert_hf_checkpoint", **of_run(run), to_hf=True, output_dir=folder, **flags)
    return folder


def without_dropout(config_file, folder, **changes):
    """Write an architecture from a file, with changes and without dropout."""
    config = {**json.loads(open(config_file).read()), "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    path = folder / "bert_config.json"
    path.write_text(json.dumps({**config, **changes}))
    return str(path)


@pytest.fixture(scope="session")
def sst2(tmp_path_factory, one_layer_model):
    """Flags of a run of `run_classifier`, except what it does, on texts of different lengths with a learnable rule."""
    folder, rng = tmp_path_factory.mktemp("sst2"), random.Random(1)
    for split, count in (("train", 48), ("dev", 19), ("test", 11)):
        rows = [(f"{sentence(rng, row % 2)} {'snow ' * rng.randrange(9)}", row % 2) for row in range(count)]
        if split == "test":
            write_rows(folder / "test.tsv", ("index", "sentence"), enumerate(text for text, _ in rows))
        else:
            write_rows(folder / f"{split}.tsv", ("sentence", "label"), rows)
    return {
        **one_layer_model, "task_name": "SST-2", "data_dir": str(folder), "max_seq_length": 24, "train_batch_size": 8,
        "num_train_epochs": 1.0, "learning_rate": 1e-3,
    }  # fmt: skip
