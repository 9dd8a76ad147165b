"""The process that forks the scripts of the tests: they run like in a new Python."""

import os
import subprocess
import sys

import pytest

from tests import warm_start
from tests.conftest import script_environment

PROGRAM = """
import atexit, json, os, pathlib, signal, sys, threading
if __name__ == "__main__":
    atexit.register(print, "at exit", flush=True)
    facts = dict(
        arguments=sys.argv, path=sys.path, folder=os.getcwd(), environment=sorted(os.environ.items()),
        main=sys.modules["__main__"].__file__, input=sys.stdin.read(), threads=threading.active_count(),
        files=[os.readlink(path) for path in pathlib.Path("/proc/self/fd").iterdir() if path.is_symlink()
               and "socket" in os.readlink(path)],
        on_interrupt=signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    )
    print(json.dumps(facts), "ä\\rö")
    print("to standard error", file=sys.stderr)
    exec(os.environ["END"])
"""
ENDS = {
    "nothing": "", "a number": "sys.exit(7)", "an exception": "raise ValueError('odd')",
    "a signal": "sys.stdout.flush(); os.kill(os.getpid(), signal.SIGTERM)",
}  # fmt: skip


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return [sys.executable, str(path), "--flag=1", "two words"]


@pytest.mark.skipif(not warm_start.IS_POSSIBLE, reason="needs Linux")
@pytest.mark.parametrize("end", ENDS)
def test_a_forked_script_sees_and_ends_as_a_new_python(program, tmp_path, monkeypatch, end):
    monkeypatch.chdir(tmp_path)
    environment = {**script_environment(), "END": ENDS[end]}
    forked = warm_start.run(program, environment, timeout=300)
    fresh = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert forked.returncode == fresh.returncode == {"nothing": 0, "a number": 7, "a signal": -15}.get(end, 1)
    assert forked.stdout == fresh.stdout
    assert ("at exit" in forked.stdout) == (end != "a signal")
    assert forked.stderr.splitlines()[0] == "to standard error"
    assert forked.stderr.splitlines()[-1] == fresh.stderr.splitlines()[-1]


@pytest.mark.skipif(not warm_start.IS_POSSIBLE, reason="needs Linux")
def test_a_script_that_does_not_end_is_killed(program):
    environment = {**script_environment(), "END": "os.write(1, b'%d' % os.getpid()); signal.pause()"}
    with pytest.raises(subprocess.TimeoutExpired):
        warm_start.run(program, environment, timeout=0.5)


def test_settings_read_at_import_need_a_new_python(program):
    for name in ("TF_CPP_MAX_VLOG_LEVEL", "KERAS_BACKEND", "PYTHONHASHSEED"):
        assert warm_start.run(program, {**os.environ, name: "1"}, timeout=300) is None
