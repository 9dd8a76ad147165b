"""Signals that end a command or a training run, or ask a run for a checkpoint; only the server has its own handlers."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any

SAVE_SIGNAL = getattr(signal, "SIGUSR1", None)  # asks a training run for a checkpoint; None on Windows
EXIT_CODE_OF_INTERRUPTION = 128 + 2  # as a shell reports SIGINT
EXIT_CODE_OF_BROKEN_PIPE = 128 + 13  # SIGPIPE
EXIT_CODE_OF_TERMINATION = 128 + 15  # SIGTERM

_HAS_MASKS = hasattr(signal, "pthread_sigmask")
# `timeout`, `launch_workers` and other programs pass Ctrl-C on to processes that the terminal sends it to as well.
_SECONDS_OF_ONE_CTRL_C = 0.3
_SAVING = "\nCtrl-C: saving a checkpoint; press it again to end at once\n"


class Stopped(BaseException):
    """SIGTERM, or Ctrl-C in a run that saves; not an Exception, like KeyboardInterrupt: error handlers let it pass."""


@contextlib.contextmanager
def _handled(handle: Callable[[int, Any], None] | signal.Handlers, *numbers: int) -> Iterator[dict[int, Any]]:
    """Handle signals in the block, which only the main thread can; yield the handlers that are restored after it."""
    previous = {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            former = signal.getsignal(number)
            if number != signal.SIGINT or former is not signal.SIG_IGN:  # as of a job in the background
                previous[number] = former
                signal.signal(number, handle)
    try:
        yield previous
    finally:
        for number, former in previous.items():
            signal.signal(number, former)


def _take_ctrl_c(following: Any) -> None:
    """Ignore repetitions of this Ctrl-C for a moment; `following` handles the next one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        time.sleep(_SECONDS_OF_ONE_CTRL_C)
    finally:
        signal.signal(signal.SIGINT, following)


def _end_command(*_) -> None:
    _take_ctrl_c(signal.SIG_DFL)  # which ends the process even in native code that does not return
    raise KeyboardInterrupt


def _is_in_destructor(frame: types.FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def _raise_stopped(frame: types.FrameType | None) -> None:
    """Raise `Stopped`; in a destructor, which would only print it, send SIGTERM again in a moment."""
    if not _is_in_destructor(frame):
        raise Stopped
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()


@contextlib.contextmanager
def ending_command() -> Iterator[None]:
    """Raise `Stopped` at SIGTERM and KeyboardInterrupt at Ctrl-C, unless the process ignores or handles them."""
    is_ending = False

    def terminate(_, frame: types.FrameType | None) -> None:
        nonlocal is_ending
        is_ending = True
        _raise_stopped(frame)

    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, terminate)
    if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_command)
    try:
        yield
    except SystemExit:
        is_ending = True
        raise
    except Exception as error:
        if is_ending:  # native code may replace the raised exception by another error
            raise Stopped from error
        raise
    finally:
        if is_main and signal.getsignal(signal.SIGTERM) is terminate:  # at the end, later ones are ignored
            signal.signal(signal.SIGTERM, signal.SIG_IGN if is_ending else signal.SIG_DFL)
        if is_main and signal.getsignal(signal.SIGINT) is _end_command:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class RunRequests:
    """Requests to a training run in the block: SIGTERM and Ctrl-C end it after a checkpoint, SIGUSR1 asks for one.

    A second Ctrl-C ends a command at once, even while native code waits; in Python it raises KeyboardInterrupt.
    """

    def __init__(self, *, may_raise: bool = True):
        self._may_raise = may_raise
        self.is_stopped = self.is_interrupted = self.is_save_requested = self._is_raised = False

    def __enter__(self) -> "RunRequests":
        numbers = [number for number in (signal.SIGTERM, signal.SIGINT, SAVE_SIGNAL) if number is not None]
        self._handlers = contextlib.ExitStack()
        self._previous = self._handlers.enter_context(_handled(self._handle, *numbers))
        for number in self._previous:
            if hasattr(signal, "siginterrupt"):  # system calls go on, so that a checkpoint in progress is completed
                signal.siginterrupt(number, False)
        return self

    def __exit__(self, *_) -> None:
        if self.is_stopped and not self.is_interrupted:
            self._previous[signal.SIGTERM] = signal.SIG_IGN  # a second one must not turn the success into a failure
        self._handlers.close()

    def _handle(self, number: int, frame: types.FrameType | None) -> None:
        if number == SAVE_SIGNAL:
            self.is_save_requested = True
            return
        self.is_stopped = True
        if number == signal.SIGINT:
            self.is_interrupted = True
            with contextlib.suppress(OSError):  # not the log, in which the signal may have arrived
                os.write(sys.__stderr__.fileno(), _SAVING.encode())
            if self._previous[number] is _end_command:
                self._previous[number] = signal.SIG_DFL
            _take_ctrl_c(self._previous[number])
        if self._is_raised:
            self._is_raised = _is_in_destructor(frame)  # raise once; a second signal must not interrupt the first
            _raise_stopped(frame)

    @contextlib.contextmanager
    def raise_on_stop(self) -> Iterator[None]:
        """Raise `Stopped` in the block, at once if the run was stopped before: for long work that may be lost."""
        if not self._may_raise:
            yield
            return
        if self.is_stopped:
            raise Stopped
        self._is_raised = True
        try:
            yield
        except Exception as error:
            if self.is_stopped:  # TensorFlow's native code may replace the raised exception by another error
                raise Stopped from error
            raise
        finally:
            self._is_raised = False


@contextlib.contextmanager
def passed_on(processes: Collection[subprocess.Popen]) -> Iterator[set[int]]:
    """Pass SIGTERM and Ctrl-C on to processes, which then save a checkpoint; kill those that outlive the block.

    Yields a set to which the received signals are added.
    """
    received: set[int] = set()

    def pass_on(number: int, _) -> None:
        received.add(number)
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)

    with _handled(pass_on, signal.SIGTERM, signal.SIGINT):
        try:
            yield received
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()


def ended_by_ctrl_c() -> contextlib.AbstractContextManager:
    """Make Ctrl-C end the process immediately during the block.

    For native code that waits without a timeout: Python would handle the signal only afterwards. This does not work for
    SIGTERM: TensorFlow installs its own handler, which does nothing here. Without this, "ctrl_c_stops" of
    `training/test_multi_worker.py` hangs.
    """
    return _handled(signal.SIG_DFL, signal.SIGINT)


@contextlib.contextmanager
def blocked_interrupt() -> Iterator[None]:
    """Defer Ctrl-C during the block, and in a process started there until it calls `end_at_interrupt`."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]) if _HAS_MASKS else None
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def end_at_interrupt() -> None:
    """Let Ctrl-C end this process without a word: it reaches every process, and only the main one reports it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if _HAS_MASKS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
