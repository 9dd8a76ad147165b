"""Join concurrent requests into batches, as TensorFlow Serving does, inside an asyncio server.

TensorFlow's own `BatchFunction` cannot pad requests of different lengths, fails a whole batch for one invalid request,
and blocks a thread per waiting request. Therefore batches are formed here, on the event loop.
"""

import asyncio
import collections
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np

from official_bert.config.batching_settings import BatchingSettings

Arrays = Mapping[str, np.ndarray]

_POSITIONS_PER_EXAMPLE = 128  # average capacity of a batch
_BYTES_PER_POSITION = 4  # approximate bytes of text per position


class QueueFullError(RuntimeError):
    """More requests are queued than the settings allow."""


class _Call(NamedTuple):
    """A request, or a part of a large one, waiting for its results."""

    inputs: Arrays
    num_examples: int
    work: int  # approximate number of positions
    answer: asyncio.Future
    deadline: float  # on the event loop's clock: the end of waiting for other calls


class Batcher:
    """Batcher of the rows of concurrent calls; all methods except `compute` run on the event loop.

    A batch has bounded work, so large calls are computed in parts, and waiting calls take turns part by part. Parts
    that exceed a batch, because they cannot be divided, leave one thread to the others if there are several.
    """

    def __init__(
        self,
        compute: Callable[[Arrays], Arrays],
        settings: BatchingSettings,
        executor: Executor,
        *,
        is_joining: bool,
        observe: Callable[[int], None] = lambda num_examples: None,
    ):
        """Create a batcher without calls.

        Args:
          compute: maps arrays by name to arrays by name, all with an example axis first; blocks.
          settings: batch and queue sizes.
          executor: thread pool for `compute`, with `settings.num_batch_threads` threads.
          is_joining: whether each result row, including its shape, depends only on its input row; otherwise each call
            is computed alone and whole.
          observe: called with the number of examples in each batch.
        """
        self._compute, self._settings, self._executor = compute, settings, executor
        self._is_joining, self._observe = is_joining, observe
        self._most_work = settings.max_execution_batch_size * _POSITIONS_PER_EXAMPLE
        self._waiting: collections.deque[collections.deque[_Call]] = collections.deque()  # the parts of each call
        self._num_waiting = self._num_running = self._num_large = 0  # examples, batches, and oversized batches
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, inputs: Arrays) -> Arrays:
        """Compute rows, together with those of other calls.

        Args:
          inputs: the arrays; their first axes have the same length, N.

        Returns:
          Arrays with N rows.

        Raises:
          QueueFullError: too many calls are queued.
          Exception: what `compute` raises for these rows alone.
        """
        num_examples = len(next(iter(inputs.values())))
        size = self._settings.max_execution_batch_size if self._is_joining else max(num_examples, 1)
        if self._num_waiting + num_examples > self._settings.max_enqueued_batches * size:
            raise QueueFullError(f"{self._num_waiting} examples are waiting; try again later")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.batch_timeout_micros / 1e6
        calls = [
            _Call({name: values[rows] for name, values in inputs.items()}, size, work, loop.create_future(), deadline)
            for rows, size, work in self._parts(inputs, num_examples)
        ]
        self._waiting.append(collections.deque(calls))
        self._num_waiting += num_examples
        self._start_batches()
        parts = await asyncio.gather(*(call.answer for call in calls))
        return parts[0] if len(parts) == 1 else _joined(parts)

    def _parts(self, inputs: Arrays, num_examples: int) -> Iterator[tuple[slice, int, int]]:
        """Return the rows of each part of a call, the number of rows and their work."""
        works = _work(inputs, num_examples)
        if not self._is_joining:
            yield slice(None), num_examples, sum(works)
            return
        start = work = 0
        for row, more in enumerate(works):
            if row > start and (
                row - start == self._settings.max_execution_batch_size or work + more > self._most_work
            ):
                yield slice(start, row), row - start, work
                start, work = row, 0
            work += more
        yield slice(start, num_examples), num_examples - start, work

    def _start_batches(self) -> None:
        """Start batches that are full or have waited long enough, if threads are free."""
        while self._waiting and self._num_running < self._settings.num_batch_threads:
            loop = asyncio.get_running_loop()
            is_full = not self._is_joining or self._num_waiting >= self._settings.max_execution_batch_size
            deadline = min(parts[0].deadline for parts in self._waiting) if not is_full else 0.0
            if not is_full and loop.time() < deadline:
                if self._timer is None:
                    self._timer = loop.call_at(deadline, self._end_wait)
                return
            calls = self._take()
            if not calls:
                return
            is_large = self._is_large(calls[0])
            self._num_running += 1
            self._num_large += is_large
            batch = loop.run_in_executor(self._executor, self._run, [call.inputs for call in calls])
            batch.add_done_callback(functools.partial(self._finish, calls, is_large))

    def _end_wait(self) -> None:
        self._timer = None
        self._start_batches()

    def _take(self) -> list[_Call]:
        """Return the next parts, as many as fit into a batch, one per call in turn."""
        may_be_large = self._num_large < max(self._settings.num_batch_threads - 1, 1)
        batch, num_examples, work = [], 0, 0
        for _ in range(len(self._waiting)):
            parts = self._waiting[0]
            call = parts[0]
            if self._is_large(call) and not may_be_large:
                self._waiting.rotate(-1)
                continue
            num_examples, work = num_examples + call.num_examples, work + call.work
            is_too_much = num_examples > self._settings.max_execution_batch_size or work > self._most_work
            if batch and (is_too_much or not self._is_joining):
                break
            batch.append(parts.popleft())
            self._num_waiting -= call.num_examples
            self._waiting.popleft()
            if parts:
                self._waiting.append(parts)
        return batch

    def _is_large(self, call: _Call) -> bool:
        return call.work > self._most_work

    def _run(self, requests: Sequence[Arrays]) -> list[Arrays | Exception]:
        """Compute a batch in a thread; an invalid request must not fail the others."""
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

    def _finish(self, calls: Sequence[_Call], is_large: bool, batch: asyncio.Future) -> None:
        self._num_running -= 1
        self._num_large -= is_large
        results = [batch.exception()] * len(calls) if batch.exception() else batch.result()
        for call, result in zip(calls, results, strict=True):
            if call.answer.done():  # cancelled: the client has disconnected
                continue
            if isinstance(result, Exception):
                call.answer.set_exception(result)
            else:
                call.answer.set_result(result)
        self._start_batches()


def _work(inputs: Arrays, num_examples: int) -> Sequence[int]:
    """Estimate the positions per example, from its ids or its text length."""
    works = [0] * num_examples
    for values in inputs.values():
        if values.dtype != object:
            works = [max(work, math.prod(values.shape[1:])) for work in works]
        elif num_examples:
            lengths = (sum(map(len, texts)) for texts in values.reshape(num_examples, -1))
            works = [work + length // _BYTES_PER_POSITION for work, length in zip(works, lengths, strict=True)]
    return works


def _joined(parts: Sequence[Arrays]) -> Arrays:
    """Concatenate arrays; shorter rows are padded with zeros, which a mask of 0 hides."""
    return {name: np.concatenate(_of_one_length([part[name] for part in parts])) for name in parts[0]}


def _of_one_length(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    if len({array.shape[1:] for array in arrays}) == 1:
        return arrays
    length = max(array.shape[1] for array in arrays)
    return [np.pad(array, ((0, 0), (0, length - array.shape[1]))) for array in arrays]
