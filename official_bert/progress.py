"""Tells how far a long job is: one line that is redrawn on a terminal, log lines elsewhere."""

import shutil
import sys
import time

from absl import logging

_SECONDS_BETWEEN_REDRAWS = 0.2
_SECONDS_BETWEEN_LOG_LINES = 10


class Progress:
    """Progress of a job of known length; one that is done before the first line is due shows nothing.

    Example:
      >>> with Progress("making records", total=100, unit="documents") as progress:
      ...     progress.update(40, "9,120 records/s")
      making records:  40% of 100 documents, 0:00:12 left, 9,120 records/s
    """

    def __init__(
        self,
        label: str,
        total: int,
        unit: str,
        *,
        start: int = 0,
        log_every_seconds: float | None = _SECONDS_BETWEEN_LOG_LINES,
    ):
        """Begins the clock.

        Args:
          label: what is being done.
          total: where the count will end.
          unit: what is counted.
          start: where the count begins, if an earlier run did some of the work.
          log_every_seconds: without a terminal, log a line so often; None leaves it to `update(..., log=True)`.
        """
        self._label, self._total, self._unit = label, total, unit
        self._start = self._done = start
        self._log_every_seconds = log_every_seconds
        self._is_terminal = sys.stderr.isatty()
        self._began = self._last_shown = time.monotonic()
        self._line, self._is_drawn = "", False

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_) -> None:
        if self._is_drawn:
            self._draw()  # the last state stays to be read
            sys.stderr.write("\n")

    def restart(self, done: int) -> None:
        """Begins the clock again, with `done` units done: what came before says nothing about the speed."""
        self._start = done
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the job began."""
        return time.monotonic() - self._began

    def update(self, done: int, details: str = "", *, log: bool = False) -> None:
        """Says that `done` of the total are done.

        Args:
          done: units done, those before `start` included.
          details: rates or results to show beside.
          log: without a terminal, log this line whatever the time.
        """
        self._done = done
        self._line = self._describe(details)
        seconds = time.monotonic() - self._last_shown
        if self._is_terminal:
            is_due = seconds >= _SECONDS_BETWEEN_REDRAWS
        else:
            is_due = self._log_every_seconds is not None and seconds >= self._log_every_seconds
        if log or is_due:
            self._last_shown = time.monotonic()
            if self._is_terminal:
                self._draw()
            else:
                logging.info("%s", self._line)

    def clear(self) -> None:
        """Wipes the terminal's line, so that something else can be printed."""
        if self._is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _describe(self, details: str) -> str:
        share = self._done / self._total if self._total else 1.0
        parts = [f"{self._label}: {share:4.0%} of {self._total:,} {self._unit}"]
        if self._done > self._start:
            left = self.seconds / (self._done - self._start) * (self._total - self._done)
            parts.append(f"{format_seconds(left)} left")
        if details:
            parts.append(details)
        return ", ".join(parts)

    def _draw(self) -> None:
        self._is_drawn = True
        width = shutil.get_terminal_size().columns
        bar_width = 20
        filled = bar_width * self._done // self._total if self._total else bar_width
        bar = "=" * filled + " " * (bar_width - filled)
        sys.stderr.write(f"\r[{bar}] {self._line}"[:width] + "\x1b[K")
        sys.stderr.flush()


def format_seconds(seconds: float) -> str:
    """Writes a duration as hours, minutes and seconds: 3725 becomes `1:02:05`."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
