"""The TFRecord format without TensorFlow, which takes seconds and hundreds of megabytes to import.

A record on disk is its length (uint64), the length's checksum, its bytes, and their checksum. A file may be compressed
with gzip as a whole, which is detected from its first bytes.
"""

import abc
import contextlib
import gzip
import itertools
import os
import struct
import tempfile
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import IO, Any, Literal, NamedTuple, Protocol

import numpy as np
from absl import logging
from google_crc32c import value as crc32c

from official_bert.config.bert_config import FEATURES
from official_bert.data.masking import shuffle
from official_bert.data.schema import RecordSchema
from official_bert.support import files, writing
from official_bert.support.errors import UserError
from official_bert.support.manifest import Manifest, fingerprint
from official_bert.support.processes import Workers, available_cores
from official_bert.support.wire import masked
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.full_tokenizer import warn_of_unknown

GZIP = "gzip"
FRAME_BYTES = 16  # per record on disk, in addition to its data

SHUFFLE_BUFFER = 10_000  # records; some 10 MB
FILES_READ_TOGETHER = 16
MAX_BYTES = 2**29  # limit for the records in a buffer, a pool or a parsing batch; relevant for per-position vectors

_TEXTS_WORTH_A_PROCESS = 30_000  # one process handles these in a second or two
_EXAMPLES_IN_A_BATCH = 500

_LENGTH = struct.Struct("<Q")
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_LEVEL = 6
_BLOCK_BYTES = 1 << 20


def _masked_checksum(data: bytes) -> int:
    return masked(crc32c(data))


class _HeaderTable(dict):
    """Cache of headers; the lengths of pretraining records differ by few bytes."""

    def __missing__(self, length: int) -> bytes:
        packed = _LENGTH.pack(length)
        header = self[length] = packed + _CHECKSUM.pack(_masked_checksum(packed))
        return header


_HEADERS = _HeaderTable()


def frame(record: bytes) -> bytes:
    return b"".join((_HEADERS[len(record)], record, _CHECKSUM.pack(_masked_checksum(record))))


def compressed_sink(sink: IO[bytes]) -> gzip.GzipFile:
    """Compress a file's output deterministically; close it before the file."""
    return gzip.GzipFile(filename="", fileobj=sink, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0)


def compressed(data: bytes) -> bytes:
    """Compress bytes; compressed pieces can be concatenated."""
    return gzip.compress(data, _GZIP_LEVEL, mtime=0)


def compression_type(path: str) -> Literal["", "GZIP"]:
    """Return the compression of a TFRecord file, as named in `tf.data.TFRecordDataset`."""
    with files.open_file(path, "rb") as source:
        start = source.read(_HEADER.size)
    if not start.startswith(_GZIP_MAGIC) or _is_header(start):  # a record length may look like gzip
        return ""
    return "GZIP"


def _is_header(data: bytes) -> bool:
    if len(data) < _HEADER.size:
        return False
    _, checksum = _HEADER.unpack(data)
    return checksum == _masked_checksum(data[: _LENGTH.size])


def read_records(path: str) -> Iterator[bytes]:
    is_compressed = compression_type(path) == "GZIP"
    with files.open_file(path, "rb") as source:
        stream = gzip.GzipFile(fileobj=source) if is_compressed else source
        number = 0
        try:
            while (record := _read_record(stream.read)) is not None:
                yield record
                number += 1
        except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _damaged(path, number) from error
    if not number:
        raise empty(path)


def _damaged(path: str, number: int) -> UserError:
    return UserError(
        f"{path}: record {number} (counted from 0) is damaged or truncated; is it a complete TFRecord file? "
        "If so, delete it; the command that made it makes it again"
    )


def empty(path: str) -> UserError:
    return UserError(f"{path} is empty; was it written completely?")


def _read_record(read: Callable[[int], bytes]) -> bytes | None:
    """Read the next record; None at the end."""
    header = read(_HEADER.size)
    if not header:
        return None
    if not _is_header(header):
        raise ValueError("header")
    (length,) = _LENGTH.unpack_from(header)
    data = read(length + _CHECKSUM.size)
    record = data[:length]
    if len(data) < length + _CHECKSUM.size or _CHECKSUM.unpack_from(data, length)[0] != _masked_checksum(record):
        raise ValueError("record")
    return record


