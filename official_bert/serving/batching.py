"""Joins concurrent requests into batches, as TensorFlow Serving does, inside an asyncio server.

TensorFlow's own `BatchFunction` cannot pad requests of different lengths, fails all requests of a batch with an invalid
one, and keeps a thread waiting for each request; so the batches are formed here, on the event loop.
"""

import asyncio
import collections
import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np

from official_bert.config.batching import BatchingSettings

Arrays = Mapping[str, np.ndarray]


class QueueFullError(RuntimeError):
    """More requests wait than the settings allow."""


class _Call(NamedTuple):
    """A request, or a part of a large one, that waits for its results."""

    inputs: Arrays
    num_examples: int
    answer: asyncio.Future
    deadline: float  # on the event loop's clock: when it no longer waits for others


class Batcher:
    """Calls a function with the rows of several calls at once; all methods but `compute` run on the event loop."""

    def __init__(
        self,
        compute: Callable[[Arrays], Arrays],
        settings: BatchingSettings,
        executor: Executor,
        *,
        is_joining: bool,
        observe: Callable[[int], None] = lambda num_examples: None,
    ):
        """Starts without calls.

        Args:
          compute: takes and gives arrays by name, whose first axes count the same examples; blocks.
          settings: sizes of batches and of the queue.
          executor: where `compute` is called, of `settings.num_batch_threads` threads.
          is_joining: whether a row of the results depends on its own row alone, in its shape too; otherwise each call
            is computed alone, and as a whole.
          observe: is called with the number of examples of each batch.
        """
        self._compute, self._settings, self._executor = compute, settings, executor
        self._is_joining, self._observe = is_joining, observe
        self._waiting: collections.deque[_Call] = collections.deque()
        self._num_waiting = self._num_running = 0  # examples, and batches
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, inputs: Arrays) -> Arrays:
        """Computes some rows, together with those of other calls.

        Args:
          inputs: the arrays; their first axes have the same length, N.

        Returns:
          Arrays with N rows.

        Raises:
          QueueFullError: too many calls wait.
          Exception: what `compute` raises for these rows alone.
        """
        num_examples = len(next(iter(inputs.values())))
        size = self._settings.max_execution_batch_size if self._is_joining else max(num_examples, 1)
        if self._num_waiting + num_examples > self._settings.max_enqueued_batches * size:
            raise QueueFullError(f"{self._num_waiting} examples are waiting; try again later")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.batch_timeout_micros / 1e6
        answers = []
        for start in range(0, max(num_examples, 1), size):
            part = {name: values[start : start + size] for name, values in inputs.items()}
            call = _Call(part, min(size, num_examples - start), loop.create_future(), deadline)
            self._waiting.append(call)
            self._num_waiting += call.num_examples
            answers.append(call.answer)
        self._start_batches()
        parts = await asyncio.gather(*answers)
        return parts[0] if len(parts) == 1 else _joined(parts)

    def _start_batches(self) -> None:
        """Starts what is full, or has waited long enough, as far as threads are free."""
        while self._waiting and self._num_running < self._settings.num_batch_threads:
            loop = asyncio.get_running_loop()
            is_full = not self._is_joining or self._num_waiting >= self._settings.max_execution_batch_size
            deadline = self._waiting[0].deadline
            if not is_full and loop.time() < deadline:
                if self._timer is None:
                    self._timer = loop.call_at(deadline, self._end_wait)
                return
            calls = self._take()
            self._num_running += 1
            batch = loop.run_in_executor(self._executor, self._run, [call.inputs for call in calls])
            batch.add_done_callback(functools.partial(self._finish, calls))

    def _end_wait(self) -> None:
        self._timer = None
        self._start_batches()

    def _take(self) -> list[_Call]:
        """The calls that come next, as many as fit into a batch."""
        calls, num_examples = [], 0
        while self._waiting and (
            not calls
            or (
                self._is_joining
                and num_examples + self._waiting[0].num_examples <= self._settings.max_execution_batch_size
            )
        ):
            calls.append(self._waiting.popleft())
            num_examples += calls[-1].num_examples
        self._num_waiting -= num_examples
        return calls

    def _run(self, requests: Sequence[Arrays]) -> list[Arrays | Exception]:
        """Computes a batch, in a thread; one wrong request must not spoil its neighbours."""
        sizes = [len(next(iter(inputs.values()))) for inputs in requests]
        self._observe(sum(sizes))
        try:
            results = self._compute(_joined(requests) if len(requests) > 1 else requests[0])
        except Exception as error:
            return [error] if len(requests) == 1 else [self._run([inputs])[0] for inputs in requests]
        if len(requests) == 1:
            return [results]
        ends = np.cumsum(sizes)
        return [
            {name: values[end - size : end] for name, values in results.items()}
            for size, end in zip(sizes, ends, strict=True)
        ]

    def _finish(self, calls: Sequence[_Call], batch: asyncio.Future) -> None:
        self._num_running -= 1
        results = [batch.exception()] * len(calls) if batch.exception() else batch.result()
        for call, result in zip(calls, results, strict=True):
            if call.answer.done():  # cancelled: the client has gone
                continue
            if isinstance(result, Exception):
                call.answer.set_exception(result)
            else:
                call.answer.set_result(result)
        self._start_batches()


def _joined(parts: Sequence[Arrays]) -> Arrays:
    """One below the other; where lengths differ, the shorter are filled up with zeros, which a mask of 0 hides."""
    return {name: np.concatenate(_of_one_length([part[name] for part in parts])) for name in parts[0]}


def _of_one_length(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    if len({array.shape[1:] for array in arrays}) == 1:
        return arrays
    length = max(array.shape[1] for array in arrays)
    return [np.pad(array, ((0, 0), (0, length - array.shape[1]))) for array in arrays]
