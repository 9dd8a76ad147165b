"""Saves and ends of a training run by the clock, or by a signal that asks for a checkpoint."""

import signal
import time


class SaveRequests:
    """Asks for checkpoints beside those of every so many steps, and for the end, while the block runs.

    SIGUSR1 asks for a checkpoint, after which training goes on.

    Attributes:
      is_signalled: whether SIGUSR1 came since the last checkpoint.
    """

    def __init__(self, *, save_seconds: float, max_seconds: float):
        """Starts the clocks with the block.

        Args:
          save_seconds: seconds between checkpoints; 0 for none by the clock.
          max_seconds: seconds after which training ends; 0 for no limit.
        """
        self._save_seconds = save_seconds
        self._max_seconds = max_seconds

    def __enter__(self) -> "SaveRequests":
        self._began = self._saved = time.monotonic()
        self.is_signalled = False
        self._previous = signal.signal(signal.SIGUSR1, self._notice)
        signal.siginterrupt(signal.SIGUSR1, False)
        return self

    def _notice(self, *_) -> None:
        self.is_signalled = True

    def __exit__(self, *_) -> None:
        signal.signal(signal.SIGUSR1, self._previous)

    @property
    def is_due(self) -> bool:
        """True if a checkpoint is asked for."""
        is_late = self._save_seconds and time.monotonic() - self._saved >= self._save_seconds
        return bool(self.is_signalled or is_late)

    @property
    def is_over(self) -> bool:
        """True if the time of training is up."""
        return bool(self._max_seconds and time.monotonic() - self._began >= self._max_seconds)

    def note_saved(self) -> None:
        """Notes that a checkpoint has been saved, which answers what was asked for before."""
        self.is_signalled = False
        self._saved = time.monotonic()
