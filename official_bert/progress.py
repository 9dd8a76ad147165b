"""Tells how far a long job is: one line that is redrawn on a terminal, log lines elsewhere."""

import shutil
import sys
import time

from absl import logging

_SECONDS_BETWEEN_REDRAWS = 0.2


class Progress:
    """Progress of a job of known length.

    Example:
      >>> with Progress("making records", total=100, unit="documents", log_every_seconds=10) as progress:
      ...     progress.update(40, "9,120 records/s")
      making records:  40% of 100 documents, 9,120 records/s, 0:00:12 left
    """

    def __init__(self, label: str, total: int, unit: str, *, start: int = 0, log_every_seconds: float | None = None):
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
        self._is_drawn = False

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_) -> None:
        self.clear()

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
        now = time.monotonic()
        if self._is_terminal:
            if log or now - self._last_shown >= _SECONDS_BETWEEN_REDRAWS:
                self._last_shown = now
                self._draw(self._line(details))
        elif log or (self._log_every_seconds is not None and now - self._last_shown >= self._log_every_seconds):
            self._last_shown = now
            logging.info("%s", self._line(details))

    def clear(self) -> None:
        """Wipes the terminal's line, so that something else can be printed."""
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_drawn = False

    def _line(self, details: str) -> str:
        share = self._done / self._total if self._total else 1.0
        parts = [f"{self._label}: {share:4.0%} of {self._total:,} {self._unit}"]
        if details:
            parts.append(details)
        if self._done > self._start:
            left = self.seconds / (self._done - self._start) * (self._total - self._done)
            parts.append(f"{format_seconds(left)} left")
        return ", ".join(parts)

    def _draw(self, line: str) -> None:
        width = shutil.get_terminal_size().columns
        bar_width = 20
        filled = bar_width * self._done // self._total if self._total else bar_width
        bar = "=" * filled + " " * (bar_width - filled)
        sys.stderr.write(f"\r[{bar}] {line}"[:width] + "\x1b[K")
        sys.stderr.flush()
        self._is_drawn = True


def format_seconds(seconds: float) -> str:
    """Writes a duration as hours, minutes and seconds: 3725 becomes `1:02:05`."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
