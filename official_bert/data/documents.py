"""Tokenized documents and sorted records on disk, for corpora larger than memory.

They are block files: arrays that are written once, block by block, then read in any order. A file consists of its
blocks' bytes, a JSON table of them, the CRC-32C of both, and the table's length. It gets its name only when complete.
"""

import contextlib
import itertools
import json
import mmap
import operator
import os
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

import google_crc32c
import numpy as np

from official_bert.data import record_files
from official_bert.data.corpus_files import CorpusPart, CorpusReader
from official_bert.support import files, writing
from official_bert.support.console import Progress
from official_bert.support.errors import UserError
from official_bert.support.processes import Workers
from official_bert.tokenization import Tokenizer

_FOOTER = struct.Struct("<IQ8s")  # checksum, length of the table, magic
_MAGIC = b"blocks 2"
_READ_BYTES = 1 << 20
KEY_BITS = 64
_WRITTEN_TOGETHER = 1024  # records per write
ADVICE = "lower num_processes or max_memory_gb, and run the same command again: it continues with what is finished"


class BlockWriter:
    def __init__(self, sink: IO[bytes]):
        self._sink = sink
        self._checksum = 0
        self._blocks: dict[str, tuple[str, int, int]] = {}
        self.metadata: dict[str, Any] = {}  # JSON values to store with the blocks

    def append(self, name: str, array: Any) -> None:
        """Append an array to the current block, or start a new block with this name."""
        array = np.ascontiguousarray(array)
        start = self._sink.tell()
        if name not in self._blocks:
            start += self._write(bytes(-start % 8))  # aligned for `BlockFile.mapped`
            self._blocks[name] = (array.dtype.str, start, start)
        dtype, first, end = self._blocks[name]
        if end != start or dtype != array.dtype.str:
            raise ValueError(f"block {name!r} is no longer the last one, or of another type")
        self._write(array.tobytes())
        self._blocks[name] = (dtype, first, self._sink.tell())

    def close(self) -> None:
        table = json.dumps({"blocks": self._blocks, "metadata": self.metadata}).encode()
        self._write(table)
        self._sink.write(_FOOTER.pack(self._checksum, len(table), _MAGIC))

    def _write(self, data: bytes) -> int:
        self._checksum = google_crc32c.extend(self._checksum, data)
        return self._sink.write(data)


@contextlib.contextmanager
def block_writer(path: str) -> Iterator[BlockWriter]:
    """Open a local block file for writing; it gets its name when the `with` block ends without an error."""
    with writing.atomic_write(path, "wb") as sink:
        writer = BlockWriter(sink)
        yield writer
        writer.close()


def is_intact(path: str) -> bool:
    """Read a whole local file; return True if it is a complete block file with a correct checksum."""
    with open(path, "rb") as source:
        left = os.fstat(source.fileno()).st_size - _FOOTER.size
        checksum = 0
        while left > 0 and (data := source.read(min(left, _READ_BYTES))):
            checksum = google_crc32c.extend(checksum, data)
            left -= len(data)
        footer = source.read()
    if left or len(footer) != _FOOTER.size:
        return False
    expected, _, magic = _FOOTER.unpack(footer)
    return magic == _MAGIC and expected == checksum


