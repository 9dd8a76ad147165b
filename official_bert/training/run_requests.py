"""Requests to a training run from outside: for a checkpoint or for the end, by a signal or by the clock."""

import contextlib
import signal
import time
from collections.abc import Iterator

from official_bert.support.signals import SAVE_SIGNAL, restart_system_calls


class Terminated(BaseException):
    """SIGTERM came; like KeyboardInterrupt no Exception, so that nobody on the way takes it for an error of theirs."""


class RunRequests:
    """Notices what is asked of a run while the block runs, beside checkpoints every so many steps.

    SIGTERM asks for a checkpoint and the end, instead of ending the process; SIGUSR1 asks for a checkpoint, after which
    training goes on.

    Attributes:
      is_terminated: whether SIGTERM came.
      is_signalled: whether SIGUSR1 came since the last checkpoint.
    """

    def __init__(self, *, save_seconds: float = 0, max_seconds: float = 0, may_raise: bool = True):
        """Start the clocks with the block.

        Args:
          save_seconds: seconds between checkpoints; 0 for none by the clock.
          max_seconds: seconds after which training ends; 0 for no limit.
          may_raise: whether `raised` raises; otherwise SIGTERM is only noticed there, too.
        """
        self._save_seconds = save_seconds
        self._max_seconds = max_seconds
        self._may_raise = may_raise

    def __enter__(self) -> "RunRequests":
        self._began = self._saved = time.monotonic()
        self.is_terminated = self.is_signalled = self._is_raised = False
        handlers = {signal.SIGTERM: self._note_sigterm}
        if SAVE_SIGNAL is not None:
            handlers[SAVE_SIGNAL] = self._note_sigusr1
        self._previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        for number in handlers:
            restart_system_calls(number)
        return self

    def __exit__(self, *_) -> None:
        if self.is_terminated:  # about to end with success, which a second SIGTERM must not turn into a failure
            self._previous[signal.SIGTERM] = signal.SIG_IGN
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note_sigterm(self, *_) -> None:
        self.is_terminated = True
        if self._is_raised:
            self._is_raised = False  # once; a second signal must not break what handles the first
            raise Terminated

    def _note_sigusr1(self, *_) -> None:
        self.is_signalled = True

    @contextlib.contextmanager
    def raise_on_stop(self) -> Iterator[None]:
        """Raise `Terminated` in the block, at once if SIGTERM came before: for long work that may be lost."""
        if not self._may_raise:
            yield
            return
        if self.is_terminated:
            raise Terminated
        self._is_raised = True
        try:
            yield
        except Exception as error:
            if self.is_terminated:  # native code of TensorFlow makes an error of what is raised while it handles one
                raise Terminated from error
            raise
        finally:
            self._is_raised = False

    @property
    def is_due(self) -> bool:
        """True if a checkpoint is asked for."""
        is_late = self._save_seconds and time.monotonic() - self._saved >= self._save_seconds
        return bool(self.is_signalled or is_late)

    @property
    def is_over(self) -> bool:
        """True if the time of training is up."""
        return bool(self._max_seconds and time.monotonic() - self._began >= self._max_seconds)

    def mark_saved(self) -> None:
        """Note that a checkpoint has been saved, which answers what was asked for before."""
        self.is_signalled = False
        self._saved = time.monotonic()
