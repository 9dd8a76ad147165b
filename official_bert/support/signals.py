"""Signals, some of which Windows lacks: there nothing is blocked, and checkpoints cannot be requested."""

import contextlib
import signal
from collections.abc import Iterator

SAVE_SIGNAL = getattr(signal, "SIGUSR1", None)  # asks a training run for a checkpoint; None on Windows
EXIT_CODE_OF_BROKEN_PIPE = 128 + 13  # as a shell reports SIGPIPE

_HAS_MASKS = hasattr(signal, "pthread_sigmask")


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
