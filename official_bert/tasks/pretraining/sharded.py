"""Create pretraining records of a corpus of any size, with several processes in bounded memory.

The corpus is tokenized to disk. For each copy of the data, its documents are divided at random into groups that fit
into memory. The records of a group are created together, and its random next sentences come from its other documents.
A group is a random sample of the whole corpus, drawn again for each copy, so every document is equally likely to supply
a random next sentence. Finally, the records are shuffled across all output files.

All randomness is derived from the seed, the copy number and the document id: its file and its position there.
Therefore the records and their order depend neither on the number of processes nor on memory.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.data.corpus_files import CorpusPart, read_lines
from official_bert.data.documents import (
    ADVICE,
    KEY_BITS,
    CorpusCounts,
    Document,
    is_intact,
    merge_runs,
    read_documents,
    read_table,
    summed_metadata,
    tokenized_documents,
    write_documents,
    write_run,
)
from official_bert.data.record_files import RecordSpool, RecordWriter
from official_bert.data.sentence_pairs import Corpus
from official_bert.support import files, writing
from official_bert.support.console import Progress
from official_bert.support.errors import UserError
from official_bert.support.manifest import InputState, Manifest, fingerprint
from official_bert.support.processes import Workers
from official_bert.support.writing import exclusive_lock
from official_bert.tasks.pretraining.data import RECORD_FLAGS, RecordCounts, RecordMaker, check_corpus
from official_bert.tasks.pretraining.options import RecordOptions
from official_bert.tokenization import Tokenizer

PART_BYTES = 1 << 24  # bytes of text per tokenization task
GROUP_IDS = 1 << 22  # wordpieces per group, about 60 MB of corpus and records
MIN_GROUP_DOCUMENTS = 32  # on average, for a sufficient choice of random next sentences
_BYTES_PER_ID = 16  # memory per wordpiece of a group's corpus and records

_GB = 10**9
_DEFAULT_GB = 0.5
_BASE_BYTES = 80_000_000  # memory of an idle process
_MIN_PROCESS_BYTES = _BASE_BYTES + _BYTES_PER_ID * GROUP_IDS
_BYTES_PER_WORD = 250  # memory per word in the tokenizer's cache
_MIN_WORDS, _MAX_WORDS = 1 << 14, 1 << 20
_MIN_SLICE, _MAX_SLICE = 1 << 20, 1 << 26  # bytes of records sorted at a time
_COPIES_OF_A_SLICE = 8

_MANIFEST = "provenance.json"


def write_serial(parts: Sequence[CorpusPart], tokenizer: Tokenizer, settings: RecordOptions) -> str:
    """Create the records of a corpus, which is held in memory."""
    maker = RecordMaker(tokenizer, settings)  # first, because it checks the vocabulary
    paths = [part.path for part in parts]
    inputs = InputState(paths)
    counts = CorpusCounts()
    corpus = read_corpus(parts, tokenizer, counts)
    inputs.check_unchanged()
    outputs = settings.output_files
    check_corpus(counts, paths, tokenizer.settings, settings)
    # One stream for all random numbers: documents, pairs and masks, records.
    rng = Random(settings.random_seed)
    corpus.shuffle_documents(rng)
    folder = None if files.is_remote(outputs[0]) else os.path.dirname(outputs[0]) or "."  # large enough for the records
    with RecordWriter(outputs, settings.compression) as writer, RecordSpool(folder) as spool:
        for record in _passes(maker, corpus, rng, settings.dupe_factor):
            spool.append(record)
        if not len(spool):
            raise UserError(f"{outputs[0]} would have no records; use more text")
        for record in spool.shuffled(rng):
            writer.write(record)
    return maker.counts.summary(counts, settings)


def read_corpus(parts: Sequence[CorpusPart], tokenizer: Tokenizer, counts: CorpusCounts) -> Corpus:
    """Tokenize the files of a corpus; as in the reference, a document may continue in the next file."""
    corpus = Corpus()

    def details(seconds: float) -> tuple[str, str]:
        return f"{counts.num_documents:,} documents", f"{counts.num_ids / (seconds or 1):,.0f} tokens/s"

    for document in tokenized_documents(read_lines(parts, details), tokenizer, counts):
        corpus.add_document(document.sentence_lengths, document.ids)
    return corpus


def _passes(maker: RecordMaker, corpus: Corpus, rng: Random, dupe_factor: int) -> Iterator[bytes]:
    """Create records in `dupe_factor` passes over the documents, in the reference's order."""
    num_documents = len(corpus.documents)
    total = dupe_factor * num_documents
    with Progress("writing records", total, f"documents ({dupe_factor:,} passes over {num_documents:,})") as progress:
        for done in range(total):
            yield from maker.records(corpus, done % num_documents, rng)
            num_records = maker.counts.num_records
            rate = num_records / (progress.seconds or 1)
            progress.update(done + 1, f"{num_records:,} records", f"{rate:,.0f} records/s")


