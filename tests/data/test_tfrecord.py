"""TFRecord files without TensorFlow: written like TensorFlow's, and read with all checksums."""

import gzip
import random

import pytest
import tensorflow as tf

from official_bert.data.record_files import RecordWriter, compression_type, count_records, frame, read_records
from official_bert.support.errors import UserError

RECORDS = [random.Random(length).randbytes(length) for length in (0, 1, 7, 500, 500, 70_000)]


@pytest.fixture(params=["none", "gzip"])
def compression(request):
    return request.param


def write(path, records, compression="none"):
    with RecordWriter([str(path)], compression) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def test_files_are_those_of_tensorflow(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for record in RECORDS:
            writer.write(record)
    write(tmp_path / "ours", RECORDS)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_tensorflow_reads_what_is_written(tmp_path, compression):
    path = write(tmp_path / "a", RECORDS, compression)
    kind = {"none": "", "gzip": "GZIP"}[compression]
    assert compression_type(path) == kind
    assert list(tf.data.TFRecordDataset([path], kind).as_numpy_iterator()) == RECORDS
    assert list(read_records(path)) == RECORDS
    assert count_records(path) == len(RECORDS)


def test_compressed_files_depend_on_the_records_alone(tmp_path, monkeypatch):
    first = write(tmp_path / "first", RECORDS, "gzip")
    monkeypatch.setattr("time.time", lambda: 1e9)
    second = write(tmp_path / "second", RECORDS, "gzip")
    assert open(first, "rb").read() == open(second, "rb").read()
    assert gzip.decompress(open(first, "rb").read()) == b"".join(map(frame, RECORDS))


def test_a_length_that_looks_like_gzip_is_a_length(tmp_path):
    path = write(tmp_path / "a", [bytes(0x088B1F)])
    assert open(path, "rb").read(3) == gzip.compress(b"")[:3]
    assert compression_type(path) == ""
    assert count_records(path) == 1


@pytest.mark.parametrize("position", [2, 30, 600, -3])  # in lengths, checksums and bytes, of first and last
def test_a_flipped_bit_is_noticed(tmp_path, position, compression):
    path = tmp_path / "a"
    write(path, RECORDS[3:], compression)
    data = bytearray(path.read_bytes())
    data[position] ^= 0x04
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"/a: (record \d \(counted from 0\) is damaged or truncated|is empty)"):
        list(read_records(str(path)))


def test_a_remote_file_is_like_a_local_one(compression):
    path = write("ram://folder/a", RECORDS, compression)
    assert list(read_records(path)) == RECORDS
    assert count_records(path) == len(RECORDS)
    assert tf.io.gfile.listdir("ram://folder/") == ["a"]


@pytest.mark.parametrize("lost", [1, 4, 100, 70_010])
def test_a_file_that_is_cut_off_is_noticed(tmp_path, lost, compression):
    path = tmp_path / "a"
    write(path, RECORDS, compression)
    path.write_bytes(path.read_bytes()[:-lost])
    with pytest.raises(UserError, match=r"record \d \(counted from 0\) is damaged or truncated"):
        list(read_records(str(path)))
    with pytest.raises(UserError, match=r"record \d \(counted from 0\) is damaged or truncated"):
        count_records(str(path))


def test_a_file_without_records_is_a_mistake(tmp_path, compression):
    path = write(tmp_path / "a", [], compression)
    with pytest.raises(UserError, match="/a is empty"):
        list(read_records(path))
    with pytest.raises(UserError, match="/a is empty"):
        count_records(path)
