"""Shared by tests of exports: calling them, and the scripts' predictions."""

import functools
import json
import os
import pathlib
import subprocess
import sys

import numpy as np

from official_bert.inference.finished_runs import SavedModel
from official_bert.inference.predictor import Predictor
from official_bert.serving.saved_model import signature_of
from official_bert.serving.signatures import CLASSIFY, SIGNATURES
from official_bert.tasks.task_registry import TASKS

ASK_EXPORT = pathlib.Path(__file__).parent / "ask_export.py"
TOLERANCE = 1e-5
OF_CLASSIFIER = (*SIGNATURES, CLASSIFY)
LABELS = ("bad", "good", "mixed")


def traced_once(servable):
    """Make a servable cache its traced signatures for all tests; return it."""
    servable.signature = functools.cache(servable.signature)
    return servable


class _Signatures(dict):
    def __init__(self, servable):
        super().__init__()
        self._servable = servable

    def __missing__(self, name):
        return self.setdefault(name, signature_of(name, self._servable.signature(name)))


def graph_predictor(servable):
    """Return a `Predictor` that calls the operations of a servable, as that of its SavedModel does."""
    predictor, model = Predictor.__new__(Predictor), SavedModel.__new__(SavedModel)
    model.signatures, model.task, model.text_names = _Signatures(servable), servable.task, servable.text_names
    model.num_positions = servable.num_example_positions
    model.results = TASKS[servable.task].reader_module.results
    predictor._model = model
    return predictor


def ask(export, requests, folder, python=sys.executable):
    """Send requests to an export in a separate process, in an empty folder, without this project's path."""
    folder = folder / "empty"
    folder.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.run(
        [python, "-I", str(ASK_EXPORT), export],
        input=json.dumps(requests), capture_output=True, text=True, cwd=folder, env=environment, timeout=300,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert result["foreign"] == []
    return result["answers"]


def assert_same(found, expected):
    """Assert equal JSON results, except the last digits of numbers, which depend on batching."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_same(found[name], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for value, other in zip(found, expected, strict=True):
            assert_same(value, other)
    elif isinstance(expected, float):
        assert abs(found - expected) <= TOLERANCE
    else:
        assert found == expected


def predicted_pairs(reviews):
    lines = pathlib.Path(reviews["data_dir"], "test.tsv").read_text().splitlines()[1:]
    return [line.split("\t")[:2] for line in lines]


def predicted(folder):
    return np.loadtxt(os.path.join(folder, "test_results.tsv"), ndmin=2)