class Resources(NamedTuple):
    num_processes: int  # number of processes
    process_bytes: int  # memory per process

    @classmethod
    def divide(cls, num_processes: int, max_memory_gb: float) -> "Resources":
        if not max_memory_gb:
            return cls(num_processes, int(_DEFAULT_GB * _GB))
        num_fitting = int(max_memory_gb * _GB) // _MIN_PROCESS_BYTES
        if not num_fitting:
            raise UserError(
                f"max_memory_gb={max_memory_gb:g} is too little; a single process needs {_MIN_PROCESS_BYTES / _GB:.2f}"
            )
        if num_fitting < num_processes:
            logging.warning(
                "max_memory_gb=%g is enough for %d of %d processes", max_memory_gb, num_fitting, num_processes
            )
            num_processes = num_fitting
        return cls(num_processes, int(max_memory_gb * _GB) // num_processes)

    @property
    def _memory_left(self) -> int:
        return self.process_bytes - _BASE_BYTES

    @property
    def max_cached_words(self) -> int:
        return min(max(self._memory_left // _BYTES_PER_WORD, _MIN_WORDS), _MAX_WORDS)

    @property
    def slice_bytes(self) -> int:
        """Return the number of record bytes that a process may sort at a time."""
        return min(max(self._memory_left // _COPIES_OF_A_SLICE, _MIN_SLICE), _MAX_SLICE)

    def num_group_processes(self, num_ids: int) -> int:
        """Return the number of processes that can handle groups of this many wordpieces; at least one."""
        fitting = self.num_processes * self.process_bytes // (_BASE_BYTES + _BYTES_PER_ID * num_ids)
        return min(max(fitting, 1), self.num_processes)


def document_keys(seed: int, copy: int, file_numbers: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Compute random numbers from document ids, [D]: they assign documents to groups and seed their records."""
    digest = hashlib.sha256(json.dumps([seed, copy]).encode()).digest()
    state = np.full(len(positions), int.from_bytes(digest[:8], "little"), np.uint64)
    for numbers in (file_numbers, positions):
        state = _mixed(state ^ np.asarray(numbers).astype(np.uint64))
    return state


def _mixed(state: np.ndarray) -> np.ndarray:
    """Apply the output function of the SplitMix64 generator, of Steele, Lea and Flood (2014), to uint64 [D]."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def count_groups(num_documents: int, num_ids: int) -> int:
    return max(1, min(-(-num_ids // GROUP_IDS), num_documents // MIN_GROUP_DOCUMENTS))


def group_numbers(keys: np.ndarray, num_groups: int) -> np.ndarray:
    """Map document keys, uint64 [D], to groups, int64 [D]."""
    return ((keys >> np.uint64(32)) * np.uint64(num_groups) >> np.uint64(32)).astype(np.int64)


def group_records(
    documents: Iterable[Document], keys: Sequence[int], maker: RecordMaker
) -> Iterator[tuple[int, bytes]]:
    corpus = Corpus()
    for document in documents:
        corpus.add_document(document.sentence_lengths, document.ids)
    for number, key in enumerate(keys):
        rng = Random(int(key))
        for record in maker.records(corpus, number, rng):
            yield rng.getrandbits(KEY_BITS), record


class ShardedRun:
    def __init__(
        self,
        parts: Sequence[CorpusPart],
        tokenizer: Tokenizer,
        settings: RecordOptions,
        *,
        resources: Resources,
        work_dir: str,
    ):
        self._parts = parts
        self._tokenizer = tokenizer
        self._settings = settings
        self._maker = RecordMaker(tokenizer, settings)
        self._resources = resources
        self._work_dir = work_dir

    def write(self) -> str:
        paths = [part.path for part in self._parts]
        inputs = InputState(paths)
        provenance = {
            "format": 2,  # of the intermediate files
            "text": fingerprint(inputs.states, self._parts),
            **self._tokenizer.identity,
            **{name: getattr(self._settings, name) for name in RECORD_FLAGS},
        }
        with work_folder(self._work_dir, provenance):
            spools = self._tokenize()
            inputs.check_unchanged()
            table, corpus = read_table(spools)
            check_corpus(corpus, paths, self._tokenizer.settings, self._settings)
            runs = self._make_runs(spools, table, count_groups(corpus.num_documents, corpus.num_ids))
            counts = RecordCounts(**summed_metadata(runs))
            merge_runs(
                runs,
                self._settings.output_files,
                num_processes=self._resources.num_processes,
                slice_bytes=self._resources.slice_bytes,
                compression=self._settings.compression,
            )
        return counts.summary(corpus, self._settings)

    def _tokenize(self) -> list[str]:
        paths = [os.path.join(self._work_dir, f"documents-{number:05}") for number in range(len(self._parts))]
        missing = [(path, part) for path, part in zip(paths, self._parts, strict=True) if not _is_there(path)]
        self._log_kept(len(paths) - len(missing), len(paths), "parts of the text were tokenized already")
        self._tokenizer.max_cached_words = self._resources.max_cached_words
        sizes = [_num_bytes(part) for _, part in missing]
        with (
            self._workers(self._tokenizer, name="tokenizes") as workers,
            Progress("reading text", sum(sizes), "bytes") as progress,
        ):
            num_bytes = 0
            for size, _ in zip(sizes, workers.map(write_documents, missing), strict=True):
                num_bytes += size
                progress.update(num_bytes)
        return paths

    def _make_runs(self, spools: list[str], table: np.ndarray, num_groups: int) -> list[str]:
        """Create the records of groups that are not on disk yet; return all sorted runs."""
        runs: list[str] = []
        kept: list[int] = []
        # The largest group of the first copy; other copies are similar.
        groups = group_numbers(self._keys(0, table), num_groups)
        largest = int(np.bincount(groups, weights=table["num_ids"]).max())

        def missing() -> Iterator[_Group]:
            for group in self._groups(table, num_groups):
                runs.append(group.path)
                if _is_there(group.path):
                    kept.append(len(group.keys))
                else:
                    yield group

        total = self._settings.dupe_factor * len(table)
        unit = f"documents ({self._settings.dupe_factor:,} passes over {len(table):,})"
        num_processes = self._resources.num_group_processes(largest)
        with (
            self._workers(self._maker, spools, name="makes records", num_processes=num_processes) as workers,
            Progress("writing records", total, unit) as progress,
        ):
            num_documents = num_records = 0
            for num_done, num_made in workers.map(_write_group, missing()):
                num_documents, num_records = num_documents + num_done, num_records + num_made
                rate = num_records / (progress.seconds or 1)
                progress.update(num_documents + sum(kept), f"{num_records:,} records", f"{rate:,.0f} records/s")
        self._log_kept(len(kept), len(runs), "groups of records already existed")
        return runs

    def _keys(self, copy: int, table: np.ndarray) -> np.ndarray:
        return document_keys(self._settings.random_seed, copy, table["file_number"], table["position"])

    def _groups(self, table: np.ndarray, num_groups: int) -> Iterator["_Group"]:
        for copy in range(self._settings.dupe_factor):
            keys = self._keys(copy, table)
            groups = group_numbers(keys, num_groups)
            order = np.argsort(groups, kind="stable")
            edges = np.searchsorted(groups[order], np.arange(num_groups + 1))
            for number in range(num_groups):
                members = order[edges[number] : edges[number + 1]]
                if len(members):
                    path = os.path.join(self._work_dir, f"records-{copy:03}-{number:05}")
                    yield _Group(path, table[members], keys[members])

    def _workers(self, *settings, name: str, num_processes: int | None = None) -> Workers:
        return Workers(num_processes or self._resources.num_processes, *settings, name=name, advice=ADVICE)

    def _log_kept(self, num_kept: int, total: int, what: str) -> None:
        if num_kept:
            logging.info("%s: %d of %d %s", self._work_dir, num_kept, total, what)


class _Group(NamedTuple):
    path: str
    rows: np.ndarray  # of the `DOCUMENT_TABLE`
    keys: np.ndarray


def _write_group(group: _Group, maker: RecordMaker, spools: list[str]) -> tuple[int, int]:
    """Write the records of a group; return the numbers of its documents and records."""
    maker.counts = RecordCounts()
    records = group_records(read_documents(spools, group.rows), group.keys.tolist(), maker)
    write_run(group.path, records, vars(maker.counts))
    return len(group.keys), maker.counts.num_records


def _is_there(path: str) -> bool:
    """Return True if an intermediate file of an earlier run is usable; warn if it is corrupt."""
    is_there = os.path.exists(path)
    if is_there and not is_intact(path):
        logging.warning("%s is damaged; rebuilding it", path)
        return False
    return is_there


def _num_bytes(part: CorpusPart) -> int:
    """Estimate the bytes of a file that belong to a part."""
    if part.file_format == "parquet":
        return 1
    return (files.size(part.path) if part.stop is None else part.stop) - part.start


@contextlib.contextmanager
def work_folder(path: str, provenance: Mapping[str, Any]) -> Iterator[None]:
    writing.make_folders(path)
    note = os.path.join(path, _MANIFEST)
    others = [name for name in os.listdir(path) if name != ".lock" and ".partial-" not in name]
    if others and not os.path.exists(note):
        raise UserError(f"work_dir={path} contains other files; choose a folder that is empty or does not exist")
    with exclusive_lock(path, "makes records in"):
        is_same = Manifest.read_if_current(note, provenance, path) is not None
        for name in os.listdir(path):
            if name != ".lock" and (not is_same or ".partial-" in name):
                writing.remove(os.path.join(path, name))
        Manifest.write(note, provenance)
        yield
        writing.remove_folder(path)
