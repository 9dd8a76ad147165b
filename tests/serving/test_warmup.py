"""Warm-up requests, read back after writing."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.data.record_files import frame
from official_bert.data.schema import fields
from official_bert.serving.exports import prediction_log, read_warmup, write_warmup
from official_bert.support.errors import UserError


def test_requests_are_read_as_they_were_written(tmp_path):
    requests = [
        ("text", {"text_a": tf.constant(["Zoë" * 200, ""]), "text_b": tf.constant(["a", "b"])}),
        ("serving_int64", {"input_ids": tf.constant([[2, 2**40]], tf.int64)}),
    ]
    path = str(tmp_path / "requests")
    write_warmup(path, [prediction_log("name", *request) for request in requests])
    found = list(read_warmup(path))
    assert [name for name, _ in found] == [name for name, _ in requests]
    for (_, inputs), (_, expected) in zip(found, requests, strict=True):
        assert inputs.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(inputs[name], values.numpy())
            assert inputs[name].dtype == values.numpy().dtype


@pytest.mark.parametrize("record", [b"", b"\x08\x01", b"\x32\x05ab", b"\x32\x80", b"\x32\x02\x0a\x00"])
def test_other_records_are_refused(record, tmp_path):
    (tmp_path / "requests").write_bytes(frame(record))
    with pytest.raises(UserError, match="does not hold warm-up requests"):
        list(read_warmup(str(tmp_path / "requests")))


def test_fields_that_are_cut_off_are_refused():
    assert list(fields(b"\x0a\x01a\x12\x00")) == [(b"\x0a", b"a"), (b"\x12", b"")]
    for message in (b"\x0a", b"\x0a\x80", b"\x0a\x02a", b"\x08\x01", b"\x82\x01\x00"):
        with pytest.raises(ValueError):
            list(fields(message))
