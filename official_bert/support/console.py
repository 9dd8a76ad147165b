"""Output on a terminal: the progress of a long job, tables, and native log lines that are filtered out."""

import codecs
import contextlib
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from absl import logging

from official_bert.support import writing

_JSON_ESCAPES = "json_escapes"
_NVIDIA_DEVICE = "/dev/nvidiactl"
_SECONDS_BETWEEN_REDRAWS = 0.2
_SECONDS_BETWEEN_LOG_LINES = 10
_SECONDS_BEFORE_ESTIMATES = 1  # a time left estimated earlier, from a unit or two, would be too inaccurate
_ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})
# Tables have a column for each of this many labels; of more labels, the most likely ones of each example.
MOST_LABEL_COLUMNS, NUM_LIKELY = 100, 10
_NUMBER_OR_NOTHING = re.compile(r"(-?[\d.]+(e-?\d+)?)?")


class Progress:
    """Progress of a job: a bar of `tqdm` on a terminal, and log lines.

    A log line is "writing records:  40% of 100 documents, 0:00:12 left, 9,120 records/s". A job that ends before the
    first line is due shows nothing.
    """

    def __init__(
        self, label: str, total: int | None, unit: str, *, log_every_seconds: float = _SECONDS_BETWEEN_LOG_LINES
    ):
        self._label = label
        self._total = total
        self._unit = unit
        self._done = 0
        self._log_every_seconds = log_every_seconds
        self._is_terminal = sys.stderr.isatty()
        self._began = self._last_shown = time.monotonic()
        self._measured_from: tuple[int, float] | None = None  # units done, and the time
        self._details: tuple[str, ...] = ()
        self._bar: Any = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_) -> None:
        if self._bar is not None:
            self._draw()
            self._bar.close()  # leaves the last state visible

    def restart(self, done: int) -> None:
        """Restart the clock at `done` units, if the time so far does not reflect the speed."""
        self._began = time.monotonic()
        self._measured_from = done, self._began

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def update(self, done: int, *details: str, log: bool = False) -> None:
        """Report that `done` units are done.

        The remaining time is estimated from the speed since the first report, because processes start and models are
        compiled before it.
        """
        self._done = done
        if self._measured_from is None:
            self._measured_from = done, time.monotonic()
        self._details = details
        seconds = time.monotonic() - self._last_shown
        every = _SECONDS_BETWEEN_REDRAWS if self._is_terminal else self._log_every_seconds
        if not log and seconds < every:
            return
        self._last_shown = time.monotonic()
        if log or not self._is_terminal:
            self.clear()
            logging.info("%s", self._line())
        if self._is_terminal:
            self._draw()

    def clear(self) -> None:
        """Clear the bar on the terminal, so that something else can be printed."""
        if self._bar is not None:
            self._bar.clear()

    def _line(self) -> str:
        head, left = f"{self._label}: {self._done:,} {self._unit}", self._seconds_left()
        if self._total is not None:
            fraction = self._done / self._total if self._total else 1.0
            head = f"{self._label}: {fraction:4.0%} of {self._total:,} {self._unit}"
        return ", ".join([head, *([] if left is None else [f"{format_seconds(left)} left"]), *self._details])

    def _seconds_left(self) -> float | None:
        """Return the estimated remaining time; None if not yet known."""
        if self._total is None or self._measured_from is None:
            return None
        done_before, when = self._measured_from
        num_done, seconds = self._done - done_before, time.monotonic() - when
        if self._done >= self._total:
            return 0.0
        if num_done <= 0 or seconds < _SECONDS_BEFORE_ESTIMATES:
            return None
        return seconds / num_done * (self._total - self._done)

    def _draw(self) -> None:
        if self._bar is None:
            from tqdm import tqdm

            tqdm.monitor_interval = 0  # no thread, which processes could not be forked beside
            scale = {"unit": f" {self._unit}", "unit_scale": self._unit == "bytes", "smoothing": 0}
            self._bar = tqdm(desc=self._label, total=self._total, initial=self._done, dynamic_ncols=True, **scale)
            self._bar._time = time.monotonic  # its own clock may be set while it runs
        self._bar.n, (self._bar.initial, self._bar.start_t) = self._done, self._measured_from
        self._bar.last_print_t = time.monotonic()
        self._bar.set_postfix_str(", ".join(self._details[:2]))  # the log lines have all


def format_seconds(seconds: float) -> str:
    """Format a duration as hours, minutes and seconds: 3725 becomes `1:02:05`."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


@contextlib.contextmanager
def filtered_stderr(is_note: Callable[[str], bool]) -> Iterator[None]:
    """Capture standard error during the block, then print the lines that are not mere notes."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            held_back.seek(0)
            for line in held_back.read().decode(errors="replace").splitlines(keepends=True):
                if not is_note(line):
                    sys.stderr.write(line)


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Format a table; numeric columns are right-aligned."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    sides = [">" if all(map(_NUMBER_OR_NOTHING.fullmatch, column[1:])) else "<" for column in columns]
    lines = [[f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)] for row in rows]
    return "".join("  ".join(line).rstrip() + "\n" for line in lines)


def write_rows(path: str, rows: Iterable[Iterable[str]]) -> None:
    r"""Write a tab-separated file; tabs and line ends within a cell are escaped as `\t`, `\n` and `\r`."""
    with writing.atomic_write(path) as sink:
        sink.writelines(map(tsv_line, rows))


def tsv_line(cells: Iterable[str]) -> str:
    return "\t".join(cell.translate(_ESCAPES) for cell in cells) + "\n"


def ranked_columns(likely: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the columns `label_1`, `probability_1`, `label_2` and so on of labels and probabilities, best first."""
    kinds = ("label", "probability")
    return {f"{kind}_{rank}": cell for rank, of in enumerate(likely, 1) for kind, cell in zip(kinds, of, strict=True)}


def mean_and_deviation(values: Sequence[float], decimals: int) -> tuple[str, str]:
    """Return the mean and the sample standard deviation (n - 1) as table cells, empty if there are too few values."""
    mean = f"{statistics.mean(values):.{decimals}f}" if values else ""
    deviation = f"{statistics.stdev(values):.{decimals}f}" if len(values) > 1 else ""
    return mean, deviation


def prepare_streams() -> None:
    r"""Replace closed streams (`>&-`), and write characters that the output's encoding lacks as escapes.

    A file opened later would get a closed stream's descriptor and its output. The escapes are those of JSON, `\ud83c`.
    """
    codecs.register_error(
        _JSON_ESCAPES, lambda error: (json.dumps(error.object[error.start : error.end])[1:-1], error.end)
    )
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # Python's mark for a closed stream; the lowest free descriptor is its own
            null = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(null, "r" if name == "stdin" else "w", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors=_JSON_ESCAPES)


def drop_broken_streams() -> None:
    """Connect unwritable output streams to the null device, which absorbs their remaining buffers."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)


def is_startup_note(line: str) -> bool:
    """Return True for a line that TensorFlow writes at its start on every machine, or because there is no GPU."""
    if line.startswith(("I0000 ", "WARNING: All log messages before absl::InitializeLog()")):
        return True
    return "failed call to cuInit" in line and not os.path.exists(_NVIDIA_DEVICE)
