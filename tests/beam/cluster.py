"""A small cluster on this machine: Beam's job service and worker pools, each a separate process."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import types

from tests.conftest import Result, assert_fails, script_command, script_environment

JOB_SERVICE = pathlib.Path(__file__).parent / "job_service.py"
SECONDS_TO_START = 300  # on a busy machine
TWO_PROCESSES = "--direct_running_mode=multi_processing --direct_num_workers=2"


class Process:
    """A process and its children, which are killed together."""

    def __init__(self, command, log):
        environment = script_environment()
        # A pool starts its workers as "python".
        environment["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), environment["PATH"]])
        with open(log, "w") as sink:
            options = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}
            self._process = subprocess.Popen(command, stderr=sink, env=environment, **options)
        self._log = pathlib.Path(log)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def children(self):
        found = subprocess.run(["ps", "-eo", "pid,sid"], capture_output=True, text=True, check=True).stdout
        pairs = [tuple(map(int, line.split())) for line in found.splitlines()[1:]]
        return [pid for pid, session in pairs if session == self._process.pid != pid]

    def first_line(self):
        return self._process.stdout.readline()

    def result(self, timeout):
        stdout, _ = self._process.communicate(timeout=timeout)
        returncode, stderr = self._process.returncode, self._log.read_text()
        return Result(types.SimpleNamespace(returncode=returncode, stdout=stdout, stderr=stderr))


@contextlib.contextmanager
def cluster(folder, num_pools=2):
    """Yield `beam_args`, the options of a pipeline that runs in pools of one worker each, and `kill_a_busy_pool`."""
    ports = [_free_port() for _ in range(num_pools)]
    with contextlib.ExitStack() as processes:

        def start(name, *command):
            process = Process([sys.executable, *command], folder / f"{name}.log")
            processes.callback(process.kill)
            return process

        def kill_a_busy_pool():
            """Kill the second pool after the workers of both have computed for a while."""
            wait_until(lambda: all(any(map(is_busy, pool.children())) for pool in pools))
            pools[1].kill()

        module = "apache_beam.runners.worker.worker_pool_main"
        pools = [start(f"pool-{port}", "-m", module, f"--service_port={port}") for port in ports]
        service = start("job_service", str(JOB_SERVICE), *(f"localhost:{port}" for port in ports))
        for port in ports:
            _wait_for(port)
        found = json.loads(service.first_line())
        beam_args = f"--runner=PortableRunner --job_endpoint={found['jobs']} --environment_type=EXTERNAL "
        beam_args += f"--environment_config={found['pools']}"
        yield types.SimpleNamespace(beam_args=beam_args, kill_a_busy_pool=kill_a_busy_pool)


@contextlib.contextmanager
def started(script, folder, **flags):
    """Run a script in a separate process, killed with all its children at the end of the block."""
    process = Process(script_command(script, flags), folder / "script.log")
    try:
        yield process
    finally:
        process.kill()
        print((folder / "script.log").read_text())  # shown if the test fails


def wait_until(condition, seconds=SECONDS_TO_START):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def is_busy(pid):
    """Return True if a process has used more CPU time than a worker needs to start."""
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") > 8
    return False


def kill_a_busy_worker(job):
    """Kill one of the two worker processes of a local job after both have computed for a while."""
    wait_until(lambda: all(map(is_busy, workers_of(job))) and len(workers_of(job)) == 2)
    os.kill(workers_of(job)[1], signal.SIGKILL)


def workers_of(job):
    return [pid for pid in job.children() if is_worker(pid)]


def is_worker(pid):
    with contextlib.suppress(OSError):
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        return "apache_beam.runners.worker.sdk_worker_main" in words  # not as part of its shell's arguments
    return False


def assert_failed_for_a_lost_worker(job, outputs):
    """Assert that the script ended with one line about it and without output files."""
    result = job.result(60)
    assert_fails(result, "the job failed: it lost a worker process", "run the same command again")
    assert result.errors.count(": error: ") == 1
    assert not list(outputs)


def _free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def _wait_for(port):
    def answers():
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
            return True
        return False

    wait_until(answers)
