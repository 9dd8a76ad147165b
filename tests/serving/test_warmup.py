"""Damaged warm-up requests; servers read those of exports, and compute them."""

import pytest

from official_bert.data.record_files import frame
from official_bert.data.schema import fields
from official_bert.serving.exports import read_warmup
from official_bert.support.errors import UserError


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
