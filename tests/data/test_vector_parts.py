"""Parts of vector tables: round trips, and damaged files."""

import json
import re

import numpy as np
import pytest

from official_bert.data import feature_files
from official_bert.data.feature_files import TextId, VectorBlock, read_parts, write_npy, write_tfrecord
from official_bert.data.text_inputs import ids_path
from official_bert.support.errors import UserError

WIDTH = 3


def block(*numbers):
    ids = [TextId("texts/ä.txt", number) for number in numbers]
    return VectorBlock(ids, np.random.default_rng(numbers).standard_normal((len(numbers), WIDTH)).astype(np.float32))


@pytest.mark.parametrize(("name", "write"), [("a.npy", write_npy), ("a.tfrecord", write_tfrecord)])
def test_parts_are_read_as_written(tmp_path, monkeypatch, name, write):
    monkeypatch.setattr(feature_files, "_ROWS_AT_ONCE", 2)
    parts = [[block(0, 1), block(5)], [], [block(2, 3, 4)]]  # with more shards than blocks, some are empty
    paths = [str(tmp_path / f"{number}-{name}") for number in range(len(parts))]
    for path, blocks in zip(paths, parts, strict=True):
        write(path, blocks)
    found = list(read_parts(paths))
    assert [len(each.ids) for each in found] == [2, 1, 2, 1]
    assert [text for each in found for text in each.ids] == [text for blocks in parts for b in blocks for text in b.ids]
    expected = np.concatenate([each.vectors for blocks in parts for each in blocks])
    np.testing.assert_array_equal(np.concatenate([each.vectors for each in found]), expected)
    np.save(tmp_path / "own.npy", expected)  # of whatever origin, without ids
    own = list(read_parts([str(tmp_path / "own.npy")]))
    assert [text for each in own for text in each.ids] == [(str(tmp_path / "own.npy"), row) for row in range(6)]


def test_damaged_parts_are_errors(tmp_path):
    path, other = (str(tmp_path / name) for name in ("a.npy", "b.npy"))
    write_npy(path, [block(0, 1)])
    assert [json.loads(line) for line in open(ids_path(path))] == [block(0, 1).ids[n]._asdict() for n in (0, 1)]
    write_npy(other, [VectorBlock(block(0).ids, np.zeros((1, 2), np.float32))])
    with pytest.raises(UserError, match=r"b\.npy has vectors of 2 numbers, an earlier part of 3"):
        list(read_parts([path, other]))
    for content, message in (
        ('{"file": "a", "number": 0}\n', "a.npy has 2 vectors, but a.ids.jsonl has 1 ids"),
        ('{"file": "a"}\n', 'a.ids.jsonl: \'{"file": "a"}\' is not the id of a text'),
    ):
        open(ids_path(path), "w").write(content)
        with pytest.raises(UserError, match=re.escape(message)):
            list(read_parts([path]))
    np.save(path, np.zeros(3))
    with pytest.raises(UserError, match=r"a\.npy is not an array float32 \[N, D\]"):
        list(read_parts([path]))
    open(path, "wb").write(b"no array")
    with pytest.raises(UserError, match=r"cannot read the vectors in .*a\.npy"):
        list(read_parts([path]))
