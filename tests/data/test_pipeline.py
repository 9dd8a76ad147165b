"""Batches for training and evaluation."""

import collections

import numpy as np
import pytest

from official_bert.data import pipeline
from official_bert.data.pipeline import evaluation_batches, training_batches
from official_bert.data.records import RecordWriter
from official_bert.data.schema import Field, RecordSchema

SCHEMA = RecordSchema(Field("number", (), "int32"), Field("input_mask", (2,), "int32"))
NUM_RECORDS = 23


@pytest.fixture
def paths(tmp_path):
    paths = [str(tmp_path / name) for name in "abc"]
    with RecordWriter(paths) as writer:
        for number in range(NUM_RECORDS):
            writer.write(SCHEMA.encode({"number": [number], "input_mask": [1, 1]}))
    return paths


def numbers(batches, count):
    return [batch["number"].numpy().tolist() for batch in batches.take(count)]


def batches_from(paths, start_record=0, seed=7, batch_size=5):
    return training_batches(
        paths, SCHEMA, batch_size=batch_size, num_records=NUM_RECORDS, seed=seed, start_record=start_record
    )


def test_each_epoch_visits_each_record_once_in_another_order(paths):
    batches = numbers(batches_from(paths), NUM_RECORDS)  # as many batches of five as records: five epochs
    stream = [number for batch in batches for number in batch]
    epochs = [stream[start : start + NUM_RECORDS] for start in range(0, 5 * NUM_RECORDS, NUM_RECORDS)]
    for epoch in epochs:
        assert collections.Counter(epoch) == collections.Counter(range(NUM_RECORDS))
    assert len({tuple(epoch) for epoch in epochs}) == 5


def test_files_come_in_another_order_each_epoch(paths, monkeypatch):
    # Data larger than the shuffle buffer would else always begin with the same file.
    monkeypatch.setattr(pipeline, "_SHUFFLE_BUFFER", 1)
    monkeypatch.setattr(pipeline, "_FILES_READ_TOGETHER", 1)
    batches = numbers(batches_from(paths), NUM_RECORDS)
    stream = [number for batch in batches for number in batch]
    assert len({stream[start] for start in range(0, 5 * NUM_RECORDS, NUM_RECORDS)}) > 1


@pytest.mark.parametrize("steps", [1, 4, 5, 9, 14])
def test_batches_of_a_resumed_run_are_those_of_the_uninterrupted_one(paths, steps):
    whole = numbers(batches_from(paths), 20)
    assert numbers(batches_from(paths, start_record=steps * 5), 20 - steps) == whole[steps:]


def test_the_seed_decides_the_order(paths):
    assert numbers(batches_from(paths), 4) == numbers(batches_from(paths), 4)
    assert numbers(batches_from(paths), 4) != numbers(batches_from(paths, seed=8), 4)


def test_a_batch_may_be_larger_than_an_epoch(paths):
    (batch,) = numbers(batches_from(paths, batch_size=60), 1)
    assert sorted(collections.Counter(batch).values()) == [2] * 9 + [3] * 14


def test_evaluation_reads_in_file_order_and_fills_the_last_batch(paths):
    batches = list(evaluation_batches(paths, SCHEMA, batch_size=5).as_numpy_iterator())
    in_order = [*range(0, NUM_RECORDS, 3), *range(1, NUM_RECORDS, 3), *range(2, NUM_RECORDS, 3)]
    assert np.concatenate([batch["number"] for batch in batches]).tolist() == [*in_order, 0, 0]
    assert [batch["is_real_example"].tolist() for batch in batches][-2:] == [[1] * 5, [1, 1, 1, 0, 0]]
    assert batches[-1]["input_mask"].tolist() == [[1, 1]] * 3 + [[0, 0]] * 2


def test_evaluation_stops_after_the_given_batches(paths):
    batches = evaluation_batches(paths, SCHEMA, batch_size=5, max_batches=2)
    assert numbers(batches, 9) == [[0, 3, 6, 9, 12], [15, 18, 21, 1, 4]]
