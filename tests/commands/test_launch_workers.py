"""`launch_workers` with shell commands as workers."""

import json
import os
import shlex
import signal
import subprocess
import time

import pytest

from tests.conftest import assert_fails, run_script, script_command, script_environment

pytestmark = pytest.mark.slow

TOOL = "launch_workers"


def test_each_worker_gets_its_index():
    result = run_script(TOOL, "--", "sh", "-c", 'echo "$TF_CONFIG"; echo error >&2', num_workers=3)
    assert result.code == 0, result
    lines = sorted(result.output.splitlines())
    assert [line for line in lines if line.endswith("error")] == ["[0] error", "[1] error", "[2] error"]
    configs = [json.loads(line[4:]) for line in lines if not line.endswith("error")]
    assert [config["task"] for config in configs] == [{"type": "worker", "index": index} for index in range(3)]
    (hosts,) = {tuple(config["cluster"]["worker"]) for config in configs}
    assert len(set(hosts)) == 3


def test_a_cluster_is_described_for_each_machine():
    hosts = ["one:2222", "two:2222"]
    result = run_script(TOOL, hosts=",".join(hosts))
    assert result.code == 0, result
    exports = [line for line in result.output.splitlines() if not line.startswith("#")]
    for index, line in enumerate(exports):
        name, _, value = shlex.split(line)[1].partition("=")
        assert name == "TF_CONFIG"
        assert json.loads(value) == {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}}
    assert len(exports) == 2
    started = run_script(TOOL, "--", "sh", "-c", "echo $TF_CONFIG", hosts=",".join(hosts), worker_index=1)
    assert json.loads(started.output) == json.loads(value)


def test_a_worker_that_fails_is_named():
    fails = 'case "$TF_CONFIG" in *\'"index": 1\'*) exit 3;; esac'
    result = run_script(TOOL, "--", "sh", "-c", fails)
    assert_fails(result, "worker 1 failed with exit code 3; see its output lines, which begin with [1]")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signals_reach_the_workers(number, code):
    waits = f'trap "echo saved; exit {code}" {number:d}; echo ready; while :; do sleep 0.1; done'
    command = [*script_command(TOOL, {}), "--", "sh", "-c", waits]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=script_environment()) as process:
        assert {process.stdout.readline() for _ in range(2)} == {"[0] ready\n", "[1] ready\n"}
        os.kill(process.pid, number)
        assert sorted(process.stdout.read().splitlines()) == ["[0] saved", "[1] saved"]
    assert process.returncode == code


@pytest.mark.endurance
def test_a_process_that_a_worker_leaves_behind_is_not_waited_for():
    began = time.monotonic()
    result = run_script(TOOL, "--", "sh", "-c", "sleep 40 & echo $!", num_workers=2)
    seconds = time.monotonic() - began
    for line in result.output.splitlines():
        os.kill(int(line.split()[1]), signal.SIGTERM)
    assert result.code == 0
    assert seconds < 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to start"),
        (["--", "no-such-command"], "no-such-command: No such file"),
        (["--hosts=one:1", "--worker_index=0", "--", "no-such-command"], "no-such-command: No such file"),
        (["--hosts=one"], "'one' is not host:port"),
        (["--hosts=one:1,one:1"], "names a worker twice"),
        (["--hosts=one:1", "--", "ls"], "needs --worker_index"),
        (["--hosts=one:1", "--worker_index=1", "--", "ls"], "--hosts names 1 workers"),
        (["--worker_index=1", "--", "ls"], "--worker_index needs --hosts"),
    ],
)
def test_mistakes(arguments, message):
    assert_fails(run_script(TOOL, *arguments), message)
