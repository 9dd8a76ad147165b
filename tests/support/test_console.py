"""The progress of long jobs, and tables as text."""

import contextlib
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from official_bert.support.console import Progress, format_seconds, format_table, mean_and_deviation
from tests.conftest import script_environment


class Terminal(io.StringIO):
    def isatty(self):
        return True


def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def wide_terminal(monkeypatch):
    """Return a terminal for standard error, and a list with the time of a clock."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "200")
    return sys.stderr, clock(monkeypatch)


def test_terminal_line_is_redrawn_and_its_last_state_stays(monkeypatch):
    terminal, now = wide_terminal(monkeypatch)
    with Progress("reading", 200, "lines") as progress:
        progress.update(0)
        now[0] += 1
        progress.update(50, "7 documents")
        drawn = terminal.getvalue()
        assert re.search(r"\rreading:  25%\|#+5 +\| 50/200 \[00:01<00:03, 50.00 lines/s, 7 documents\]$", drawn)
        progress.update(200, "9 documents")  # too soon to be drawn
        assert terminal.getvalue() == drawn
        progress.clear()
        assert re.fullmatch(r"\r +\r", terminal.getvalue().removeprefix(drawn))
    assert re.search(
        r"\rreading: 100%\|#+\| 200/200 \[00:01<00:00, 200.00 lines/s, 9 documents\]\n$", terminal.getvalue()
    )
    with Progress("reading", None, "lines") as progress:
        now[0] += 1
        progress.update(1500, "9 lines/s")
    assert terminal.getvalue().endswith("reading: 1500 lines [00:00, ? lines/s, 9 lines/s]\n")


def test_start_up_is_no_part_of_the_time_that_is_left(monkeypatch):
    terminal, now = wide_terminal(monkeypatch)
    with Progress("evaluating", 1000, "records") as progress:
        for seconds, done, left in [(60, 8, "?"), (0.5, 16, "01:01"), (1.5, 108, "00:17"), (18, 1000, "00:00")]:
            now[0] += seconds
            progress.update(done)
            assert f"<{left}, " in terminal.getvalue().split("\r")[-1]


# A run's output on a real terminal: two log lines, followed by the redrawn line.
LOGGED = (
    "training:  25% of 2,000 steps, 0:07:50 left, step 500: loss 7.1480, 102 examples/s, learning rate 7.50e-04, "
    "gradient norm 1.96, 11,930 tokens/s, masked_lm 6.6373, next_sentence 0.5107"
)
DRAWN = {
    60: "training:  25%|▎| 500/2000 [02:05<07:50,  3.19 steps/s, ste",
    200: f"training:  25%|{'█' * 26}▌{' ' * 79}| 500/2000 [02:05<07:50,  3.19 steps/s, "
    "step 500: loss 7.1480, 102 examples/s]",
}
RUN_ON_A_TERMINAL = """
import time
from logging import Formatter
from absl import logging
from official_bert.support.console import Progress
logging.set_verbosity(logging.INFO)
logging.use_absl_handler()
logging.get_absl_handler().setFormatter(Formatter("%(message)s"))
now = 0.0
time.monotonic = lambda: now
with Progress("training", 2000, "steps") as progress:
    for seconds, done in ((0, 100), (125.4, 500)):
        now = seconds
        progress.update(done, f"step {done}: loss 7.1480", "102 examples/s", "learning rate 7.50e-04",
            "gradient norm 1.96", "11,930 tokens/s", "masked_lm 6.6373", "next_sentence 0.5107", log=True)
"""


@pytest.mark.parametrize("width", [60, 200])
def test_the_line_fits_the_terminal_and_log_lines_stay_above_it(width):
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    # Standard output is redirected to a file.
    command = [sys.executable, "-c", RUN_ON_A_TERMINAL]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=child, env=script_environment()) as process:
        os.close(child)
        shown = b""
        with contextlib.suppress(OSError):  # end of the output
            while part := os.read(parent, 1024):
                shown += part
    os.close(parent)
    assert process.returncode == 0
    lines = [line.split("\r")[-1].removesuffix("\x1b[K") for line in shown.decode().split("\r\n")]
    assert [line.removeprefix("\x1b[K") for line in lines[-4:]] == [
        LOGGED.replace(" 25%", "  5%").replace("0:07:50 left, ", "").replace("step 500", "step 100"),
        LOGGED,
        DRAWN[width],
        "",
    ]


def test_a_job_that_is_done_at_once_draws_nothing(monkeypatch):
    terminal, now = wide_terminal(monkeypatch)
    for seconds, is_drawn in ((0.1, False), (0.3, True)):
        with Progress("reading", 1, "lines", log_every_seconds=10) as progress:
            now[0] += seconds
            progress.update(1)
        assert bool(terminal.getvalue()) == is_drawn


def test_without_terminal_lines_are_logged_only_when_due_with_the_time_since_a_restart(monkeypatch, caplog):
    caplog.set_level("INFO", logger="absl")
    now = clock(monkeypatch)
    with Progress("reading", 100, "lines", log_every_seconds=3600) as progress:
        progress.update(1)
        assert caplog.messages == []
        now[0] += 60.0  # time of compilation
        progress.restart(1)
        now[0] += 9.0
        progress.update(10, log=True)
    assert caplog.messages == ["reading:  10% of 100 lines, 0:01:30 left"]


ROWS = [("task", "runs", "score"), ("CoLA", "12", "-5.25"), ("a long name", "3", ""), ("", "", "1e-05")]


def test_numbers_stand_at_the_right_and_texts_at_the_left_and_times_are_clocks():
    assert [format_seconds(3725), format_seconds(59.6)] == ["1:02:05", "0:01:00"]
    assert format_table(ROWS) == (
        "task         runs  score\n"
        "CoLA           12  -5.25\n"
        "a long name     3\n"
        "                   1e-05\n"
    )  # fmt: skip


def test_the_deviation_is_that_of_a_sample():
    assert mean_and_deviation([1.0, 2.0, 6.0], 2) == ("3.00", "2.65")  # sqrt((4 + 1 + 9) / 2)
    assert mean_and_deviation([1.0], 2) == ("1.00", "")
    assert mean_and_deviation([], 2) == ("", "")
