"""Batches for training and evaluation, budgets of tokens, and `DatasetTokenizer` in `dataset.map`."""

import collections
import gc
import itertools

import numpy as np
import pytest
import tensorflow as tf

from official_bert.data import batches as batching
from official_bert.data import pipeline
from official_bert.data.batches import TokenBudget, padded_lengths
from official_bert.data.pipeline import DatasetTokenizer, evaluation_batches, training_batches
from official_bert.data.record_files import RecordWriter, read_records
from official_bert.data.schema import Field, RecordSchema
from official_bert.support.errors import UserError
from official_bert.tokenization import FullTokenizer
from tests.conftest import slow

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


def training(paths, schema=SCHEMA, batch_size=5, seed=7, **options):
    return training_batches(paths, schema, batch_size=batch_size, num_records=NUM_RECORDS, seed=seed, **options)


@pytest.mark.parametrize(("num_buffered", "num_together"), [(10_000, 16), (1, 1)])
def test_each_epoch_visits_each_record_once_in_another_order(paths, monkeypatch, num_buffered, num_together):
    # With more data than the shuffle buffer holds, files come in another order, or each epoch began with the same one.
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", num_buffered)
    monkeypatch.setattr(pipeline, "FILES_READ_TOGETHER", num_together)
    batches = numbers(training(paths), NUM_RECORDS)  # NUM_RECORDS batches of five: five epochs
    stream = [number for batch in batches for number in batch]
    epochs = [stream[start : start + NUM_RECORDS] for start in range(0, 5 * NUM_RECORDS, NUM_RECORDS)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(NUM_RECORDS))] * 5
    assert len({tuple(epoch) for epoch in epochs}) == 5 or num_buffered == 1
    assert len({epoch[0] for epoch in epochs}) > 1


def test_the_order_depends_only_on_the_seed_not_on_that_of_the_process(paths):
    orders = []
    for seed, of_process in ((0, 0), (0, 5), (2**32 - 1, 0), (2**32 - 1, 5)):
        tf.random.set_seed(of_process)
        orders.append(numbers(training(paths, seed=seed), 4))
    assert orders[0] == orders[1] != orders[2] == orders[3]


def test_a_batch_may_be_larger_than_an_epoch(paths):
    (batch,) = numbers(training(paths, batch_size=60), 1)
    assert sorted(collections.Counter(batch).values()) == [2] * 9 + [3] * 14


@pytest.mark.parametrize(("num_buffered", "num_together"), [(10_000, 16), (4, 2), (1, 1)])
def test_batches_in_numpy_hold_each_record_once_an_epoch_and_resume(paths, monkeypatch, num_buffered, num_together):
    monkeypatch.setattr(batching, "SHUFFLE_BUFFER", num_buffered)
    monkeypatch.setattr(batching, "FILES_READ_TOGETHER", num_together)
    with RecordWriter(paths[:1], "gzip") as writer:
        for record in list(read_records(paths[0])):
            writer.write(record)

    def stream(seed=7, start=0):
        options = {"batch_size": 5, "num_records": NUM_RECORDS, "seed": seed, "start_record": start}
        batches = itertools.islice(batching.numpy_batches(paths, SCHEMA, **options), NUM_RECORDS - start // 5)
        return [number for batch in batches for number in batch["number"].tolist()]

    whole = stream()
    epochs = [whole[start : start + NUM_RECORDS] for start in range(0, 5 * NUM_RECORDS, NUM_RECORDS)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(NUM_RECORDS))] * 5
    assert len({tuple(epoch) for epoch in epochs}) > 1 and len({epoch[0] for epoch in epochs}) > 1
    assert whole == stream() != stream(seed=8)
    assert [stream(start=start) for start in (5, 25, 50)] == [whole[5:], whole[25:], whole[50:]]
    with RecordWriter(paths[:1]) as writer:
        writer.write(SCHEMA.encode({"number": [0], "input_mask": [0, 0]})[:-1])
    with pytest.raises(UserError, match=r"/a: record 0 \(counted from 0\): it is not a serialized tf.train.Example"):
        stream()


def test_evaluation_reads_in_file_order_and_fills_the_last_batch(paths):
    batches = list(evaluation_batches(paths, SCHEMA, batch_size=5).as_numpy_iterator())
    in_order = [*range(0, NUM_RECORDS, 3), *range(1, NUM_RECORDS, 3), *range(2, NUM_RECORDS, 3)]
    assert np.concatenate([batch["number"] for batch in batches]).tolist() == [*in_order, 0, 0]
    assert [batch["is_real_example"].tolist() for batch in batches][-2:] == [[1] * 5, [1, 1, 1, 0, 0]]
    assert batches[-1]["input_mask"].tolist() == [[1, 1]] * 3 + [[0, 0]] * 2
    first = evaluation_batches(paths, SCHEMA, batch_size=5, max_batches=2)
    assert numbers(first, 9) == [in_order[:5], in_order[5:10]]


