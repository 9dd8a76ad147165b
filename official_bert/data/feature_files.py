"""Files of encoder outputs: JSON Lines in the reference's format, NumPy formats, TFRecord.

Writers process one text at a time without keeping it in memory; a file gets its name only when complete.
"""

import contextlib
import itertools
import json
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np

from official_bert.data.record_files import RecordWriter, read_records
from official_bert.data.schema import example_of, values_of
from official_bert.data.text_inputs import STANDARD_STREAM, ids_path
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError

DECIMALS = 6  # in JSON Lines, as in the reference
_COPIED_BYTES = 1 << 20

# K: selected layers, S: wordpieces per text, N: texts, T: wordpieces of all texts, D: hidden width.
NPY, TFRECORD = "npy", "tfrecord"
_ROWS_AT_ONCE = 4096


class TextFeatures(NamedTuple):
    index: int  # index of the text, from 0
    input_ids: Sequence[int]  # its wordpiece ids, including [CLS] and [SEP]
    vectors: np.ndarray  # float [S, K, D], or pooled [K, D]


class FeatureLayout(NamedTuple):
    layers: Sequence[int]  # the K layers, as numbered by the user
    width: int  # D
    is_pooled: bool  # whether there is one vector per text and layer instead of one per wordpiece
    dtype: str = "float32"  # "float32" or "float16", for NumPy formats
    is_sparse: bool = False  # whether a vector has a weight for each wordpiece of the vocabulary


Write = Callable[[TextFeatures], None]


def feature_writer(
    path: str, output_format: str, layout: FeatureLayout, tokens_of: Callable[[Sequence[int]], list[str]]
) -> contextlib.AbstractContextManager[Write]:
    """Open a feature file; it gets its name when the block ends without an error."""
    return FORMATS[output_format](path, layout, tokens_of)


@contextlib.contextmanager
def _jsonl_writer(path, layout, tokens_of) -> Iterator[Write]:
    """Write the reference's JSON objects; pooled ones have `layers`, or `vector` if sparse, instead of `features`."""
    is_standard = path == STANDARD_STREAM
    with contextlib.nullcontext(sys.stdout.buffer) if is_standard else writing.atomic_write(path, "wb") as sink:

        def write(features: TextFeatures) -> None:
            # A float32 times a million is exact in float64, so this rounds like Python's `round`.
            values = np.round(features.vectors.astype(np.float64), DECIMALS).tolist()
            line = {"linex_index": features.index}
            if layout.is_sparse:
                (ids,) = np.nonzero(values[0])
                line["vector"] = dict(zip(tokens_of(ids), np.array(values[0])[ids].tolist(), strict=True))
            elif layout.is_pooled:
                line["layers"] = _json_layers(layout.layers, values)
            else:
                line["features"] = [
                    {"token": token, "layers": _json_layers(layout.layers, of_token)}
                    for token, of_token in zip(tokens_of(features.input_ids), values, strict=True)
                ]
            sink.write(json.dumps(line).encode() + b"\n")

        yield write
        sink.flush()


def _json_layers(layers: Sequence[int], values: list[list[float]]) -> list[dict]:
    return [{"index": index, "values": of_layer} for index, of_layer in zip(layers, values, strict=True)]


@contextlib.contextmanager
def _npy_writer(path, layout, _) -> Iterator[Write]:
    if not layout.is_pooled:
        raise UserError("output_format=npy holds a vector per text; choose a pooling, or output_format=npz")
    with (
        writing.atomic_write(path, "wb") as sink,
        _Spool(path, (len(layout.layers), layout.width), layout.dtype) as rows,
    ):
        yield lambda features: rows.append(features.vectors[np.newaxis])
        rows.write_npy(sink)


