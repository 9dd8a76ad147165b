"""SIGTERM in training: noticed, so that a checkpoint is saved before the process ends."""

import contextlib
import signal
from collections.abc import Iterator


class Terminated(BaseException):
    """SIGTERM came; like KeyboardInterrupt no Exception, so that nobody on the way takes it for an error of theirs."""


class SigtermNotice:
    """Notices SIGTERM instead of dying of it, while the block runs.

    Attributes:
      is_set: whether it came.
    """

    def __init__(self, *, may_raise: bool = True):
        """Says whether `raised` raises; otherwise the signal is only noticed there, too."""
        self._may_raise = may_raise

    def __enter__(self) -> "SigtermNotice":
        self.is_set = self._is_raised = False
        self._previous = signal.signal(signal.SIGTERM, self._notice)
        signal.siginterrupt(signal.SIGTERM, False)  # a checkpoint that is being written goes on being written
        return self

    def _notice(self, *_) -> None:
        self.is_set = True
        if self._is_raised:
            self._is_raised = False  # once; a second signal must not break what handles the first
            raise Terminated

    def __exit__(self, *_) -> None:
        # Once it came the process is about to end with success, which a second SIGTERM must not turn into a failure.
        signal.signal(signal.SIGTERM, signal.SIG_IGN if self.is_set else self._previous)

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Raises `Terminated` in the block, at once if the signal came before: for long work that may be lost."""
        if not self._may_raise:
            yield
            return
        if self.is_set:
            raise Terminated
        self._is_raised = True
        try:
            yield
        except Exception as error:
            if self.is_set:  # native code of TensorFlow makes an error of what is raised while it handles another one
                raise Terminated from error
            raise
        finally:
            self._is_raised = False
