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


def repeated(item):
    return item[:1] * len(item)


def fail_at_three(item):
    if item == 3:
        raise OwnMessageError("path", item)
    if item == 5:
        raise ZeroDivisionError("five")
    return item


def end(item):
    if item == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return bytes(3_000_000)


@pytest.mark.parametrize("num_processes", [1, 3])
def test_results_are_in_order_and_workers_can_be_used_again(num_processes):
    with Workers(num_processes, 10, 100, name="adds") as workers:
        assert list(workers.map(add, range(50))) == [number + 110 for number in range(50)]
        assert list(workers.map(add, [])) == []
        assert list(workers.map(add, [1])) == [111]


def test_large_items_and_results_do_not_wait_for_each_other():
    items = [bytes([number]) * 3_000_000 for number in range(12)]
    with Workers(2, name="repeats") as workers:
        assert list(workers.map(repeated, items)) == items


@pytest.mark.parametrize("num_processes", [1, 2])
def test_the_first_error_is_raised_and_the_workers_can_be_used_again(num_processes):
    with Workers(num_processes, name="fails") as workers:
        results = workers.map(fail_at_three, range(9))
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(UserError, match="path: record 3 is damaged"):
            next(results)
        with pytest.raises(ZeroDivisionError, match="five"):
            list(workers.map(fail_at_three, [5, 3]))
        assert list(workers.map(fail_at_three, [1, 2])) == [1, 2]


def test_unpicklable_items_leave_no_waiting_process():
    with Workers(2, 10, name="adds") as workers:
        for _ in range(2):
            with pytest.raises(Exception, match="pickle"):
                list(workers.map(add, [lambda: 0]))
            assert list(workers.map(add, range(9))) == [number + 10 for number in range(9)]
    with Workers(2, lambda: 0, name="adds") as workers:
        for _ in range(2):
            with pytest.raises(Exception, match="pickle"):
                list(workers.map(add, range(9)))


def test_an_error_says_where_it_was_raised():
    with Workers(2, name="fails") as workers, pytest.raises(ZeroDivisionError) as caught:
        list(workers.map(fail_at_three, [5]))
    assert "in fail_at_three" in str(caught.value.__cause__)


def test_a_process_that_ends_is_reported():
    with (
        Workers(3, name="adds", advice="lower it") as workers,
        pytest.raises(UserError, match="the system ended a process that adds, .*; lower it"),
    ):
        list(workers.map(end, range(9)))


def test_a_process_that_ends_while_sending_is_reported():
    """The others must not wait for its remaining data."""
    with (
        Workers(2, name="repeats") as workers,
        pytest.raises(UserError, match="the system ended a process that repeats"),
    ):
        for number, _ in enumerate(workers.map(repeated, [b"x" * 10_000_000] * 9)):
            if number == 0:
                (first, *_) = [worker.process.pid for worker in workers._processes]
                os.kill(first, signal.SIGKILL)


def test_the_source_of_items_may_fail():
    def items():
        yield from range(4)
        raise UserError("no more")

    with Workers(2, name="adds") as workers, pytest.raises(UserError, match="no more"):
        list(workers.map(add, items()))


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
import operator, os, signal, sys, time
from multiprocessing import util

from official_bert.options.command import exiting_with_one_line
from official_bert.support.processes import Workers

start, send = util.spawnv_passfds, getattr(os, sys.argv[1])

def start_and_signal(path, arguments, descriptors):
    number = start(path, arguments, descriptors)
    if "spawn_main" in str(arguments):
        time.sleep(0.2)  # until it waits for what this process sends it
        send(os.getpid(), signal.SIGINT)
        time.sleep(0.2)  # for what it would print
    return number

util.spawnv_passfds = start_and_signal
with exiting_with_one_line(), Workers(2, 1, name="adds") as workers:
    print(list(workers.map(operator.add, range(9))))
"""


@pytest.mark.parametrize("send", ["kill", "killpg"])
def test_ctrl_c_while_a_process_starts_ends_all_without_a_traceback(send):
    result = subprocess.run(
        [sys.executable, "-c", STARTING, send],
        env=script_environment(), capture_output=True, text=True, timeout=60, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # under nohup it would be ignored
    )  # fmt: skip
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "-c: error: interrupted\n")