@contextlib.contextmanager
def _npz_writer(path, layout, _) -> Iterator[Write]:
    """Write several arrays, uncompressed.

    linex_index: int64 [N]; layers: int32 [K]; vectors: float [N, K, D] if pooled, otherwise [T, K, D] with token_ids,
    int32 [T], and offsets, int64 [N + 1]: text n has wordpieces offsets[n] to offsets[n + 1].
    """
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(writing.atomic_write(path, "wb"))

        def spool(row_shape, dtype):
            return stack.enter_context(_Spool(path, row_shape, dtype))

        arrays = {
            "linex_index": spool((), "int64"),
            "layers": spool((), "int32"),
            "vectors": spool((len(layout.layers), layout.width), layout.dtype),
        }
        arrays["layers"].append(layout.layers)
        if not layout.is_pooled:
            arrays |= {"token_ids": spool((), "int32"), "offsets": spool((), "int64")}
            arrays["offsets"].append([0])

        def write(features: TextFeatures) -> None:
            arrays["linex_index"].append([features.index])
            if layout.is_pooled:
                arrays["vectors"].append(features.vectors[np.newaxis])
            else:
                arrays["vectors"].append(features.vectors)
                arrays["token_ids"].append(features.input_ids)
                arrays["offsets"].append([len(arrays["token_ids"])])

        yield write
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
            for name, rows in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    rows.write_npy(member)


@contextlib.contextmanager
def _tfrecord_writer(path, layout, _) -> Iterator[Write]:
    """Write one `tf.train.Example` per text: linex_index, flat vectors, their shape and, unless pooled, token_ids."""
    with RecordWriter([path]) as writer:

        def write(features: TextFeatures) -> None:
            numbers = {"linex_index": [features.index], "shape": features.vectors.shape}
            if not layout.is_pooled:
                numbers["token_ids"] = features.input_ids
            writer.write(example_of({**numbers, "vectors": features.vectors.ravel()}))

        yield write


FORMATS = {"jsonl": _jsonl_writer, "npz": _npz_writer, "tfrecord": _tfrecord_writer, "npy": _npy_writer}


class _Spool:
    """Rows of an array in an unnamed file, until their number is known."""

    def __init__(self, path: str, row_shape: tuple[int, ...], dtype: str):
        self._row_shape, self._dtype, self._length = row_shape, np.dtype(dtype), 0
        # on the disk of the output
        self._folder = None if files.is_remote(path) else os.path.dirname(os.path.realpath(path))

    def __enter__(self) -> "_Spool":
        self._file = tempfile.TemporaryFile(dir=self._folder, buffering=_COPIED_BYTES)
        return self

    def __exit__(self, *_) -> None:
        with contextlib.suppress(OSError):  # data lost on a full disk is written again
            self._file.close()

    def __len__(self) -> int:
        return self._length

    def append(self, rows: Sequence | np.ndarray) -> None:
        rows = np.asarray(rows, self._dtype)
        self._file.write(rows.tobytes())
        self._length += len(rows)

    def write_npy(self, sink: IO[bytes]) -> None:
        description = np.lib.format.dtype_to_descr(self._dtype)
        header = {"descr": description, "fortran_order": False, "shape": (self._length, *self._row_shape)}
        np.lib.format.write_array_header_1_0(sink, header)
        self._file.seek(0)
        shutil.copyfileobj(self._file, sink, _COPIED_BYTES)


class TextId(NamedTuple):
    file: str  # name of its file
    number: int  # its number there, from 0


class VectorBlock(NamedTuple):
    ids: list[TextId]  # the N texts
    vectors: np.ndarray  # float32 [N, D]


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
    with RecordWriter([path]) as writer:
        for block in blocks:
            for text, vector in zip(block.ids, block.vectors, strict=True):
                file = text.file.encode("utf-8", "replace")
                writer.write(example_of({"vector": vector, "file": file, "number": [text.number]}))


def read_parts(paths: Iterable[str]) -> Iterator[VectorBlock]:
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
        found = values_of(record)
        ids.append(TextId(found["file"].decode(), int(found["number"][0])))
        vectors.append(found["vector"])
        if len(ids) == _ROWS_AT_ONCE:
            yield VectorBlock(ids, np.stack(vectors))
            ids, vectors = [], []
    if ids:
        yield VectorBlock(ids, np.stack(vectors))
