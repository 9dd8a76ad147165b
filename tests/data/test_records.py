"""TFRecord files: writing, spooling, counting, finding damage."""

import gzip
import json
import os
import random

import pytest
import tensorflow as tf

from official_bert.data.batches import reporting_damaged_records
from official_bert.data.record_files import (
    RecordFile,
    RecordSpool,
    RecordWriter,
    check_first_record,
    compression_type,
    count_records,
    frame,
    read_records,
    write_cached,
)
from official_bert.data.schema import Field, RecordSchema
from official_bert.support.errors import UserError

SCHEMA = RecordSchema(Field("ids", (4,), "int32", below=100))
RECORDS = [random.Random(length).randbytes(length) for length in (0, 1, 7, 500, 500, 70_000)]
SETTINGS = {"length": 4, "texts": ("a", "b")}


def read(path):
    return list(tf.data.TFRecordDataset([str(path)]).as_numpy_iterator())


def write(path, records, compression="none"):
    with RecordWriter([str(path)], compression) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def test_records_go_round_robin_to_files_that_appear_at_the_end(tmp_path):
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    with RecordWriter(paths) as writer:
        for number in range(5):
            writer.write(b"%d" % number)
        assert not any(map(os.path.exists, paths))
    assert [read(path) for path in paths] == [[b"0", b"2", b"4"], [b"1", b"3"]]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


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


@pytest.mark.parametrize("position", [4, -10])  # in the first record and in the last
def test_a_damaged_file_that_is_kept_for_reuse_is_named_and_may_be_deleted(tmp_path, position):
    path = tmp_path / "train.tf_record"
    records = [SCHEMA.encode({"ids": [1, 2, 3, 4]})] * 3
    paths = [write(tmp_path / "good", records), str(path)]
    write_cached(RecordFile(str(path), SCHEMA), SETTINGS, lambda: records)
    whole = path.read_bytes()
    data = bytearray(whole)
    data[position] ^= 0xFF
    path.write_bytes(data)  # of unchanged size
    assert write_cached(RecordFile(str(path), SCHEMA), SETTINGS, lambda: records) == 3
    message = r"train\.tf_record: record [02] \(counted from 0\) is damaged or truncated; .* delete it; the command"
    with pytest.raises(UserError, match=message), reporting_damaged_records(paths):
        list(tf.data.TFRecordDataset(paths))
    path.unlink()
    write_cached(RecordFile(str(path), SCHEMA), SETTINGS, lambda: records)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "sidecar",
    [
        "0", "[]", "{}", "\xff", '{"provenance": %s, "num_bytes": {"a": 1}, "num_records": 0}',
        '{"provenance": %s, "num_bytes": {"b": 1}, "num_records": 3}',
        '{"provenance": %s, "num_bytes": {"a": 1}, "num_records": true}',
        '{"provenance": {}, "num_bytes": {"a": 1}, "num_records": 3}',
    ],
)  # fmt: skip
def test_records_with_a_damaged_note_are_made_again(tmp_path, sidecar):
    path, note = str(tmp_path / "a"), tmp_path / "a.json"
    records = [b"one", b"two", b"three"]
    assert write_cached(RecordFile(path, SCHEMA), SETTINGS, lambda: records) == 3
    good = note.read_bytes()
    size = str(os.path.getsize(path))
    note.write_bytes(sidecar.replace("%s", json.dumps(SETTINGS)).replace("1", size).encode("latin-1"))
    assert write_cached(RecordFile(path, SCHEMA), SETTINGS, lambda: records) == 3
    assert note.read_bytes() == good
    assert write_cached(RecordFile(path, SCHEMA), SETTINGS, lambda: pytest.fail("made again")) == 3