class RecordWriter:
    """Writer of records to several TFRecord files in turn; they appear only when all are complete.

    A context manager: the files get their names when the block ends without an error, otherwise they are deleted. A
    killed process leaves hidden `.NAME.partial-NUMBER` files, which data globs do not match.
    """

    def __init__(self, paths: Sequence[str], compression: str = "none"):
        self._paths = list(paths)
        self._compression = compression
        self._num_written = 0

    def __enter__(self) -> "RecordWriter":
        with contextlib.ExitStack() as stack:
            self._sinks = stack.enter_context(writing.atomic_writes(self._paths, "wb"))
            if self._compression == GZIP:
                self._sinks = [stack.enter_context(compressed_sink(sink)) for sink in self._sinks]
            self._stack = stack.pop_all()
        return self

    def write(self, record: bytes) -> None:
        self._sinks[self._num_written % len(self._sinks)].write(frame(record))
        self._num_written += 1

    def __exit__(self, error_type, error, traceback) -> None:
        self._stack.__exit__(error_type, error, traceback)


class RecordFile(NamedTuple):
    path: str  # the file
    schema: RecordSchema  # the record schema, sized
    # padded lengths for batches of similar records, see `pipeline.training_batches`; None pads nothing
    lengths: list[int] | None = None
    compression: str = "none"  # "none" or "gzip", for writing; for existing files it is detected
    is_written: bool = True  # whether this process writes it if needed, rather than another worker of the run


class RecordSpool:
    """Records on disk in creation order, to be read in random order.

    A context manager; the file is deleted when the block ends. It needs 8 bytes of memory per record; the rest is in
    the operating system's file cache.
    """

    def __init__(self, folder: str | None):
        self._folder = folder
        self._ends = array("q", [0])

    def __enter__(self) -> "RecordSpool":
        self._file = tempfile.TemporaryFile(dir=self._folder, buffering=1 << 20)
        return self

    def __exit__(self, error_type, error, traceback) -> None:
        with contextlib.suppress(OSError):  # data lost on a full disk is written again
            self._file.close()
        if isinstance(error, OSError) and error.filename is None:
            place = self._folder or tempfile.gettempdir()
            raise UserError(f"cannot write temporary records to {place}: {error.strerror or error}") from error

    def __len__(self) -> int:
        return len(self._ends) - 1

    def append(self, record: bytes) -> None:
        self._file.write(record)
        self._ends.append(self._ends[-1] + len(record))

    def shuffled(self, rng: Random) -> Iterator[bytes]:
        order = array("q", range(len(self)))
        shuffle(order, rng)
        self._file.flush()
        file, ends = self._file.fileno(), self._ends
        for index in order:
            yield os.pread(file, ends[index + 1] - ends[index], ends[index])


def manifest_path(path: str) -> str:
    return f"{path}.json"


def write_cached(file: RecordFile, provenance: Mapping[str, Any], records: Callable[[], Iterable[bytes]]) -> int:
    """Write a TFRecord file, unless the existing one has the same provenance in its `Manifest`.

    A process that does not write the file only creates the records, as all workers of a run do.
    """
    path, note = file.path, manifest_path(file.path)
    known = Manifest.read_if_current(note, provenance, path)
    if known and known.num_records:
        logging.info("%s is up to date: %d records", path, known.num_records)
        return known.num_records
    if not file.is_written:
        return sum(1 for _ in records())
    writing.remove(note)
    num_records = 0
    with RecordWriter([path], file.compression) as writer:
        for record in records():
            writer.write(record)
            num_records += 1
    Manifest.write(note, provenance, [os.path.basename(path)], num_records, is_checked=False)
    logging.info("wrote %s: %d records", path, num_records)
    return num_records


class Split(Protocol):
    """Examples of a split, and how they become records."""

    def provenance(self, schema: RecordSchema) -> dict[str, Any]:
        """Return everything that determines the records, as in a `Manifest`."""

    def records(self, file: RecordFile) -> Iterable[bytes]:
        """Return the records of ids for a file."""

    def feature_records(self, schema: RecordSchema, features: Iterable[np.ndarray]) -> Iterable[bytes]:
        """Return the records of a frozen encoder's outputs; only for tasks whose encoder may be frozen."""