LENGTHS = [4, 8, 16]
TEXT_SCHEMA = RecordSchema(
    Field("number", (), "int32"),
    Field("input_ids", (16,), "int32", is_per_position=True),
    Field("input_mask", (16,), "int32", is_per_position=True),
    Field("features", (16, 3), "float32", is_per_position=True, is_trimmed=True),
)


def vectors_of(number):
    length = 1 + number * 7 % 16
    return (1 + number * 100 + np.arange(length * 3, dtype=np.float32)).reshape(length, 3)


@pytest.fixture
def text_paths(tmp_path):
    """Records of 1 to 16 positions; their ids are the record's number."""
    paths = [str(tmp_path / name) for name in "ab"]
    with RecordWriter(paths) as writer:
        for number in range(NUM_RECORDS):
            vectors = vectors_of(number)
            values = {"input_ids": [number] * len(vectors), "input_mask": [1] * len(vectors)}
            writer.write(TEXT_SCHEMA.encode({"number": [number], "features": vectors.ravel(), **values}))
    return paths


def check_cut(batch, lengths=LENGTHS):
    """Assert that records are complete, and the batch is as short as its longest record."""
    extents = batch["input_mask"].sum(axis=1)
    width = next(length for length in lengths or [16] if length >= extents.max())
    assert batch["input_ids"].shape == batch["input_mask"].shape == batch["features"].shape[:2] == (len(extents), width)
    is_real = batch.get("is_real_example", np.ones(len(extents)))
    for row, number in enumerate(batch["number"]):
        vectors = vectors_of(number) if is_real[row] else np.zeros([0, 3])
        num_missing = width - len(vectors)
        assert batch["input_ids"][row].tolist() == [number] * len(vectors) + [0] * num_missing
        assert batch["input_mask"][row].tolist() == [1] * len(vectors) + [0] * num_missing
        np.testing.assert_array_equal(batch["features"][row], np.pad(vectors, [(0, num_missing), (0, 0)]))


def test_batches_of_similar_lengths_hold_each_record_once_an_epoch(text_paths, monkeypatch):
    monkeypatch.setattr(pipeline, "_POOLED_BATCHES", NUM_RECORDS)  # a pool is four epochs
    dataset = training(text_paths, TEXT_SCHEMA, 4, lengths=LENGTHS)
    assert dataset.element_spec["input_ids"].shape[1] is None  # a single trace for all lengths
    batches = list(dataset.take(NUM_RECORDS).as_numpy_iterator())
    for batch in batches:
        check_cut(batch)
    counts = collections.Counter(int(number) for batch in batches for number in batch["number"])
    assert counts == dict.fromkeys(range(NUM_RECORDS), 4)
    widths = [batch["input_ids"].shape[1] for batch in batches]
    assert widths != sorted(widths)  # lengths come in random order
    assert sum(widths) < 0.8 * 16 * len(widths)


@pytest.mark.parametrize(("num_replicas", "pool"), [(1, 23), (2, 22)])
def test_batches_within_a_budget_hold_each_record_once_an_epoch(text_paths, num_replicas, pool):
    budget = TokenBudget(64, num_replicas)
    dataset = training(text_paths, TEXT_SCHEMA, budget, lengths=LENGTHS)
    assert dataset.element_spec["input_ids"].shape.as_list() == [None, None]  # a single trace for all shapes
    seen, batches = [], []
    for batch in dataset.as_numpy_iterator():
        check_cut(batch)
        num_examples, width = batch["input_ids"].shape
        assert num_examples % num_replicas == 0
        assert num_examples * width <= 64
        batches.append(batch)
        seen += batch["number"].tolist()
        if len(seen) >= 5 * pool:
            break
    num_epochs, rest = divmod(5 * pool, NUM_RECORDS)
    assert sorted(collections.Counter(seen).values()) == [num_epochs] * (NUM_RECORDS - rest) + [num_epochs + 1] * rest
    widths = [batch["input_ids"].shape[1] for batch in batches]
    assert set(widths) == set(LENGTHS) and widths != sorted(widths)
    sizes = [batch["input_ids"].shape for batch in batches]
    assert max(sizes)[0] > 4 and (4, 16) in sizes  # short records come in larger batches
    options = {"num_records": NUM_RECORDS, "seed": 7, "lengths": LENGTHS}
    counted = itertools.islice(pipeline.batch_sizes(text_paths, TEXT_SCHEMA, budget, **options), len(batches))
    assert [tuple(size) for size in counted] == [
        (len(batch["number"]), batch["input_ids"].size, batch["input_mask"].sum()) for batch in batches
    ]


