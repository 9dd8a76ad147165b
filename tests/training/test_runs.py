"""Training runs as processes: interrupted, resumed, and on several devices."""

import json
import os
import re
import signal
import subprocess

import numpy as np
import pytest

from tests.conftest import run_script, script_command, script_environment
from tests.training.short_runs import arrays_of, pretraining_flags

pytestmark = pytest.mark.slow


@pytest.fixture
def flags(records_file, model_dir):
    return pretraining_flags(records_file, model_dir)


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"], line["gradient_norm"]) for line in lines if line["split"] == "train"]


def interrupt(flags, sign, *wanted):
    """Start a run, send a signal whenever one of the lines appears in its log; return its exit code and log."""
    command = script_command("run_pretraining.py", flags)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=script_environment()) as process:
        log = []
        for line in process.stderr:
            log.append(line)
            if any(text in line for text in wanted):
                process.send_signal(sign)
        return process.wait(), "".join(log)


@pytest.mark.endurance
def test_a_run_killed_and_resumed_equals_one_uninterrupted(flags, tmp_path, unmasked_records_file, vocab_file):
    # Dynamic masking (tests/faults/test_kills.py has masked records), with dropout, over several epochs, killed between
    # two checkpoints, one of which is between two log lines; only the seed makes the two processes equal.
    flags.update(
        num_train_steps=60, save_checkpoints_steps=20, log_steps=15,
        input_file=unmasked_records_file, dynamic_masking=True, vocab_file=vocab_file,
    )  # fmt: skip
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run_script("run_pretraining.py", **flags, output_dir=whole).code == 0
    code, log = interrupt({**flags, "output_dir": broken}, signal.SIGKILL, "step 30:")
    assert code == -signal.SIGKILL
    assert "model.ckpt-60.index" not in os.listdir(broken)
    # For any number of steps per compiled call.
    result = run_script("run_pretraining.py", **flags, output_dir=broken, iterations_per_loop=3)
    assert result.code == 0, result
    assert "resuming from" in result.errors and "model.ckpt-20" in result.errors
    assert_equal(arrays_of(broken, 60), arrays_of(whole, 60))
    assert losses(broken) == losses(whole)
    assert log.count("step 15:") == 1


def test_sigterm_saves_and_exits_cleanly(flags, tmp_path):
    flags.update(num_train_steps=100_000, save_checkpoints_steps=50_000, log_steps=10, do_eval=True)
    out = tmp_path / "out"
    # Again while it saves, and while it exits.
    code, log = interrupt({**flags, "output_dir": out}, signal.SIGTERM, "step 10:", "saved", "SIGTERM:")
    assert code == 0
    assert "Traceback" not in log
    step = int(re.search(r"SIGTERM: stopped; the same command resumes from .*model\.ckpt-(\d+)$", log, re.M)[1])
    assert arrays_of(out, step)["global_step"] == step
    assert not (out / "eval_results.txt").exists()
