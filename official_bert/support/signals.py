"""Signals: termination, interruption, and requests for checkpoints. Windows lacks some of them."""

import contextlib
import signal
import threading
from collections.abc import Iterator

SAVE_SIGNAL = getattr(signal, "SIGUSR1", None)  # asks a training run for a checkpoint; None on Windows
EXIT_CODE_OF_BROKEN_PIPE = 128 + 13  # as a shell reports SIGPIPE
EXIT_CODE_OF_TERMINATION = 128 + 15  # as a shell reports SIGTERM

_HAS_MASKS = hasattr(signal, "pthread_sigmask")


class Terminated(BaseException):
    """SIGTERM was received; not an Exception, like KeyboardInterrupt, so that error handlers do not catch it."""


@contextlib.contextmanager
def raising_terminated() -> Iterator[None]:
    """Raise `Terminated` in the block when SIGTERM is received, unless the process ignores or handles it."""
    is_ending = False

    def handle(*_) -> None:
        nonlocal is_ending
        is_ending = True
        raise Terminated

    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, handle)
    try:
        yield
    except SystemExit:
        is_ending = True
        raise
    except Exception as error:
        if is_ending:  # native code may replace the raised exception by another error
            raise Terminated from error
        raise
    finally:
        if is_main and signal.getsignal(signal.SIGTERM) is handle:  # at the end, later ones are ignored
            signal.signal(signal.SIGTERM, signal.SIG_IGN if is_ending else signal.SIG_DFL)


def restart_system_calls(number: int) -> None:
    """Restart system calls that a signal interrupts, so that a checkpoint in progress is completed."""
    if hasattr(signal, "siginterrupt"):
        signal.siginterrupt(number, False)


@contextlib.contextmanager
def blocked_interrupt() -> Iterator[None]:
    """Defer Ctrl-C during the block, and in a process started there until `unblock_interrupt`."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]) if _HAS_MASKS else None
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def unblock_interrupt() -> None:
    """Stop deferring Ctrl-C in this process."""
    if _HAS_MASKS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
