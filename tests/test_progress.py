"""The progress of long jobs."""

import io
import sys

from official_bert.progress import Progress, format_seconds


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_seconds_are_written_as_a_clock():
    assert format_seconds(3725) == "1:02:05"
    assert format_seconds(59.6) == "0:01:00"


def test_terminal_line_is_redrawn_and_its_last_state_stays(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    with Progress("reading", 200, "lines") as progress:
        progress.update(50, "7 documents", log=True)
        drawn = terminal.getvalue()
        assert drawn.startswith("\r[=====               ] reading:  25% of 200 lines, 0:00:")
        assert drawn.endswith(" left, 7 documents\x1b[K")
        assert "\n" not in drawn
        progress.update(200, "9 documents")  # too soon to be drawn
        assert terminal.getvalue() == drawn
        progress.clear()
        assert terminal.getvalue() == drawn + "\r\x1b[K"
    last_line = terminal.getvalue().split("\r")[-1]
    assert last_line == "[====================] reading: 100% of 200 lines, 0:00:00 left, 9 documents\x1b[K\n"


def test_a_job_that_is_done_at_once_draws_nothing(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    for seconds, is_drawn in ((0.1, False), (0.3, True)):
        with Progress("reading", 1, "lines", log_every_seconds=10) as progress:
            now[0] += seconds
            progress.update(1)
        assert bool(terminal.getvalue()) == is_drawn


def test_without_terminal_lines_are_logged_only_when_due(caplog):
    caplog.set_level("INFO", logger="absl")
    with Progress("reading", 10, "lines", log_every_seconds=3600) as progress:
        progress.update(1)
        assert caplog.messages == []
        progress.update(2, log=True)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("reading:  20% of 10 lines, 0:00:0")


def test_work_of_an_earlier_run_does_not_count_for_the_time_left(monkeypatch, caplog):
    caplog.set_level("INFO", logger="absl")
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    progress = Progress("training", 100, "steps", start=50)
    now[0] += 10.0
    progress.update(60, log=True)
    assert caplog.messages[0].endswith("0:00:40 left")


def test_a_restarted_clock_counts_from_there(monkeypatch, caplog):
    caplog.set_level("INFO", logger="absl")
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    progress = Progress("training", 100, "steps")
    now[0] += 60.0  # compiling
    progress.restart(1)
    now[0] += 9.0
    progress.update(10, log=True)
    assert "0:01:30 left" in caplog.messages[0]
