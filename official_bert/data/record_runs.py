"""Shuffle more records than fit into memory: sorted runs on disk, merged into output files.

Each record has a random 64-bit key. Records are written in runs, sorted by key; output file k of K gets the records
whose keys are in the k-th of K equal ranges, in key order. So a record's place depends only on the keys, not on the
number of runs, processes or bytes of memory.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from official_bert.data import tfrecord
from official_bert.data.block_file import BlockFile, block_writer
from official_bert.support import files, writing
from official_bert.support.errors import UserError
from official_bert.support.processes import Workers
from official_bert.support.progress import Progress

KEY_BITS = 64
_WRITTEN_TOGETHER = 1024  # records per write
ADVICE = "lower num_processes or max_memory_gb, and run the same command again: it continues with what is finished"


def shard_of(key: int, num_shards: int) -> int:
    """Return the number of the output file that a record belongs to."""
    return key * num_shards >> KEY_BITS


def write_run(path: str, records: Iterable[tuple[int, bytes]], metadata: dict[str, Any]) -> None:
    """Write records, all held in memory, as a sorted run.

    Args:
      path: a local file.
      records: keys and records.
      metadata: JSON values to store with them; may be filled while the records are created.
    """
    ordered = sorted((key, tfrecord.frame(record)) for key, record in records)
    with block_writer(path) as writer:
        writer.append("keys", np.array([key for key, _ in ordered], np.uint64))
        writer.append("ends", np.cumsum([0, *(len(framed) for _, framed in ordered)], dtype=np.int64))
        for start in range(0, len(ordered), _WRITTEN_TOGETHER):
            together = b"".join([framed for _, framed in ordered[start : start + _WRITTEN_TOGETHER]])
            writer.append("records", np.frombuffer(together, np.uint8))
        writer.metadata.update(metadata)


class _KeyRange(NamedTuple):
    """Records in a key range, for a shard.

    Attributes:
      shard: number of the shard.
      start: the first key.
      stop: the end of the range, exclusive.
    """

    shard: int
    start: int
    stop: int


def _key_ranges(num_shards: int, num_slices: int) -> Iterator[_KeyRange]:
    """Divide the keys of each shard into equal slices that fit into memory."""
    num_ranges = num_shards * num_slices
    edges = [-(-(number << KEY_BITS) // num_ranges) for number in range(num_ranges + 1)]  # rounded up
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        yield _KeyRange(number // num_slices, start, stop)


def merge_runs(
    runs: Sequence[str], outputs: Sequence[str], *, num_processes: int, slice_bytes: int, compression: str = "none"
) -> None:
    """Merge sorted runs into TFRecord files, which appear together when all are complete.

    Args:
      runs: files of `write_run`.
      outputs: the files to write.
      num_processes: number of processes that sort and compress.
      slice_bytes: approximate bytes of records that a process holds at a time.
      compression: "none" or "gzip".

    Raises:
      UserError: a file cannot be written, or would be empty.
    """
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
    """Output location of a slice: a file and a byte offset."""

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
    sink.write(data)
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
    return tfrecord.compressed(merged) if merged and compression == tfrecord.GZIP else merged


def _place(keys: np.ndarray, key: int) -> int:
    """Count the keys smaller than a key."""
    return len(keys) if key >> KEY_BITS else int(np.searchsorted(keys, np.uint64(key)))
