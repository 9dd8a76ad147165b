"""Parallel processes, of which `Workers` maps a function over items in order, and their addresses."""

import collections
import contextlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import pickle
import queue
import socket
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from multiprocessing.pool import RemoteTraceback
from typing import Any, NamedTuple

from official_bert.support import signals
from official_bert.support.errors import UserError

_WAITING_ITEMS = 2  # queued per process, so that none waits for this one
_SECONDS_TO_END = 5  # after its pipe was closed


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """Processes that apply functions to items; a context manager.

    They are spawned, not forked: a forked copy of a process with TensorFlow's threads may hang. A function must
    therefore be defined in a module, and items, settings and results are pickled. With one process, the work is done in
    this one.

    Each process has its own pipe. In a `ProcessPoolExecutor` all processes share two, so nobody sees the end of one: if
    a process is killed while it sends a result, this one waits forever, and if this one is killed, the others survive,
    as "a signal to the first process" of `faults/test_record_making.py` shows.
    """

    def __init__(self, num_processes: int, *settings: Any, name: str, advice: str = "use fewer processes"):
        self.num_processes = num_processes
        self._settings = settings
        self._name = name
        self._advice = advice
        self._processes: list[_Worker] = []

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_) -> None:
        self._stop()

    def map(self, function: Callable[..., Any], items: Iterable[Any]) -> Iterator[Any]:
        """Yield `function(item, *settings)` in the order of the items, of which only a few are read ahead."""
        if self.num_processes == 1:
            for item in items:
                yield function(item, *self._settings)
            return
        items = iter(items)
        waiting: collections.deque[Future] = collections.deque()
        try:
            while True:
                while len(waiting) < self.num_processes * (1 + _WAITING_ITEMS):
                    try:
                        item = next(items)
                    except StopIteration:
                        break
                    waiting.append(self._submit(function, item))
                if not waiting:
                    return
                while not waiting[0].done():
                    self._receive()
                yield waiting.popleft().result()
        finally:
            # After an error here or in the consumer: the other results are not needed, and one may be half sent.
            if any(worker.tasks for worker in self._processes):
                self._stop()

    def _submit(self, function: Callable[..., Any], item: Any) -> Future:
        worker = min(self._processes, key=lambda worker: len(worker.tasks), default=None)
        if (worker is None or worker.tasks) and len(self._processes) < self.num_processes:
            worker = self._start()
        result: Future = Future()
        worker.tasks.append(result)
        with self._reporting_lost(worker):
            worker.connection.send((function, item))
        return result

    def _start(self) -> "_Worker":
        # Otherwise it would start with the first process, and its start lets Ctrl-C through despite the block.
        multiprocessing.resource_tracker.ensure_running()
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs,), daemon=True)
        with signals.blocked_interrupt():  # "ctrl_c_while" of `support/test_processes.py` shows Python's traceback
            process.start()
        theirs.close()  # so that reading ends when the process does
        worker = _Worker(process, ours, collections.deque())
        with self._reporting_lost(worker):
            worker.connection.send(self._settings)
        self._processes.append(worker)  # only now: without settings it is useless, and ends with its pipe
        return worker

    def _receive(self) -> None:
        busy = {worker.connection: worker for worker in self._processes if worker.tasks}
        for connection in multiprocessing.connection.wait(list(busy)):
            with self._reporting_lost(busy[connection]):
                has_result, value, where = connection.recv()
            result = busy[connection].tasks.popleft()
            if has_result:
                result.set_result(value)
            else:
                value.__cause__ = RemoteTraceback(where)
                result.set_exception(value)

    @contextlib.contextmanager
    def _reporting_lost(self, worker: "_Worker") -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError) as error:
            worker.process.join(_SECONDS_TO_END)
            if (code := worker.process.exitcode) is not None and code >= 0:  # below 0 it is that of a signal
                raise UserError(
                    f"a process that {self._name} ended with exit code {code}; see its output above. Your program "
                    f'must call this within `if __name__ == "__main__":`'
                ) from error
            raise UserError(
                f"the system ended a process that {self._name}, probably because memory ran out; {self._advice}"
            ) from error

    def _stop(self) -> None:
        for worker in self._processes:
            worker.process.kill()
        for worker in self._processes:
            worker.process.join()
            worker.connection.close()
        self._processes.clear()


class _Worker(NamedTuple):
    process: multiprocessing.process.BaseProcess
    connection: multiprocessing.connection.Connection
    tasks: collections.deque[Future]  # its pending items, in order


def _work(connection: multiprocessing.connection.Connection) -> None:
    """Run a worker process: receive settings, then answer each item with its result or error, until killed."""
    signals.end_at_interrupt()
    received: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive_all, args=(connection, received), daemon=True).start()
    settings = pickle.loads(received.get())
    while True:
        answer: tuple[bool, Any, str]
        try:
            function, item = pickle.loads(received.get())
            answer = True, function(item, *settings), ""
        except Exception as error:
            answer = False, _sendable(error), traceback.format_exc()
        connection.send(answer)


def _receive_all(connection: multiprocessing.connection.Connection, received: "queue.SimpleQueue[bytes]") -> None:
    """Receive everything immediately, so that the sender never waits; exit when the sender is gone."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            received.put(connection.recv_bytes())
    os._exit(1)


class LateCall:
    """A call for another process, which imports the modules of the function and its arguments only when it is made."""

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self._pickled = pickle.dumps((function, arguments))

    def __call__(self) -> Any:
        function, arguments = pickle.loads(self._pickled)
        return function(*arguments)


def _sendable(error: Exception) -> Exception:
    """Return a picklable error; classes that build their own message are not."""
    with contextlib.suppress(Exception):
        if str(pickle.loads(pickle.dumps(error))) == str(error):
            return error
    return UserError(str(error)) if isinstance(error, UserError) else RuntimeError(f"{type(error).__name__}: {error}")


def is_address(text: object) -> bool:
    """Return True for a string host:port with a valid port number."""
    if not isinstance(text, str):
        return False
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 2**16


def check_free(port: int, name: str) -> None:
    """Check that a server can listen on a port of all addresses of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port with closing connections counts as free
        try:
            probe.bind(("", port))
        except OSError as error:
            raise UserError(f"{name}={port} cannot be used ({error.strerror}); give another port") from error
