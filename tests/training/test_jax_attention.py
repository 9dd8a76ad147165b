"""Fused attention on JAX equals plain attention."""

import subprocess
import sys

import pytest

from tests.conftest import script_environment


@pytest.mark.slow
def test_fused_attention_equals_plain_attention():
    environment = {**script_environment(), "KERAS_BACKEND": "jax", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [sys.executable, "-m", "tests.training.attention_runs"]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stderr
