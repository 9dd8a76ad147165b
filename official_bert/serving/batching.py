"""Join concurrent requests into batches, as TensorFlow Serving does, inside an asyncio server.

TensorFlow's own `BatchFunction` cannot pad requests of different lengths, fails a whole batch for one invalid request,
and blocks a thread per waiting request. Therefore batches are formed here, on the event loop.
"""

import asyncio
import collections
import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np

from official_bert.options.groups import BatchingSettings

Arrays = Mapping[str, np.ndarray]
Hold = Callable[..., None]  # counts bytes of a request or, with `is_answer`, of its answer

MOST_BYTES = 1 << 26  # maximum size of a request
_MOST_BYTES_TOGETHER = 4 * MOST_BYTES  # total held at a time; small requests may bring it to twice as much
_LARGE = 1 << 20  # minimum size in bytes of a large request
_BYTES_PER_POSITION = 4  # approximate bytes of text per position
LENGTH_OF_ATTENTION = 1024  # positions from which on the work of attention grows with the square of the length
_MOST_COMPARED = 256  # waiting calls whose lengths are compared


class QueueFullError(RuntimeError):
    """More requests are queued than the settings allow."""


class TooLargeError(RuntimeError):
    """A request has more than `MOST_BYTES`."""


class TooManyBytesError(QueueFullError):
    """Large requests together have more bytes than the server holds at a time."""


class Admission:
    """The bytes of requests and their answers that a server holds, over REST and gRPC together."""

    def __init__(self):
        self._num_held = 0
        self.has_released = False  # whether a large request has ended since this was reset

    @contextlib.contextmanager
    def request(self) -> Iterator[Hold]:
        """Count the bytes of a request and its answer until the block ends; yields the function that adds bytes."""
        num_bytes = 0

        def hold(more: int, is_answer: bool = False) -> None:
            nonlocal num_bytes
            num_bytes += more
            self._num_held += more
            if num_bytes > MOST_BYTES and not is_answer:
                raise TooLargeError(f"the request has more than {MOST_BYTES} bytes")
            if self._num_held > _MOST_BYTES_TOGETHER * (1 if num_bytes > _LARGE else 2):
                raise TooManyBytesError("many large requests are being answered; try again later")

        try:
            yield hold
        finally:
            self._num_held -= num_bytes
            self.has_released |= num_bytes > _LARGE


class BatchObserver:
    """Observer of a batcher, such as metrics; called on the event loop. This one does nothing."""

    def wait(self, change: int) -> None:
        """Handle a change in the number of waiting examples."""

    def compute(self, num_examples: int, num_positions: int) -> None:
        """Handle a batch before it is computed; the number of positions is estimated for texts."""


UNOBSERVED = BatchObserver()


