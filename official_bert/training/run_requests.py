"""External requests to a training run, by signal or time: save a checkpoint, or stop."""

import contextlib
import signal
import time
from collections.abc import Iterator

from official_bert.support.signals import SAVE_SIGNAL, Terminated, restart_system_calls


class RunRequests:
    """Tracker of requests to a run during the block, in addition to checkpoints at fixed steps.

    SIGTERM requests a checkpoint and the end of training instead of killing the process. SIGUSR1 requests a checkpoint;
    training continues.

    Attributes:
      is_terminated: whether SIGTERM was received.
      is_signalled: whether SIGUSR1 was received since the last checkpoint.
    """

    def __init__(self, *, save_seconds: float = 0, max_seconds: float = 0, may_raise: bool = True):
        """Configure the requests; the clocks start with the block.

        Args:
          save_seconds: seconds between checkpoints; 0 disables them.
          max_seconds: seconds after which training ends; 0 for no limit.
          may_raise: whether `raised` may raise; otherwise it only records SIGTERM.
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
        if self.is_terminated:  # already ending successfully; a second SIGTERM must not turn this into a failure
            self._previous[signal.SIGTERM] = signal.SIG_IGN
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note_sigterm(self, *_) -> None:
        self.is_terminated = True
        if self._is_raised:
            self._is_raised = False  # raise only once; a second signal must not interrupt the handler of the first
            raise Terminated

    def _note_sigusr1(self, *_) -> None:
        self.is_signalled = True

    @contextlib.contextmanager
    def raise_on_stop(self) -> Iterator[None]:
        """Raise `Terminated` in the block, at once if SIGTERM was received before: for long work that may be lost."""
        if not self._may_raise:
            yield
            return
        if self.is_terminated:
            raise Terminated
        self._is_raised = True
        try:
            yield
        except Exception as error:
            if self.is_terminated:  # TensorFlow's native code may replace the raised exception by another error
                raise Terminated from error
            raise
        finally:
            self._is_raised = False

    @property
    def is_due(self) -> bool:
        """True if a checkpoint is requested."""
        is_late = self._save_seconds and time.monotonic() - self._saved >= self._save_seconds
        return bool(self.is_signalled or is_late)

    @property
    def is_over(self) -> bool:
        """True if the time limit is reached."""
        return bool(self._max_seconds and time.monotonic() - self._began >= self._max_seconds)

    def mark_saved(self) -> None:
        """Record that a checkpoint was saved, which fulfils earlier requests."""
        self.is_signalled = False
        self._saved = time.monotonic()