class ExampleJoiner(abc.ABC):
    """Converter from examples to the values of their records; other processes get a copy."""

    def __init__(self, tokenizer: Tokenizer, **settings: int | None):
        self.tokenizer = tokenizer
        self._settings = settings

    @property
    def identity(self) -> dict[str, Any]:
        return {**self.tokenizer.identity, **self._settings}

    def fingerprints(self, examples: Sequence[Any]) -> dict[str, str]:
        """Return everything about the examples that determines their records."""
        return {"examples": fingerprint(examples)}

    def num_texts(self, example: Any) -> int:
        """Return the number of texts to tokenize, by which processes are started."""
        del example
        return 1

    @abc.abstractmethod
    def join(self, example: Any, counts: Counter) -> dict[str, Sequence[int]]:
        """Return the model inputs; count what `report` tells, and `num_wordpieces` and `num_unknown` ones."""

    @abc.abstractmethod
    def labels(self, example: Any) -> dict[str, Sequence[int | float]]:
        """Return the other values of a record."""

    @abc.abstractmethod
    def report(self, counts: Counter) -> None:
        """Log what was truncated."""


class ExampleSplit(NamedTuple):
    """Examples that are joined by several processes; a `Split`."""

    joiner: ExampleJoiner
    examples: Sequence[Any]

    def provenance(self, schema: RecordSchema) -> dict[str, Any]:
        return {**self.joiner.identity, "fields": schema.names, **self.joiner.fingerprints(self.examples)}

    def records(self, file: RecordFile, *, num_processes: int = 0) -> Iterator[bytes]:
        joiner, examples, counts = self.joiner, self.examples, Counter()
        worth_starting = sum(map(joiner.num_texts, examples)) // _TEXTS_WORTH_A_PROCESS
        num_used = max(1, min(num_processes or available_cores(), worth_starting))
        starts = range(0, len(examples), _EXAMPLES_IN_A_BATCH)
        batches = (examples[start : start + _EXAMPLES_IN_A_BATCH] for start in starts)
        with Workers(num_used, joiner, file.schema, name="tokenizes texts") as workers:
            for records, counts_of_batch in workers.map(_joined_batch, batches):
                yield from records
                counts.update(counts_of_batch)
        joiner.report(counts)
        unknown = {name: counts[name] for name in ("num_unknown", "num_wordpieces")}
        warn_of_unknown(file.path, joiner.tokenizer, **unknown)

    def feature_records(self, schema: RecordSchema, features: Iterable[np.ndarray]) -> Iterator[bytes]:
        for row, example in zip(features, self.examples, strict=True):
            yield schema.encode({FEATURES: row.ravel(), **self.joiner.labels(example)})


def _joined_batch(examples: Sequence[Any], joiner: ExampleJoiner, schema: RecordSchema) -> tuple[list[bytes], Counter]:
    counts = Counter()
    return [schema.encode({**joiner.labels(example), **joiner.join(example, counts)}) for example in examples], counts


def write_split(file: RecordFile, split: Split) -> int:
    """Write the records of a split's ids, unless an existing file is up to date; return their number."""
    return write_cached(file, split.provenance(file.schema), lambda: split.records(file))


def count_records(path: str) -> int:
    """Count the records of a TFRecord file; for uncompressed local files, only length fields are read."""
    if files.is_remote(path) or compression_type(path):  # one seek per record would be one request each
        return sum(1 for _ in read_records(path))
    total = files.size(path)
    if total == 0:
        raise empty(path)
    num_records = position = 0
    with open(path, "rb") as source:
        while position < total:
            header = source.read(_HEADER.size)
            position += FRAME_BYTES + (_LENGTH.unpack_from(header)[0] if len(header) == _HEADER.size else total)
            if position > total:
                raise _damaged(path, num_records)
            source.seek(position)
            num_records += 1
    return num_records


def check_first_record(path: str, schema: RecordSchema) -> None:
    check_records(itertools.islice(read_records(path), 1), schema, path)


def check_records(records: Iterable[bytes], schema: RecordSchema | None, path: str) -> None:
    for number, record in enumerate(records):
        if schema is not None:
            try:
                schema.check(record)
            except UserError as error:
                raise UserError(f"{path}: record {number} (counted from 0): {error}") from error
