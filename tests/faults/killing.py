"""Runs scripts, kills them at named points or after some time, and restarts them until they finish."""

import collections
import json
import os
import pathlib
import signal
import subprocess
from unittest import mock

from official_bert.support.files import KILL_AT_VARIABLE
from tests.conftest import run_script, script_command, script_environment
from tests.record_files import arrays_of
from tests.warm_start import run as run_warm

_RATES = ("examples_per_second", "tokens_per_second")


def run(script, flags, kill_at=None):
    """Run a script until it ends or is killed at "PLACE:NUMBER", see `fault_points`; return a `Result`."""
    with mock.patch.dict(os.environ, {KILL_AT_VARIABLE: kill_at} if kill_at else {}):
        return run_script(script, **flags)


def is_killed_after(script, flags, seconds):
    """Run a script for some seconds; return True if it had to be killed then."""
    command = script_command(script, flags)
    try:
        if run_warm(command, script_environment(), timeout=seconds) is None:
            subprocess.run(command, env=script_environment(), timeout=seconds, capture_output=True)
    except subprocess.TimeoutExpired:
        return True
    return False


def places(script, flags, folder):
    trace = folder / "trace"
    result = run(script, flags, f"trace:{trace}")
    assert result.code == 0, result
    return collections.Counter(trace.read_text().splitlines())


def assert_killed(result):
    assert result.code == -signal.SIGKILL, result


def arrays(folder):
    return {name: array.tobytes() for name, array in arrays_of(folder).items()}


def scalars(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in _RATES} for line in lines]


def stray_files(folder):
    """Return files of killed runs that no later start cleaned up."""
    return sorted(str(path.relative_to(folder)) for path in pathlib.Path(folder).rglob("*.partial-*"))


def end_of(folder):
    """Return the final state of a run: arrays of its last and best checkpoint, logged numbers, and results."""
    results = {
        name: (folder / name).read_bytes()
        for name in (
            "checkpoint", "eval_results.txt", "test_results.tsv", "predictions.json", "nbest_predictions.json",
            "predictions.conll", "best/checkpoint", "best/evaluations.json",
        )
        if (folder / name).exists()
    }  # fmt: skip
    best = arrays(folder / "best") if (folder / "best").exists() else None
    return {"weights": arrays(folder), "best": best, "log": scalars(folder), **results}


def assert_same_end(folder, whole):
    found, expected = end_of(folder), end_of(whole)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == value, name
    assert stray_files(folder) == []
