"""Shared by the tests of commands: generated data in the layout of SST-2, and what runs wrote."""

import json
import os
import random

import numpy as np
import pytest

from official_bert.training.run_folder import read_results
from tests.record_files import arrays_of
from tests.sentences import sentence


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


def write_rows(path, header, rows):
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in [*([header] if header else []), *rows]))


@pytest.fixture(scope="session")
def sst2(tmp_path_factory, one_layer_model):
    """Flags of a run of `run_classifier`, except what it does, on texts of different lengths with a learnable rule."""
    folder, rng = tmp_path_factory.mktemp("sst2"), random.Random(1)
    for split, count in (("train", 48), ("dev", 19)):
        rows = [(f"{sentence(rng, row % 2)} {'snow ' * rng.randrange(9)}", row % 2) for row in range(count)]
        write_rows(folder / f"{split}.tsv", ("sentence", "label"), rows)
    return {
        **one_layer_model, "task_name": "SST-2", "data_dir": str(folder), "max_seq_length": 24, "train_batch_size": 8,
        "num_train_epochs": 1.0, "learning_rate": 1e-3,
    }  # fmt: skip
