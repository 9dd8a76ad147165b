"""Work for several processes: `Workers` applies a function to many items and gives the results in their order."""

import collections
import concurrent.futures
import contextlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from official_bert.support.errors import UserError

_WAITING_ITEMS = 2  # for each process beside the one it works at, so that none waits for this process


def available_cores() -> int:
    """Number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """Processes that apply functions to items; a context manager.

    They are started, not forked: a copy of a process in which TensorFlow's threads run may hang. So a function must be
    one of a module, and its items, settings and results are sent as pickles. A single process is this one.

    Example:
      >>> with Workers(4, tokenizer, name="tokenizes") as workers:
      ...     for ids in workers.map(encode, lines):   # calls encode(line, tokenizer)
      ...         ...
    """

    def __init__(self, num_processes: int, *settings: Any, name: str, advice: str = "use fewer processes"):
        """Starts nothing yet.

        Args:
          num_processes: at least 1.
          *settings: further arguments of every function, sent once to each process.
          name: what a process does, for messages: "tokenizes".
          advice: what to do when the system ends one.
        """
        self.num_processes = num_processes
        self._settings = settings
        self._name = name
        self._advice = advice
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        if self.num_processes > 1:
            self._pool = concurrent.futures.ProcessPoolExecutor(
                self.num_processes,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start,
                initargs=self._settings,
            )
        return self

    def __exit__(self, *_) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[..., Any], items: Iterable[Any]) -> Iterator[Any]:
        """Applies a function to items, of which only a few are taken in advance.

        Args:
          function: called with an item and the settings.
          items: as many as there are.

        Yields:
          The results, in the order of the items. So of several mistakes the first one is raised, as if this were a
          single process.

        Raises:
          UserError: the system ended a process.
        """
        if self._pool is None:
            for item in items:
                yield function(item, *self._settings)
            return
        items = iter(items)
        waiting: collections.deque[concurrent.futures.Future] = collections.deque()
        try:
            while True:
                num_wanted = self.num_processes * (1 + _WAITING_ITEMS) - len(waiting)
                with _no_interrupts():
                    for item in itertools.islice(items, num_wanted):
                        waiting.append(self._pool.submit(_apply, function, item))
                if not waiting:
                    return
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise UserError(
                f"the system ended a process that {self._name}, probably because memory ran out; {self._advice}"
            ) from error


@contextlib.contextmanager
def _no_interrupts() -> Iterator[None]:
    """Keeps Ctrl-C waiting, also from a process that is started in the block, which would print a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# What a process needs for all its work is sent to it once, when it starts.
_settings: tuple[Any, ...] = ()


def _start(*settings: Any) -> None:
    global _settings
    _settings = settings
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches every process; only the first one has words for it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this process when the one that started it is gone, from which it would wait for work for ever."""
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)


def _apply(function: Callable[..., Any], item: Any) -> Any:
    return function(item, *_settings)
