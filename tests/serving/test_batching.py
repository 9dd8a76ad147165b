"""Batches of concurrent calls, with functions instead of models."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from official_bert.options.groups import BatchingSettings
from official_bert.serving.batching import Batcher, BatchObserver, QueueFullError


class Doubling:
    def __init__(self):
        self.batches, self.may_go = [], threading.Event()
        self.may_go.set()

    def __call__(self, inputs):
        self.may_go.wait(10)
        self.batches.append(inputs["x"].tolist())
        return {"y": inputs["x"][:, :1] * 2}


class Watching(BatchObserver):
    def __init__(self):
        self.waiting, self.batches = 0, []

    def wait(self, change):
        self.waiting += change

    def compute(self, num_examples, num_positions):
        self.batches.append((num_examples, num_positions))


def run(calls, compute, *, is_joining=True, lengths=None, observer=None, **settings):
    """Return results or exceptions of calls with these rows, all started before any is computed."""
    settings = BatchingSettings(**{"num_batch_threads": 1, "max_execution_batch_size": 4, **settings})

    async def all_calls(executor):
        others = {"observer": observer} if observer else {}
        batcher = Batcher(compute, settings, executor, is_joining=is_joining, lengths=lengths, **others)
        return await asyncio.gather(*(batcher({"x": np.array(rows)}) for rows in calls), return_exceptions=True)

    with ThreadPoolExecutor(settings.num_batch_threads) as executor:
        return asyncio.run(all_calls(executor))


def doubled(results):
    return [result["y"].ravel().tolist() for result in results]


def test_calls_are_joined_up_to_the_size_and_padded_with_zeros():
    compute = Doubling()
    assert doubled(run([[[1]], [[2, 3]], [[4], [5]], [[6]]], compute)) == [[2], [4], [8, 10], [12]]
    assert compute.batches == [[[1, 0], [2, 3], [4, 0], [5, 0]], [[6]]]


def test_a_large_call_is_split_and_an_empty_one_is_answered():
    compute = Doubling()
    assert doubled(run([[[number] for number in range(9)]], compute)) == [list(range(0, 18, 2))]
    assert [len(batch) for batch in compute.batches] == [4, 4, 1]
    assert doubled(run([np.zeros([0, 1], int)], Doubling())) == [[]]


def num_used(inputs):
    return (inputs["x"] != 0).sum(axis=1)


def test_batches_filled_by_positions_have_rows_of_about_one_length_and_answers_in_order():
    def rows(*lengths, width=300):
        return np.array([[length] * length + [0] * (width - length) for length in lengths])

    compute, observer = Doubling(), Watching()
    # 4 * 128 positions are a batch: many short rows, or few long ones.
    calls = [rows(300, 2, 3, 200, 2), rows(*[4] * 120), rows(250, 240), rows(1), rows(2)]
    results = run(calls, compute, lengths=num_used, observer=observer)
    assert doubled(results) == [[600, 4, 6, 400, 4], [8] * 120, [500, 480], [2], [4]]
    shapes = [np.shape(batch) for batch in compute.batches]
    assert all(rows * length <= 512 for rows, length in shapes)
    assert sum(rows * length for rows, length in shapes) < 1.2 * sum(num_used({"x": call}).sum() for call in calls)
    assert max(rows for rows, _ in shapes) > 100  # more than `max_execution_batch_size`
    assert observer.waiting == 0 and [rows for rows, _ in observer.batches] == [rows for rows, _ in shapes]


def test_long_rows_count_for_more_since_attention_costs_the_square_of_their_length():
    compute = Doubling()
    run([np.full([4, 1024], 1), np.full([4, 2048], 2)], compute, lengths=num_used, max_execution_batch_size=32)
    assert [np.shape(batch) for batch in compute.batches] == [(4, 1024), *[(1, 2048)] * 4]


def test_a_call_of_another_length_waits_for_its_turn_alone():
    compute = Doubling()
    calls = [np.full([1, length], length) for length in (512, 100, 500, *[100] * 9)]
    run(calls, compute, lengths=num_used)
    assert [len(batch) for batch in compute.batches] == [1, 5, 1, 5]  # the first fills a batch


def test_calls_that_cannot_be_joined_are_computed_alone():
    compute = Doubling()
    run([[[1]], [[number] for number in range(9)]], compute, is_joining=False)
    assert [len(batch) for batch in compute.batches] == [1, 9]


def test_work_is_bounded_and_calls_take_turns():
    compute = Doubling()
    run([np.ones([8, 256], int), [[2]]], compute)  # 4 * 128 positions are a batch
    # Two rows of the long call fit into a batch; the next two were waiting before the short call came.
    assert [sorted(row[0] for row in batch) for batch in compute.batches] == [[1, 1], [1, 1], [2], [1, 1], [1, 1]]


def test_oversized_parts_leave_a_thread_to_others():
    may_go, order = threading.Event(), []

    def compute(inputs):
        is_large = len(inputs["x"][0]) > 2048
        if is_large:
            may_go.wait(10)
        order.append("large" if is_large else "small")
        return {"y": np.array([len(text) for text in inputs["x"]])}

    async def calls(executor):
        settings = BatchingSettings(num_batch_threads=2, max_execution_batch_size=4, batch_timeout_micros=0)
        batcher = Batcher(compute, settings, executor, is_joining=True)
        large = [asyncio.ensure_future(batcher({"x": np.array([b"a" * 3000] * 3, object)})) for _ in range(3)]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(batcher({"x": np.array([b"a"], object)}), 5)
        may_go.set()
        return await asyncio.gather(*large)

    with ThreadPoolExecutor(2) as executor:
        assert [answer["y"].tolist() for answer in asyncio.run(calls(executor))] == [[3000] * 3] * 3
    assert order == ["small"] + ["large"] * 9


def test_too_many_calls_are_refused():
    # Four are computed, eight wait, and the thirteenth comes before any is answered.
    results = run([[[number]] for number in range(13)], Doubling(), max_enqueued_batches=2)
    assert [isinstance(result, QueueFullError) for result in results] == [False] * 12 + [True]


def test_a_large_call_that_waits_as_a_whole_is_one_batch_of_the_queue():
    calls = [[[number] for number in range(100)]] * 2 + [[[1]]] * 2
    results = run(calls, Doubling(), is_joining=False, max_enqueued_batches=2)  # one is computed, two wait
    assert [isinstance(result, QueueFullError) for result in results] == [False] * 3 + [True]


def test_a_call_waits_for_others_no_longer_than_it_may():
    compute = Doubling()

    async def two_calls(executor, wait):
        settings = BatchingSettings(num_batch_threads=1, batch_timeout_micros=200_000)
        batcher = Batcher(compute, settings, executor, is_joining=True)
        first = asyncio.ensure_future(batcher({"x": np.array([[1]])}))
        await asyncio.sleep(wait)
        await asyncio.gather(first, batcher({"x": np.array([[2]])}))

    with ThreadPoolExecutor(1) as executor:
        asyncio.run(two_calls(executor, 0.01))
        asyncio.run(two_calls(executor, 0.5))
    assert compute.batches == [[[1], [2]], [[1]], [[2]]]


def test_a_client_that_goes_away_leaves_the_others_alone():
    compute = Doubling()
    compute.may_go.clear()

    async def two_calls(executor):
        settings = BatchingSettings(num_batch_threads=1, batch_timeout_micros=0, max_execution_batch_size=2)
        batcher = Batcher(compute, settings, executor, is_joining=True)
        calls = [asyncio.ensure_future(batcher({"x": np.array([[number]])})) for number in (1, 2, 3)]
        await asyncio.sleep(0.05)
        calls[0].cancel()
        compute.may_go.set()
        with pytest.raises(asyncio.CancelledError):
            await calls[0]
        return await asyncio.wait_for(asyncio.gather(*calls[1:]), 10)

    with ThreadPoolExecutor(1) as executor:
        assert doubled(asyncio.run(two_calls(executor))) == [[4], [6]]