def test_a_record_that_does_not_fit_is_found_and_other_errors_pass_through(tmp_path):
    gone = str(tmp_path / "gone")
    message = r"^cannot read \S*/gone: No such file or directory$"
    with pytest.raises(UserError, match=message), reporting_damaged_records([gone]):
        read(gone)
    path = write(tmp_path / "a", [SCHEMA.encode({"ids": [1]}), SCHEMA.encode({"ids": [1, 100]})])
    message = r"record 1 \(counted from 0\): ids contains 100"
    with pytest.raises(UserError, match=message), reporting_damaged_records([path], SCHEMA):
        list(tf.data.TFRecordDataset([path]).batch(2).map(SCHEMA.decode))
    write(path, [SCHEMA.encode({"ids": [1]})])
    with pytest.raises(tf.errors.InvalidArgumentError), reporting_damaged_records([path], SCHEMA):
        tf.reshape(tf.constant([1, 2, 3]), [2])
    write(path, [RecordSchema(Field("ids", (6,), "int32")).encode({"ids": [1]})])
    with pytest.raises(UserError, match="record 0.*ids has 6 values, expected 4"):
        check_first_record(path, SCHEMA)


def test_a_compressed_file_is_reused_like_any_other(tmp_path):
    path = str(tmp_path / "train.tf_record")
    records = [SCHEMA.encode({"ids": [number]}) for number in range(50)]
    assert write_cached(RecordFile(path, SCHEMA, compression="gzip"), SETTINGS, lambda: records) == 50
    assert compression_type(path) == "GZIP"
    assert os.path.getsize(path) < sum(map(len, records))
    assert write_cached(RecordFile(path, SCHEMA), SETTINGS, lambda: pytest.fail("made again")) == 50
    check_first_record(path, SCHEMA)


@pytest.fixture(params=["none", "gzip"])
def compression(request):
    return request.param


def test_records_are_those_of_tensorflow_also_in_a_remote_file(tmp_path, compression):
    kind = {"none": "", "gzip": "GZIP"}[compression]
    for path in (tmp_path / "a", f"ram://records-{compression}/a"):
        path = write(path, RECORDS, compression)
        assert compression_type(path) == kind
        assert list(tf.data.TFRecordDataset([path], kind).as_numpy_iterator()) == RECORDS
        assert list(read_records(path)) == RECORDS
        assert count_records(path) == len(RECORDS)
    assert tf.io.gfile.listdir(f"ram://records-{compression}/") == ["a"]
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for record in RECORDS:
            writer.write(record)
    assert compression == "gzip" or (tmp_path / "a").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_compressed_files_depend_on_the_records_alone_and_are_told_by_all_of_their_header(tmp_path, monkeypatch):
    first = write(tmp_path / "first", RECORDS, "gzip")
    monkeypatch.setattr("time.time", lambda: 1e9)
    second = write(tmp_path / "second", RECORDS, "gzip")
    assert open(first, "rb").read() == open(second, "rb").read()
    assert gzip.decompress(open(first, "rb").read()) == b"".join(map(frame, RECORDS))
    path = write(tmp_path / "a", [bytes(0x088B1F)])  # a length that looks like gzip
    assert open(path, "rb").read(3) == gzip.compress(b"")[:3]
    assert compression_type(path) == ""
    assert count_records(path) == 1


@pytest.mark.parametrize("position", [2, 30, 600, -3])  # in lengths, checksums and bytes, of first and last
def test_a_file_that_is_damaged_or_empty_is_noticed(tmp_path, position, compression):
    path, empty = tmp_path / "a", write(tmp_path / "empty", [], compression)
    write(path, RECORDS[3:], compression)
    data = path.read_bytes()
    flipped = bytearray(data)
    flipped[position] ^= 0x04
    path.write_bytes(flipped)
    with pytest.raises(UserError, match=r"/a: (record \d \(counted from 0\) is damaged or truncated|is empty)"):
        list(read_records(str(path)))
    path.write_bytes(data[:position])
    for count in (count_records, lambda path: list(read_records(path))):
        with pytest.raises(UserError, match=r"record \d \(counted from 0\) is damaged or truncated"):
            count(str(path))
        with pytest.raises(UserError, match="/empty is empty"):
            count(empty)