class _Call(NamedTuple):
    """A request, or a part of a large one, waiting for its results."""

    inputs: Arrays
    num_examples: int
    work: int  # approximate number of positions
    length: int  # positions of the longest row; 0 if batches are filled by examples
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
        lengths: Callable[[Arrays], np.ndarray] | None = None,
        observer: BatchObserver = UNOBSERVED,
    ):
        """Create a batcher without calls.

        With `is_joining`, each result row, including its shape, depends only on its input row; otherwise each call is
        computed alone and whole. `lengths` returns the number of positions in use of each row. If given, batches are
        filled by positions instead of examples: rows of similar length are computed together, without unused positions.
        """
        self._compute, self._settings, self._executor = compute, settings, executor
        self._is_joining, self._lengths, self._observer = is_joining, lengths, observer
        self._most_work = settings.max_positions
        self._waiting: collections.deque[collections.deque[_Call]] = collections.deque()  # the parts of each call
        self._num_waiting = self._work_waiting = 0  # examples, and their positions
        self._num_running = self._num_large = 0  # batches, and oversized ones
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        """True while a batch is computed; may be read from any thread."""
        return self._num_running > 0

    async def __call__(self, inputs: Arrays) -> Arrays:
        """Compute rows, together with those of other calls."""
        num_examples = len(next(iter(inputs.values())))
        size = self._settings.max_execution_batch_size if self._is_joining else 1
        num_waiting = self._num_waiting + num_examples if self._is_joining else len(self._waiting) + 1
        if num_waiting > self._settings.max_enqueued_batches * size:
            raise QueueFullError(f"{self._num_waiting} examples are waiting; try again later")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.batch_timeout_micros / 1e6
        order = None
        if self._lengths is not None:
            order = np.argsort(self._lengths(inputs), kind="stable")
            inputs = {name: values[order] for name, values in inputs.items()}
        calls = [
            _Call(part, size, work, length, loop.create_future(), deadline)
            for part, size, work, length in self._parts(inputs, num_examples)
        ]
        waiting = collections.deque(calls)
        self._waiting.append(waiting)
        self._count_waiting(calls, 1)
        self._start_batches()
        try:
            parts = await asyncio.gather(*(call.answer for call in calls))
        except asyncio.CancelledError:  # the client has left, or its deadline has passed
            self._count_waiting(waiting, -1)
            self._waiting = collections.deque(others for others in self._waiting if others is not waiting)
            raise
        results = parts[0] if len(parts) == 1 else _joined(parts)
        if order is None:
            return results
        places = np.argsort(order)
        return {name: values[places] for name, values in results.items()}

    def _count_waiting(self, calls: Sequence[_Call], sign: int) -> None:
        num_examples = sign * sum(call.num_examples for call in calls)
        self._num_waiting += num_examples
        self._work_waiting += sign * sum(call.work for call in calls)
        self._observer.wait(num_examples)

    def _parts(self, inputs: Arrays, num_examples: int) -> Iterator[tuple[Arrays, int, int, int]]:
        """Return the arrays of each part of a call, the number of rows, their work and the length of the longest."""
        if self._lengths is not None:
            yield from parts_by_positions(inputs, self._lengths(inputs), self._most_work)
            return
        lengths, starts, total = estimated_lengths(inputs), [0], 0
        for row, more in enumerate(lengths if self._is_joining else ()):
            if row > starts[-1] and not self._fits(row + 1 - starts[-1], total + more, 0):
                starts.append(row)
                total = 0
            total += more
        for start, end in itertools.pairwise([*starts, num_examples]):
            part = {name: values[start:end] for name, values in inputs.items()}
            yield part, end - start, sum(lengths[start:end]), 0

    def _start_batches(self) -> None:
        """Start batches that are full or have waited long enough, if threads are free."""
        while self._waiting and self._num_running < self._settings.num_batch_threads:
            loop = asyncio.get_running_loop()
            is_full = not self._is_joining or self._fills_a_batch()
            deadline = min(parts[0].deadline for parts in self._waiting) if not is_full else 0.0
            if not is_full and loop.time() < deadline:
                if self._timer is None:
                    self._timer = loop.call_at(deadline, self._end_wait)
                return
            calls = self._take()
            if not calls:
                return
            is_large = calls[0].work > self._most_work
            self._num_running += 1
            self._num_large += is_large
            self._observer.compute(sum(call.num_examples for call in calls), sum(call.work for call in calls))
            batch = loop.run_in_executor(self._executor, self._run, [call.inputs for call in calls])
            batch.add_done_callback(functools.partial(self._finish, calls, is_large))

    def _fills_a_batch(self) -> bool:
        if self._lengths is not None:
            return self._work_waiting >= self._most_work
        return self._num_waiting >= self._settings.max_execution_batch_size

    def _end_wait(self) -> None:
        self._timer = None
        self._start_batches()

    def _take(self) -> list[_Call]:
        """Return the next parts, as many as fit into a batch, one per call in turn."""
        may_be_large = self._num_large < max(self._settings.num_batch_threads - 1, 1)
        turns = [parts for parts in self._waiting if may_be_large or parts[0].work <= self._most_work]
        if self._lengths is not None and turns:  # the first is always taken, so that none waits forever
            near = turns[1:_MOST_COMPARED]
            turns[1:] = sorted(near, key=lambda parts: abs(parts[0].length - turns[0][0].length))
        batch, num_examples, total, length = [], 0, 0, 0
        for parts in turns:
            call = parts[0]
            num_examples, total, length = num_examples + call.num_examples, total + call.work, max(length, call.length)
            if batch and not (self._is_joining and self._fits(num_examples, total, length)):
                break
            batch.append(call)
        taken = turns[: len(batch)]
        ids = set(map(id, taken))
        for parts in taken:
            parts.popleft()
        others = (parts for parts in self._waiting if id(parts) not in ids)
        self._waiting = collections.deque([*others, *filter(None, taken)])
        self._count_waiting(batch, -1)
        return batch

    def _fits(self, num_examples: int, num_positions: int, length: int) -> bool:
        if self._lengths is not None:
            return work(num_examples, length) <= self._most_work
        return num_examples <= self._settings.max_execution_batch_size and num_positions <= self._most_work

    def _run(self, requests: Sequence[Arrays]) -> list[Arrays | Exception]:
        """Compute a batch in a thread; an invalid request must not fail the others."""
        sizes = [len(next(iter(inputs.values()))) for inputs in requests]
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


def parts_by_positions(inputs: Arrays, lengths: np.ndarray, most_work: int) -> Iterator[tuple[Arrays, int, int, int]]:
    """Split rows, sorted by length; return the arrays of each part, the number of rows, positions and the longest."""
    starts = [0]
    for row, length in enumerate(lengths.tolist()):
        if row > starts[-1] and work(row + 1 - starts[-1], length) > most_work:
            starts.append(row)
    for start, end in itertools.pairwise([*starts, len(lengths)]):
        length = int(lengths[start:end].max(initial=1))
        part = {name: values[start:end, :length] for name, values in inputs.items()}
        yield part, end - start, (end - start) * length, length


def work(num_rows: int, length: int) -> int:
    """Return the work of rows of a length, in positions: attention to many positions costs more than all the rest."""
    return num_rows * length * max(length, LENGTH_OF_ATTENTION) // LENGTH_OF_ATTENTION


def estimated_lengths(inputs: Arrays) -> Sequence[int]:
    """Estimate the positions of each example, from its ids or the bytes of its texts."""
    num_examples = len(next(iter(inputs.values())))
    lengths = [0] * num_examples
    for values in inputs.values():
        if values.dtype != object:
            lengths = [max(length, math.prod(values.shape[1:])) for length in lengths]
        elif num_examples:
            sizes = (sum(map(len, texts)) for texts in values.reshape(num_examples, -1))
            lengths = [length + size // _BYTES_PER_POSITION for length, size in zip(lengths, sizes, strict=True)]
    return lengths


def _joined(parts: Sequence[Arrays]) -> Arrays:
    """Concatenate arrays; shorter rows are padded with zeros, which a mask of 0 hides."""
    return {name: np.concatenate(_of_one_length([part[name] for part in parts])) for name in parts[0]}


def _of_one_length(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    if len({array.shape[1:] for array in arrays}) == 1:
        return arrays
    length = max(array.shape[1] for array in arrays)
    return [np.pad(array, ((0, 0), (0, length - array.shape[1]))) for array in arrays]
