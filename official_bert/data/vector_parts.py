"""Parts of a table of text vectors, each with the ids of its texts: NumPy arrays, or TFRecord.

An array float32 [N, D] in `NAME.npy` has its ids beside it in `NAME.ids.jsonl`, a line per row; without that file, the
ids are `NAME.npy` and the rows. A TFRecord file has one `tf.train.Example` per text: `file`, `number` and `vector`.
`beam_predict` writes them; an index can be built from them.
"""

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official_bert.data.records import RecordWriter
from official_bert.data.tfrecord import read_records
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError

NPY, TFRECORD = "npy", "tfrecord"
_ROWS_AT_ONCE = 4096


class TextId(NamedTuple):
    """The place of a text.

    Attributes:
      file: name of its file.
      number: its number there, from 0.
    """

    file: str
    number: int


class VectorBlock(NamedTuple):
    """Vectors of several texts.

    Attributes:
      ids: the N texts.
      vectors: float32 [N, D].
    """

    ids: list[TextId]
    vectors: np.ndarray


def ids_path(path: str) -> str:
    """Return the file with the ids of an array: `part.ids.jsonl` for `part.npy`."""
    return f"{path.removesuffix(f'.{NPY}')}.ids.jsonl"


def write_npy(path: str, blocks: Iterable[VectorBlock]) -> None:
    """Write an array and its ids; both get their names when both are complete. Without texts the array is [0, 0]."""
    ids, vectors = [], [np.zeros((0, 0), np.float32)]
    for block in blocks:
        ids += block.ids
        vectors.append(block.vectors)
    with writing.atomic_writes([ids_path(path), path], "wb") as (id_sink, sink):
        for text in ids:
            id_sink.write(json.dumps(text._asdict(), ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        np.lib.format.write_array(sink, np.concatenate(vectors[1:] or vectors), allow_pickle=False)


def write_tfrecord(path: str, blocks: Iterable[VectorBlock]) -> None:
    """Write records of texts; the file gets its name when it is complete."""
    with RecordWriter([path]) as writer:
        for block in blocks:
            for text, vector in zip(block.ids, block.vectors, strict=True):
                features = {
                    "file": tf.train.Feature(
                        bytes_list=tf.train.BytesList(value=[text.file.encode("utf-8", "replace")])
                    ),
                    "number": tf.train.Feature(int64_list=tf.train.Int64List(value=[text.number])),
                    "vector": tf.train.Feature(float_list=tf.train.FloatList(value=vector)),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString(deterministic=True))


def read_parts(paths: Iterable[str]) -> Iterator[VectorBlock]:
    """Read parts, some thousand texts at a time.

    Raises:
      UserError: a part is missing or damaged, has ids of other texts, or has vectors of another size than the first.
    """
    width = None
    for path in paths:
        for block in _npy_blocks(path) if path.endswith(f".{NPY}") else _tfrecord_blocks(path):
            width = width or block.vectors.shape[1]
            if block.vectors.shape[1] != width:
                raise UserError(f"{path} has vectors of {block.vectors.shape[1]} numbers, an earlier part of {width}")
            yield block


def _npy_blocks(path: str) -> Iterator[VectorBlock]:
    if files.is_remote(path):
        raise UserError(f"{path}: NumPy arrays are read from local disks; copy it, or write tfrecord")
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the vectors in {path}: {error}") from error
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2 or vectors.dtype != np.float32:
        raise UserError(f"{path} is not an array float32 [N, D]")
    file, start = ids_path(path), 0
    if files.exists(file):
        all_ids = (_text_id(line, file) for line in text_files.LineReader(file))
    else:
        all_ids = (TextId(path, row) for row in range(len(vectors)))
    while ids := list(itertools.islice(all_ids, _ROWS_AT_ONCE)):
        rows = vectors[start : start + len(ids)]
        if len(rows) == len(ids):
            yield VectorBlock(ids, rows)
        start += len(ids)
    if start != len(vectors):
        raise UserError(f"{path} has {len(vectors)} vectors, but {os.path.basename(file)} has {start} ids")


def _text_id(line: str, file: str) -> TextId:
    try:
        return TextId(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise UserError(f"{file}: {line.strip()!r:.80} is not the id of a text") from error


def _tfrecord_blocks(path: str) -> Iterator[VectorBlock]:
    ids, vectors = [], []
    for record in read_records(path) if files.size(path) else ():
        feature = tf.train.Example.FromString(record).features.feature
        ids.append(TextId(feature["file"].bytes_list.value[0].decode(), feature["number"].int64_list.value[0]))
        vectors.append(np.array(feature["vector"].float_list.value, np.float32))
        if len(ids) == _ROWS_AT_ONCE:
            yield VectorBlock(ids, np.stack(vectors))
            ids, vectors = [], []
    if ids:
        yield VectorBlock(ids, np.stack(vectors))