# Bytes for four batches of records, for one, and for less than one record.
@pytest.mark.parametrize(
    ("batch_size", "lengths", "num_fitting"),
    [(5, None, 0.5), *slow((TokenBudget(40), LENGTHS, 100), (4, LENGTHS, 16), (4, LENGTHS, 4))],
)
def test_a_resumed_run_has_the_batches_of_an_uninterrupted_one(
    text_paths, monkeypatch, batch_size, lengths, num_fitting
):
    monkeypatch.setattr(pipeline, "_POOLED_RECORDS", 9)
    monkeypatch.setattr(pipeline, "_POOLED_BATCHES", 4)
    monkeypatch.setattr(batching, "MAX_BYTES", int(num_fitting * TEXT_SCHEMA.num_bytes))

    def batches(count, **options):
        return numbers(training(text_paths, TEXT_SCHEMA, batch_size, lengths=lengths, **options), count)

    whole = batches(12)
    for steps in (4, 10):
        assert batches(12 - steps, start_record=sum(map(len, whole[:steps]))) == whole[steps:]
    if num_fitting == 4:  # at most one batch is in memory, so nothing is sorted
        unsorted = numbers(training(text_paths, TEXT_SCHEMA, batch_size), 12)
        assert [sorted(batch) for batch in whole] == [sorted(batch) for batch in unsorted]


def test_batches_within_a_budget_are_shared_by_two_devices(text_paths, two_devices):
    batches = training(text_paths, TEXT_SCHEMA, TokenBudget(64, 2), lengths=LENGTHS)
    dataset = two_devices.experimental_distribute_dataset(batches)
    seen = []
    for batch in dataset:
        first, second = (values.numpy() for values in two_devices.experimental_local_results(batch["number"]))
        assert len(first) == len(second)
        seen += [*first.tolist(), *second.tolist()]
        if len(seen) >= 22:  # a pool
            break
    assert len(set(seen)) == len(seen) == 22


@pytest.mark.parametrize(
    ("batch_size", "lengths", "num_replicas", "read"),
    [
        (2, None, 1, None), (2, None, 1, range(5, 20)), (2, LENGTHS, 1, range(1, 23)), (2, LENGTHS, 2, None),
        (3, LENGTHS, 3, range(22)),
    ],
)  # fmt: skip
def test_evaluation_holds_each_record_once_with_its_place(text_paths, batch_size, lengths, num_replicas, read):
    options = {"batch_size": batch_size, "lengths": lengths, "num_replicas": num_replicas, "numbers": read}
    dataset = evaluation_batches(text_paths, TEXT_SCHEMA, **options)
    if lengths:
        assert dataset.element_spec["input_ids"].shape.as_list() == [None, None]  # a single trace for all shapes
    batches = list(dataset.as_numpy_iterator())
    in_numpy = list(batching.numpy_evaluation_batches(text_paths, TEXT_SCHEMA, **options))
    for batch, other in zip(*(sorted(both, key=str) for both in (batches, in_numpy)), strict=True):
        assert batch.keys() == other.keys()
        for name, values in batch.items():
            np.testing.assert_array_equal(values, other[name], strict=True)
    in_order = [*range(0, NUM_RECORDS, 2), *range(1, NUM_RECORDS, 2)]
    in_order = in_order[read.start : read.stop] if read else in_order
    places = {}
    for batch in batches:
        check_cut(batch, lengths)
        num_examples, width = batch["input_ids"].shape
        assert num_examples % num_replicas == 0
        assert num_examples * width <= batch_size * 16
        is_real = batch["is_real_example"] == 1
        places |= dict(zip(batch["record_index"][is_real].tolist(), batch["number"][is_real].tolist(), strict=True))
    assert [places[place] for place in range(len(places))] == in_order
    assert (max(len(batch["number"]) for batch in batches) > 4) == bool(lengths)  # short records in larger batches
    num_filled = sum(len(batch["number"]) for batch in batches) - len(in_order)
    assert num_filled <= (num_replicas - 1 if lengths else 1) * len(LENGTHS)


