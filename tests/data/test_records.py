"""TFRecord files: writing, spooling, counting, finding damage."""

import os
import random

import pytest
import tensorflow as tf

from official_bert.data.records import (
    RecordSpool,
    RecordWriter,
    check_first_record,
    count_records,
    explained_damage,
    write_cached,
)
from official_bert.data.schema import Field, RecordSchema
from official_bert.errors import UserError

SCHEMA = RecordSchema(Field("ids", (4,), "int32", below=100))


def read(path):
    return list(tf.data.TFRecordDataset([str(path)]).as_numpy_iterator())


def write(path, records):
    with RecordWriter([str(path)]) as writer:
        for record in records:
            writer.write(record)


def test_records_go_round_robin_to_files_that_appear_at_the_end(tmp_path):
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    with RecordWriter(paths) as writer:
        for number in range(5):
            writer.write(b"%d" % number)
        assert not any(map(os.path.exists, paths))
    assert [read(path) for path in paths] == [[b"0", b"2", b"4"], [b"1", b"3"]]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_an_error_leaves_the_old_files_alone(tmp_path):
    path = tmp_path / "a"
    write(path, [b"old"])
    with pytest.raises(RuntimeError), RecordWriter([str(path)]) as writer:
        writer.write(b"new")
        raise RuntimeError
    assert read(path) == [b"old"]
    assert os.listdir(tmp_path) == ["a"]


def test_spool_gives_the_order_of_random_shuffle():
    records = [b"record %d" % number * (number % 7) for number in range(500)]
    with RecordSpool(None) as spool:
        for record in records:
            spool.append(record)
        assert len(spool) == 500
        first, second = random.Random(9), random.Random(9)
        shuffled = list(spool.shuffled(first))
    second.shuffle(records)
    assert shuffled == records
    assert first.random() == second.random()


def test_counting(tmp_path):
    path = tmp_path / "a"
    write(path, [b"x" * length for length in (0, 10, 3000)])
    assert count_records(str(path)) == 3


@pytest.mark.parametrize("lost", [1, 4, 100, 3014])
def test_a_cut_off_file_is_noticed_with_the_record(tmp_path, lost):
    path = tmp_path / "a"
    write(path, [b"x" * length for length in (5, 10, 3000)])
    path.write_bytes(path.read_bytes()[:-lost])
    with pytest.raises(UserError, match=r"record 2 \(counted from 0\) is damaged or cut off"):
        count_records(str(path))


def test_an_empty_file_is_noticed(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(UserError, match="is empty"):
        count_records(str(tmp_path / "a"))


def test_a_damaged_record_is_found_in_the_right_file(tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    records = [SCHEMA.encode({"ids": [1, 2, 3, 4]})] * 3
    write(good, records)
    write(bad, records)
    data = bytearray(bad.read_bytes())
    data[-10] ^= 0xFF  # inside the last record
    bad.write_bytes(data)
    paths = [str(good), str(bad)]
    assert count_records(str(bad)) == 3
    with pytest.raises(UserError, match=r"/bad: record 2 \(counted from 0\) is damaged"), explained_damage(paths):
        list(tf.data.TFRecordDataset(paths))


@pytest.mark.parametrize("position", [4, -10])  # in the first record and in the last
def test_a_damaged_file_that_is_kept_for_reuse_may_be_deleted(tmp_path, position):
    path = tmp_path / "train.tf_record"
    records = [SCHEMA.encode({"ids": [1, 2, 3, 4]})] * 3
    write_cached(str(path), "settings", lambda: records)
    whole = path.read_bytes()
    data = bytearray(whole)
    data[position] ^= 0xFF
    path.write_bytes(data)
    assert write_cached(str(path), "settings", lambda: records) == 3  # its size does not tell
    with (
        pytest.raises(
            UserError, match=r"train\.tf_record: record [02] .* is damaged or cut off; delete it; it is made a"
        ),
        explained_damage([str(path)]),
    ):
        read(path)
    path.unlink()
    write_cached(str(path), "settings", lambda: records)
    assert path.read_bytes() == whole


def test_a_record_that_does_not_fit_is_found(tmp_path):
    path = tmp_path / "a"
    write(path, [SCHEMA.encode({"ids": [1]}), SCHEMA.encode({"ids": [1, 100]})])
    with (
        pytest.raises(UserError, match=r"record 1 \(counted from 0\): ids holds 100"),
        explained_damage([str(path)], SCHEMA),
    ):
        list(tf.data.TFRecordDataset([str(path)]).batch(2).map(SCHEMA.decode))


def test_errors_that_no_record_explains_pass_through(tmp_path):
    path = tmp_path / "a"
    write(path, [SCHEMA.encode({"ids": [1]})])
    with pytest.raises(tf.errors.InvalidArgumentError), explained_damage([str(path)], SCHEMA):
        tf.reshape(tf.constant([1, 2, 3]), [2])


def test_the_first_record_tells_other_flags(tmp_path):
    path = tmp_path / "a"
    write(path, [RecordSchema(Field("ids", (6,), "int32")).encode({"ids": [1]})])
    with pytest.raises(UserError, match="record 0.*ids has 6 values, expected 4"):
        check_first_record(str(path), SCHEMA)
