"""Tokenized documents and sorted records on disk, for corpora larger than memory.

They are block files: uncompressed ZIP files of arrays, called blocks, that are written once and read in any order. A
file gets its name only when it is complete.
"""

import bisect
import contextlib
import dataclasses
import itertools
import json
import operator
import os
import struct
import zipfile
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from official_bert.data import record_files
from official_bert.data.corpus_files import CorpusPart, CorpusReader
from official_bert.support import files, writing
from official_bert.support.console import Progress
from official_bert.support.errors import UserError
from official_bert.support.processes import Workers
from official_bert.tokenization import Tokenizer

KEY_BITS = 64
_DTYPES = {  # of blocks, by name
    "numbers": np.dtype("int32"),
    "documents": np.dtype("int64"),
    "keys": np.dtype("uint64"),
    "ends": np.dtype("int64"),
    "records": np.dtype("uint8"),
}
_WRITTEN_TOGETHER = 1024  # records per write
ADVICE = "lower num_processes or max_memory_gb, and run the same command again: it continues with what is finished"


def is_intact(path: str) -> bool:
    """Read a whole local file; return True if it is a complete block file with correct checksums."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except Exception:  # zipfile raises many kinds of exceptions for damaged files
        return False


class BlockFile:
    """Reader of the blocks of a local file; a context manager."""

    def __init__(self, path: str):
        self._file = open(path, "rb")  # noqa: SIM115  closed by __exit__
        try:
            with zipfile.ZipFile(self._file) as archive:
                self.metadata = json.loads(archive.read("metadata"))  # the JSON values stored with the blocks
                self._blocks = {info.filename: (self._start(info), info.file_size) for info in archive.infolist()}
        except Exception as error:  # zipfile raises many kinds of exceptions for damaged files
            self._file.close()
            raise UserError(f"{path} is damaged; delete it and run the command again") from error

    def __enter__(self) -> "BlockFile":
        return self

    def __exit__(self, *_) -> None:
        self._file.close()

    def _start(self, info: zipfile.ZipInfo) -> int:
        """Return the position of a block, which follows a header with two fields of variable length."""
        lengths = struct.unpack("<HH", os.pread(self._file.fileno(), 4, info.header_offset + 26))
        return info.header_offset + 30 + sum(lengths)

    def length(self, name: str) -> int:
        return self._blocks[name][1] // _DTYPES[name].itemsize

    def read(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Read elements `start` to `stop` of a block, all if there is no `stop`."""
        dtype, position = _DTYPES[name], self._blocks[name][0]
        count = (self.length(name) if stop is None else stop) - start
        data = os.pread(self._file.fileno(), count * dtype.itemsize, position + start * dtype.itemsize)
        return np.frombuffer(data, dtype)


def summed_metadata(paths: Iterable[str]) -> Counter[str]:
    sums = Counter()
    for path in paths:
        with BlockFile(path) as file:
            sums.update(file.metadata)
    return sums


@contextlib.contextmanager
def _block_writer(path: str) -> Iterator[zipfile.ZipFile]:
    """Open a local block file for writing; it gets its name when the `with` block ends without an error."""
    with writing.atomic_write(path, "wb") as sink, zipfile.ZipFile(sink, "w") as archive:
        yield archive


def _new_block(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    return archive.open(zipfile.ZipInfo(name), "w", force_zip64=True)


def _write_block(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name), data)  # ZipInfo has a fixed date


def shard_of(key: int, num_shards: int) -> int:
    return key * num_shards >> KEY_BITS


def write_run(path: str, records: Iterable[tuple[int, bytes]], metadata: dict[str, Any]) -> None:
    """Write records, all held in memory, as a sorted run."""
    ordered = sorted((key, record_files.frame(record)) for key, record in records)
    ends = np.cumsum([0, *(len(framed) for _, framed in ordered)], dtype=_DTYPES["ends"])
    with _block_writer(path) as archive:
        _write_block(archive, "keys", np.array([key for key, _ in ordered], _DTYPES["keys"]).tobytes())
        _write_block(archive, "ends", ends.tobytes())
        with _new_block(archive, "records") as block:
            for start in range(0, len(ordered), _WRITTEN_TOGETHER):
                block.write(b"".join([framed for _, framed in ordered[start : start + _WRITTEN_TOGETHER]]))
        _write_block(archive, "metadata", json.dumps(metadata).encode())


