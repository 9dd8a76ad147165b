"""Exports in older releases of TensorFlow, each in an environment of its own that has nothing else."""

import os
import subprocess
import sys

import pytest
import tensorflow as tf

from official_bert.serving.saved_model import read_warmup
from tests import ask_export
from tests.exports import ask, assert_same
from tests.serving.server_process import to_json
from tests.serving.tiny_exports import TASKS

KINDS = {
    "classifier": {"task": "classification"},
    "regression": {"task": "classification", "labels": ()},
    "multi_label": {"task": "classification", "problem": "multi_label", "thresholds": (0.4, 0.5, 0.6)},
    "tuned": {"task": "classification", "labels": ("no", "yes"), "thresholds": (0.3,)},
    **{task: {"task": task} for task in TASKS if task != "classification"},
}

pytestmark = pytest.mark.endurance


@pytest.fixture(scope="module")
def asked(write_export, tmp_path_factory):
    """Return each export, its warm-up requests, and the answers of this TensorFlow."""
    found = []
    for kind, options in KINDS.items():
        version = write_export(tmp_path_factory.mktemp(kind) / kind, **options)
        signatures = tf.saved_model.load(version).signatures
        requests, answers = [], []
        for name, inputs in read_warmup(os.path.join(version, "assets.extra", "tf_serving_warmup_requests")):
            outputs = signatures[name](**{key: tf.constant(values) for key, values in inputs.items()})
            requests.append([name, {key: to_json(values.tolist()) for key, values in inputs.items()}])
            answers.append({key: ask_export.plain(values.numpy().tolist()) for key, values in outputs.items()})
        assert {name for name, _ in requests} == set(signatures)
        found.append((version, requests, answers))
    return found


@pytest.mark.parametrize("version", ["2.18.1", "2.19.1", "2.20.0"])
def test_every_signature_gives_the_same_answers(version, asked, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "environment"], check=True)
    python = tmp_path / "environment" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", f"tensorflow-cpu=={version}"], check=True)
    for export, requests, answers in asked:
        assert_same(ask(export, requests, tmp_path, python), answers)
