"""A model under long use: constant results and memory, no retracing, with and without hostile requests."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT, script_environment
from tests.serving.tiny_exports import write_tiny_export

HOSTILE_EVERY = 50


@pytest.fixture(scope="module")
def export(tmp_path_factory, vocab_file, one_layer_config_file):
    folder = tmp_path_factory.mktemp("serving")
    return write_tiny_export(folder, "classification", bert_config_file=one_layer_config_file, vocab_file=vocab_file)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "num_requests"),
    [
        ("signature", 1000),
        ("predictor", 1000),
        pytest.param("signature", 100_000, marks=pytest.mark.endurance),
        pytest.param("predictor", 20_000, marks=pytest.mark.endurance),
    ],
)
def test_answers_and_memory_stay_the_same(export, way, num_requests):
    command = [sys.executable, "-m", "tests.faults.service_life", export, str(num_requests), way]
    process = subprocess.run(command, cwd=ROOT, env=script_environment(), capture_output=True, text=True, timeout=3000)
    assert process.returncode == 0, process.stderr[-2000:]
    found = json.loads(process.stdout)
    print(found)
    assert found["worst"] < 1e-5
    assert found["refused"] == num_requests // HOSTILE_EVERY
    assert found["new_operations"] == 0
    assert found["after"] < 1.05 * found["before"]