def merge_runs(
    runs: Sequence[str], outputs: Sequence[str], *, num_processes: int, slice_bytes: int, compression: str = "none"
) -> None:
    """Merge sorted runs into TFRecord files, which appear together when all are complete."""
    num_bytes = sum(map(files.size, runs))
    num_slices = max(1, round(num_bytes / len(outputs) / slice_bytes + 0.5))  # per file
    num_ranges = len(outputs) * num_slices
    edges = [-(-(number << KEY_BITS) // num_ranges) for number in range(num_ranges + 1)]  # rounded up
    ranges = list(itertools.pairwise(edges))
    sizes = _sizes(runs, edges[:-1]).reshape(len(outputs), num_slices)
    for path, size in zip(outputs, sizes.sum(axis=1), strict=True):
        if not size:
            raise UserError(f"{path} would have no records; write fewer files or use more text")
    with (
        writing.atomic_writes(outputs, "wb") as sinks,
        Workers(num_processes, list(runs), compression, name="sorts records", advice=ADVICE) as workers,
        Progress("shuffling", num_ranges, "slices") as progress,
    ):
        if compression == "none" and not any(map(files.is_remote, outputs)):
            paths = [sink.name for sink in sinks for _ in range(num_slices)]
            offsets = np.cumsum(sizes, axis=1) - sizes
            written = workers.map(_write_merged, zip(ranges, paths, offsets.ravel().tolist(), strict=True))
        else:  # the start of a slice is not known before the previous ones are written
            slices = enumerate(workers.map(_merged, ranges))
            written = (sinks[number // num_slices].write(data) for number, data in slices)
        for done, (_, num_done) in enumerate(zip(written, np.cumsum(sizes), strict=True), start=1):
            progress.update(done, f"{num_done / 1e6:,.0f} MB")


def _sizes(runs: Sequence[str], starts: Sequence[int]) -> np.ndarray:
    """Return the bytes of the uncompressed records from each key to the next, int64 [R]."""
    sizes = np.zeros(len(starts), np.int64)
    for path in runs:
        with BlockFile(path) as run:
            keys, ends = run.read("keys"), run.read("ends")
        sizes += np.diff(ends[[*np.searchsorted(keys, np.array(starts, np.uint64)), len(keys)]])
    return sizes


def _write_merged(place: tuple[tuple[int, int], str, int], runs: list[str], compression: str) -> None:
    key_range, path, offset = place
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(_merged(key_range, runs, compression))


def _merged(key_range: tuple[int, int], runs: list[str], compression: str) -> bytes:
    keys, lengths, data = [], [], []
    for path in runs:
        with BlockFile(path) as run:
            first, last = (_num_smaller(run, key) for key in key_range)
            keys.append(run.read("keys", first, last))
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


def _num_smaller(run: BlockFile, key: int) -> int:
    """Count the keys of a run that are smaller than a key, without reading them all."""
    places = range(run.length("keys"))
    return bisect.bisect_left(places, key, key=lambda place: int(run.read("keys", place, place + 1)[0]))


class Document(NamedTuple):
    """A tokenized document of N sentences."""

    file_number: int  # index of its file in the corpus
    position: int  # its start in the file; see `CorpusReader`. The two form its id, however the corpus is divided
    sentence_lengths: np.ndarray  # int32 [N], wordpieces per sentence, at least one
    ids: np.ndarray  # int32, wordpieces of all sentences


# Locations and lengths of documents: 32 bytes each.
DOCUMENT_TABLE = np.dtype(
    [
        ("spool", "int32"),  # index of the file that contains the document
        ("file_number", "int32"),  # as in `Document`
        ("position", "int64"),  # as in `Document`
        ("offset", "int64"),  # start of its numbers in the spool
        ("num_sentences", "int32"),
        ("num_ids", "int32"),
    ]
)


@dataclasses.dataclass
class CorpusCounts:
    num_documents: int = 0  # number of documents
    num_single: int = 0  # number of single-sentence documents
    num_ids: int = 0  # number of wordpieces
    num_unknown: int = 0  # number of these that are [UNK]

    @property
    def unknown_share(self) -> float:
        return self.num_unknown / self.num_ids


def tokenized_documents(
    lines: Iterable[tuple[int, str]], tokenizer: Tokenizer, counts: CorpusCounts, file_number: int = 0
) -> Iterator[Document]:
    """Tokenize and count the documents of lines with their positions; a blank line ends a document.

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
            counts.num_documents += 1
            counts.num_single += len(lengths) == 1
            counts.num_ids += len(ids)
            counts.num_unknown += ids.count(tokenizer.unk_id)
            yield Document(file_number, start, np.frombuffer(lengths, np.int32), np.frombuffer(ids, np.int32))
            lengths, ids = array("i"), array("i")


def write_documents(place: tuple[str, CorpusPart], tokenizer: Tokenizer) -> None:
    """Tokenize a part of a corpus to a file, whose path comes first."""
    path, part = place
    table, offset, counts = array("q"), 0, CorpusCounts()
    with _block_writer(path) as archive:
        with _new_block(archive, "numbers") as block:
            for document in tokenized_documents(CorpusReader(part), tokenizer, counts, part.file_number):
                num_sentences, num_ids = len(document.sentence_lengths), len(document.ids)
                table.extend((document.file_number, document.position, offset, num_sentences, num_ids))
                block.write(document.sentence_lengths.tobytes() + document.ids.tobytes())
                offset += num_sentences + num_ids
        _write_block(archive, "documents", table.tobytes())
        _write_block(archive, "metadata", json.dumps(vars(counts)).encode())


def read_table(paths: Sequence[str]) -> tuple[np.ndarray, CorpusCounts]:
    """Read the `DOCUMENT_TABLE` of the files that `write_documents` wrote for all parts of a corpus, and its counts."""
    counts = CorpusCounts(**summed_metadata(paths))
    table, start = np.empty(counts.num_documents, DOCUMENT_TABLE), 0
    for number, path in enumerate(paths):
        with BlockFile(path) as file:
            columns = file.read("documents").reshape(-1, 5).T
        rows = table[start : start + columns.shape[1]]
        rows["spool"] = number
        for name, column in zip(DOCUMENT_TABLE.names[1:], columns, strict=True):
            rows[name] = column
        start += len(rows)
    return table, counts


def read_documents(paths: Sequence[str], rows: np.ndarray) -> Iterator[Document]:
    for spool, documents in itertools.groupby(rows.tolist(), key=operator.itemgetter(0)):
        with BlockFile(paths[spool]) as file:
            for _, file_number, position, offset, num_sentences, num_ids in documents:
                numbers = file.read("numbers", offset, offset + num_sentences + num_ids)
                yield Document(file_number, position, numbers[:num_sentences], numbers[num_sentences:])