class BlockFile:
    """Reader of the blocks of a file; a context manager.

    Attributes:
      metadata: the JSON values stored with the blocks.
    """

    def __init__(self, path: str):
        self._file = open(path, "rb")  # noqa: SIM115  closed by __exit__
        try:
            self.metadata, self._blocks = self._read_table(path)
        except BaseException:
            self._file.close()
            raise

    def _read_table(self, path: str) -> tuple[dict[str, Any], Mapping[str, tuple[np.dtype, int, int]]]:
        size = os.fstat(self._file.fileno()).st_size
        try:
            _, length, magic = _FOOTER.unpack(self._pread(size - _FOOTER.size, _FOOTER.size))
            if magic != _MAGIC:
                raise ValueError
            table = json.loads(self._pread(size - _FOOTER.size - length, length))
        except (OSError, ValueError, RecursionError, struct.error) as error:
            raise UserError(f"{path} is damaged; delete it and run the command again") from error
        blocks = {name: (np.dtype(dtype), start, stop) for name, (dtype, start, stop) in table["blocks"].items()}
        return table["metadata"], blocks

    def __enter__(self) -> "BlockFile":
        return self

    def __exit__(self, *_) -> None:
        self._file.close()

    def _pread(self, position: int, length: int) -> bytes:
        return os.pread(self._file.fileno(), length, position)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Read elements `start` to `stop` of a block; a block that was never written is empty."""
        if name not in self._blocks:
            return np.empty(0)
        dtype, first, end = self._blocks[name]
        first += start * dtype.itemsize
        length = end - first if stop is None else (stop - start) * dtype.itemsize
        return np.frombuffer(self._pread(first, length), dtype)

    @contextlib.contextmanager
    def mapped(self, name: str) -> Iterator[np.ndarray]:
        """Memory-map a block, for random access to a few of its elements."""
        if name not in self._blocks:
            yield np.empty(0)
            return
        dtype, start, stop = self._blocks[name]
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            array = np.frombuffer(view, dtype, (stop - start) // dtype.itemsize, start)
            yield array
            del array  # otherwise the view cannot be closed


def shard_of(key: int, num_shards: int) -> int:
    """Return the number of the output file that a record belongs to."""
    return key * num_shards >> KEY_BITS


def write_run(path: str, records: Iterable[tuple[int, bytes]], metadata: dict[str, Any]) -> None:
    """Write records, all held in memory, as a sorted run."""
    ordered = sorted((key, record_files.frame(record)) for key, record in records)
    with block_writer(path) as writer:
        writer.append("keys", np.array([key for key, _ in ordered], np.uint64))
        writer.append("ends", np.cumsum([0, *(len(framed) for _, framed in ordered)], dtype=np.int64))
        for start in range(0, len(ordered), _WRITTEN_TOGETHER):
            together = b"".join([framed for _, framed in ordered[start : start + _WRITTEN_TOGETHER]])
            writer.append("records", np.frombuffer(together, np.uint8))
        writer.metadata.update(metadata)


class _KeyRange(NamedTuple):
    """Records in a key range, for a shard."""

    shard: int  # number of the shard
    start: int  # the first key
    stop: int  # the end of the range, exclusive


def _key_ranges(num_shards: int, num_slices: int) -> Iterator[_KeyRange]:
    """Divide the keys of each shard into equal slices that fit into memory."""
    num_ranges = num_shards * num_slices
    edges = [-(-(number << KEY_BITS) // num_ranges) for number in range(num_ranges + 1)]  # rounded up
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        yield _KeyRange(number // num_slices, start, stop)


def merge_runs(
    runs: Sequence[str], outputs: Sequence[str], *, num_processes: int, slice_bytes: int, compression: str = "none"
) -> None:
    """Merge sorted runs into TFRecord files, which appear together when all are complete."""
    num_bytes = sum(map(files.size, runs))
    num_slices = max(1, round(num_bytes / len(outputs) / slice_bytes + 0.5))
    ranges = list(_key_ranges(len(outputs), num_slices))
    written = [0] * len(outputs)
    with (
        writing.atomic_writes(outputs, "wb") as sinks,
        Workers(num_processes, list(runs), compression, name="sorts records", advice=ADVICE) as workers,
        Progress("shuffling", len(ranges), "slices") as progress,
    ):
        if compression == "none" and not any(map(files.is_remote, outputs)):
            lengths = workers.map(_write_merged, _places(ranges, runs, [sink.name for sink in sinks]))
        else:  # the start of a slice is not known before the previous ones are written
            slices = workers.map(_merged, ranges)
            lengths = (_append(sinks[key_range.shard], data) for key_range, data in zip(ranges, slices, strict=True))
        for done, (key_range, length) in enumerate(zip(ranges, lengths, strict=True), start=1):
            written[key_range.shard] += length
            progress.update(done, f"{sum(written) / 1e6:,.0f} MB")
        if not all(written):
            raise UserError(f"{outputs[written.index(0)]} would have no records; write fewer files or use more text")


class _Place(NamedTuple):
    key_range: _KeyRange
    path: str
    offset: int


def _places(ranges: Sequence[_KeyRange], runs: Sequence[str], paths: Sequence[str]) -> Iterator[_Place]:
    starts = np.array([key_range.start for key_range in ranges], np.uint64)
    num_bytes = np.zeros(len(ranges), np.int64)
    for path in runs:
        with BlockFile(path) as run:
            keys, ends = run.read("keys"), run.read("ends")
        num_bytes += np.diff(ends[[*np.searchsorted(keys, starts), len(keys)]])
    offset, shard = 0, -1
    for key_range, length in zip(ranges, num_bytes.tolist(), strict=True):
        offset = offset if key_range.shard == shard else 0
        shard = key_range.shard
        yield _Place(key_range, paths[shard], offset)
        offset += length


def _append(sink: IO[bytes], data: bytes) -> int:
    sink.write(data)  # a remote file returns nothing
    return len(data)


def _write_merged(place: _Place, runs: list[str], compression: str) -> int:
    data = _merged(place.key_range, runs, compression)
    with open(place.path, "r+b") as file:
        file.seek(place.offset)
        file.write(data)
    return len(data)


def _merged(key_range: _KeyRange, runs: list[str], compression: str) -> bytes:
    """Return the records of a key range in on-disk format."""
    keys, lengths, data = [], [], []
    for path in runs:
        with BlockFile(path) as run:
            with run.mapped("keys") as all_keys:
                first = _place(all_keys, key_range.start)
                last = _place(all_keys, key_range.stop)
                keys.append(all_keys[first:last].copy())
                del all_keys
            ends = run.read("ends", first, last + 1)
            lengths.append(np.diff(ends))
            data.append(run.read("records", ends[0], ends[-1]))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    view = memoryview(np.concatenate(data))
    order = np.argsort(np.concatenate(keys), kind="stable")
    merged = b"".join(
        [view[start:stop] for start, stop in zip(starts[order].tolist(), starts[order + 1].tolist(), strict=True)]
    )
    return record_files.compressed(merged) if merged and compression == record_files.GZIP else merged


def _place(keys: np.ndarray, key: int) -> int:
    """Count the keys smaller than a key."""
    return len(keys) if key >> KEY_BITS else int(np.searchsorted(keys, np.uint64(key)))


class Document(NamedTuple):
    """A tokenized document of N sentences."""

    file_number: int  # index of its file in the corpus
    position: int  # its start in the file; see `CorpusReader`. The two form its id, however the corpus is divided
    sentence_lengths: np.ndarray  # int32 [N], wordpieces per sentence, at least one
    ids: np.ndarray  # int32, wordpieces of all sentences


class DocumentTable(NamedTuple):
    """Locations and lengths of D documents; each attribute is an array [D]."""

    spool: np.ndarray  # int32, index of the file that contains the document
    file_number: np.ndarray  # int32, as in `Document`
    position: np.ndarray  # int64, as in `Document`
    offset: np.ndarray  # int64, start of its numbers in the spool
    num_sentences: np.ndarray  # int32, number of sentences
    num_ids: np.ndarray  # int32, number of wordpieces

    @classmethod
    def empty(cls, num_documents: int) -> "DocumentTable":
        dtypes = ("int32", "int32", "int64", "int64", "int32", "int32")
        return cls(*(np.empty(num_documents, dtype) for dtype in dtypes))

    def rows(self, index: np.ndarray | slice) -> "DocumentTable":
        """Return the documents selected by a NumPy index."""
        return DocumentTable(*(column[index] for column in self))


def tokenized_documents(
    lines: Iterable[tuple[int, str]], tokenizer: Tokenizer, file_number: int = 0
) -> Iterator[Document]:
    """Tokenize lines with their positions; a blank line ends a document.

    Sentences and documents without wordpieces are skipped.
    """
    lengths, ids, start = array("i"), array("i"), 0
    for position, line in itertools.chain(lines, [(0, "")]):
        if line:
            wordpieces = tokenizer.encode(line)
            if wordpieces:
                start = start if lengths else position
                lengths.append(len(wordpieces))
                ids.extend(wordpieces)
        elif lengths:
            yield Document(file_number, start, np.frombuffer(lengths, np.int32), np.frombuffer(ids, np.int32))
            lengths, ids = array("i"), array("i")


def write_documents(path: str, part: CorpusPart, tokenizer: Tokenizer) -> None:
    """Tokenize a part of a corpus to a file; see `CorpusReader` for errors."""
    table = array("q")
    offset = num_unknown = 0
    with block_writer(path) as writer:
        for document in tokenized_documents(CorpusReader(part), tokenizer, part.file_number):
            num_sentences, num_ids = len(document.sentence_lengths), len(document.ids)
            table.extend((document.file_number, document.position, offset, num_sentences, num_ids))
            writer.append("numbers", document.sentence_lengths)
            writer.append("numbers", document.ids)
            offset += num_sentences + num_ids
            num_unknown += np.count_nonzero(document.ids == tokenizer.unk_id)
        writer.append("documents", np.frombuffer(table, np.int64))
        writer.metadata.update(num_documents=len(table) // 5, num_unknown=int(num_unknown))


class DocumentSpools:
    """Files written by `write_documents` for all parts of a corpus."""

    def __init__(self, paths: list[str]):
        """Read the tables; needs 32 bytes of memory per document."""
        self.paths = paths  # the files, in part order
        num_documents = self.num_unknown = 0  # documents, and wordpieces that are [UNK]
        for path in paths:
            with BlockFile(path) as file:
                num_documents += file.metadata["num_documents"]
                self.num_unknown += file.metadata["num_unknown"]
        self.table = DocumentTable.empty(num_documents)  # all documents, in order
        start = 0
        for number, path in enumerate(paths):
            with BlockFile(path) as file:
                columns = file.read("documents").reshape(-1, 5).T
            rows = self.table.rows(slice(start, start + columns.shape[1]))
            rows.spool[:] = number
            for column, values in zip(rows[1:], columns, strict=True):
                column[:] = values
            start += columns.shape[1]


def read_documents(paths: list[str], rows: DocumentTable) -> Iterator[Document]:
    columns = (column.tolist() for column in rows)
    places = zip(*columns, strict=True)
    for spool, documents in itertools.groupby(places, key=operator.itemgetter(0)):
        with BlockFile(paths[spool]) as file:
            for _, file_number, position, offset, num_sentences, num_ids in documents:
                numbers = file.read("numbers", offset, offset + num_sentences + num_ids)
                yield Document(file_number, position, numbers[:num_sentences], numbers[num_sentences:])
