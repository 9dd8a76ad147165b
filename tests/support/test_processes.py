"""Items processed in parallel: order, errors, large results, and processes that end."""

import os
import signal
import subprocess
import sys

import pytest

from official_bert.support.errors import UserError
from official_bert.support.processes import Workers
from tests.conftest import script_environment

pytestmark = pytest.mark.slow


class OwnMessageError(UserError):
    """An error that cannot be pickled, since it builds its own message."""

    def __init__(self, path, number):
        super().__init__(f"{path}: record {number} is damaged")


def add(item, *settings):
    return item + sum(settings)


def repeated(item, *_):
    return item[:1] * len(item)


def fail_at_three(item, *_):
    if item == 3:
        raise OwnMessageError("path", item)
    if item == 5:
        raise ZeroDivisionError("five")
    return item


def end(item):
    if item == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return bytes(3_000_000)


def failing_source():
    yield from range(4)
    raise UserError("no more")


@pytest.mark.parametrize("num_processes", [1, 2])
def test_results_are_in_order_and_the_workers_can_be_used_again_after_the_first_error(num_processes):
    large = [bytes([number]) * 3_000_000 for number in range(8)]  # items and results do not wait for each other
    with Workers(num_processes, 10, 100, name="works") as workers:
        assert list(workers.map(add, range(50))) == [number + 110 for number in range(50)]
        assert list(workers.map(add, [])) == []
        assert list(workers.map(repeated, large)) == large
        results = workers.map(fail_at_three, range(9))
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(UserError, match="path: record 3 is damaged"):
            next(results)
        with pytest.raises(ZeroDivisionError, match="five") as caught:
            list(workers.map(fail_at_three, [5, 3]))
        with pytest.raises(UserError, match="no more"):
            list(workers.map(add, failing_source()))
        if num_processes > 1:
            assert "in fail_at_three" in str(caught.value.__cause__)
            with pytest.raises(Exception, match="pickle"):
                list(workers.map(add, [lambda: 0]))
        assert list(workers.map(add, range(9))) == [number + 110 for number in range(9)]


def test_unpicklable_settings_leave_no_waiting_process():
    with Workers(2, lambda: 0, name="adds") as workers:
        for _ in range(2):
            with pytest.raises(Exception, match="pickle"):
                list(workers.map(add, range(9)))


def test_a_process_that_ends_is_reported():
    message = "the system ended a process that adds, .*; lower it"
    with Workers(3, name="adds", advice="lower it") as workers, pytest.raises(UserError, match=message):
        list(workers.map(end, range(9)))


def test_a_process_that_ends_while_sending_is_reported():
    """The others must not wait for its remaining data."""
    message = "the system ended a process that repeats"
    with Workers(2, name="repeats") as workers, pytest.raises(UserError, match=message):
        for number, _ in enumerate(workers.map(repeated, [b"x" * 10_000_000] * 9)):
            if number == 0:
                (first, *_) = [worker.process.pid for worker in workers._processes]
                os.kill(first, signal.SIGKILL)


def test_a_program_without_a_main_guard_gets_advice(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import operator\nfrom official_bert.support.processes import Workers\n"
        "with Workers(2, 1, name='adds') as workers:\n    print(list(workers.map(operator.add, range(3))))\n"
    )
    command = [sys.executable, str(program)]
    result = subprocess.run(command, env=script_environment(), capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert "a process that adds ended with exit code 1; see its output above" in result.stderr
    assert 'within `if __name__ == "__main__":`' in result.stderr


# Ctrl-C comes while a process is being started.
STARTING = """
import operator, os, signal, time
from multiprocessing import util

from official_bert.options.command import exiting_with_one_line
from official_bert.support.processes import Workers

start = util.spawnv_passfds

def start_and_signal(path, arguments, descriptors):
    number = start(path, arguments, descriptors)
    if "spawn_main" in str(arguments):
        time.sleep(0.2)  # until it waits for what this process sends it
        os.killpg(os.getpid(), signal.SIGINT)
        time.sleep(0.2)  # for what it would print
    return number

util.spawnv_passfds = start_and_signal
with exiting_with_one_line(), Workers(2, 1, name="adds") as workers:
    print(list(workers.map(operator.add, range(9))))
"""


def test_ctrl_c_while_a_process_starts_ends_all_without_a_traceback():
    result = subprocess.run(
        [sys.executable, "-c", STARTING],
        env=script_environment(), capture_output=True, text=True, timeout=60, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # under nohup it would be ignored
    )  # fmt: skip
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "-c: error: interrupted\n")