def test_compressed_files_are_read_among_others(tmp_path, paths):
    compressed = [paths[0], str(tmp_path / "b.gz"), paths[2]]
    with RecordWriter([compressed[1]], "gzip") as writer:
        for record in read_records(paths[1]):
            writer.write(record)

    def read(paths):
        training = training_batches(paths, SCHEMA, batch_size=4, num_records=NUM_RECORDS, seed=3)
        return numbers(training, 12), numbers(evaluation_batches(paths, SCHEMA, batch_size=4), 99)

    assert read(compressed) == read(paths)


def test_the_documented_examples():
    assert padded_lengths(128) == list(range(8, 129, 8))
    assert padded_lengths(256)[-4:] == [208, 224, 240, 256]
    assert (padded_lengths(100)[-3:], padded_lengths(5)) == ([88, 96, 100], [5])
    assert padded_lengths(480, unit=120) == [120, 240, 360, 480]
    assert len(padded_lengths(512)) == 32
    lengths = [4, 8]
    for extents, expected in (
        ([5, 8, 2, 7, 1, 1, 3], [[8, 7], [5, 3], [2, 1, 1]]),
        ([5, 8, 2, 7, 1, 1, 3, 4], [[8, 7], [5, 4], [3, 2, 1, 1]]),
    ):
        extents = np.array(extents)
        batches = TokenBudget(16).split(extents, lengths, "seed")
        assert sorted((extents[rows].tolist() for rows in batches), reverse=True) == expected
    for multiple, count, last in ((1, 103, [6, 7]), (2, 102, [6, 6])):  # full batches, and the last two share
        sizes = sorted(len(rows) for rows in TokenBudget(80, multiple).split(np.full(count, 8), [8], "seed"))
        assert sizes == last + [10] * 9
    assert TokenBudget(16, multiple=3).minimum(8) == 24
    with pytest.raises(ValueError, match="is less than the 24 tokens that the longest examples need"):
        TokenBudget(23, multiple=3).split(np.array([8, 8, 8]), lengths, "seed")


@pytest.mark.parametrize("multiple", [1, 2, 8])
def test_every_batch_keeps_the_budget_and_all_are_in_one(multiple):
    rng = np.random.default_rng(1)
    lengths = padded_lengths(128)
    for num_tokens in (128 * multiple, 1024, 5000, 100_000):
        budget = TokenBudget(num_tokens, multiple)
        for num_groups in (1, 2, 3, 50):
            extents = rng.integers(1, 129, num_groups * multiple)
            batches = budget.split(extents, lengths, f"{num_groups}")
            assert sorted(np.concatenate(batches)) == list(range(len(extents)))
            for rows in batches:
                width = next(length for length in lengths if length >= extents[rows].max())
                assert len(rows) and len(rows) % multiple == 0
                assert len(rows) * width <= num_tokens


@pytest.mark.endurance
def test_the_ids_of_a_mapped_dataset_are_those_of_the_tokenizer(vocab_file):
    tokenizer = FullTokenizer(vocab_file)
    tokenize = DatasetTokenizer(tokenizer, max_seq_length=16)
    pairs = ["the baker woke before the town did .", "", "Zoë’s harbour"], ["the town", "the baker", "woke " * 9]
    texts = tf.data.Dataset.from_tensor_slices(pairs)
    padded = tokenizer(*pairs, max_seq_length=16, padding="max_length")
    single = texts.map(tokenize)
    gc.collect()  # a dataset keeps its tables alive
    for number, found in enumerate(single.as_numpy_iterator()):
        for name, values in found.items():
            np.testing.assert_array_equal(values, padded[name][number], strict=True)
    assert single.batch(2).element_spec["input_ids"].shape.as_list() == [None, 16]
    first = texts.map(lambda text, _: text)
    for dataset, function in ((first, tokenizer), (first.batch(2), tokenizer.encode)):
        with pytest.raises(Exception, match="use the graph tokenizer: tokenize = official_bert.DatasetTokenizer"):
            dataset.map(function)
    with pytest.raises(UserError, match=r"reads strings of shape \[B\] or \[\], not int32 \(\); if the dataset also"):
        tokenize("the town", tf.constant(1))
    for wrong, message in (
        ({"tokenizer": 3}, "tokenizer is 3; give a FullTokenizer, or the folder"),
        ({"max_seq_length": 2}, "max_seq_length=2 must be a whole number of at least 3"),
        ({"padding": "none"}, "padding='none' must be"),
    ):
        with pytest.raises(UserError, match=message):
            DatasetTokenizer(**{"tokenizer": tokenizer, **wrong})
