"""Pretraining records as an Apache Beam pipeline: the records of `sharded`, created by the workers of a cluster.

        corpus parts -> documents -> (copy, group) of documents -> records with random keys -> sorted shards

Documents are passed as tuples of numbers and bytes, which are cheap to encode.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
import numpy as np

from official_bert.data import beam_jobs
from official_bert.data.beam_jobs import WriteShards
from official_bert.data.corpus_files import CorpusPart, CorpusReader
from official_bert.data.documents import KEY_BITS, CorpusCounts, Document, shard_of, tokenized_documents
from official_bert.data.record_files import RecordWriter
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.data import RecordCounts, RecordMaker
from official_bert.tasks.pretraining.options import RecordOptions
from official_bert.tasks.pretraining.sharded import count_groups, document_keys, group_numbers, group_records
from official_bert.tokenization import Tokenizer

# A document: file number, position, and the bytes of its sentence lengths and ids; see `Document`.
_Packed = tuple[int, int, bytes, bytes]
_ID_BYTES = 4


class MakeRecords(beam.PTransform):
    """Root transform that creates and writes the records of a corpus; yields the shard paths."""

    def __init__(
        self, parts: Sequence[CorpusPart], tokenizer: Tokenizer, settings: RecordOptions, outputs: Sequence[str]
    ):
        super().__init__()
        self._parts, self._tokenizer, self._settings = list(parts), tokenizer, settings
        self._outputs = list(outputs)

    def expand(self, pipeline):
        documents = (
            pipeline
            | "list the parts" >> beam.Create([tuple(part) for part in self._parts], reshuffle=False)
            | "spread the parts" >> beam.Reshuffle()
            | "tokenize" >> beam.ParDo(_Tokenize(self._tokenizer))
        )
        paths = list(dict.fromkeys(part.path for part in self._parts))
        num_groups = (
            documents
            | "measure" >> beam.Map(_size)
            | "add up" >> beam.CombineGlobally(beam.combiners.TupleCombineFn(sum, sum))
            | "count the groups" >> beam.Map(_num_groups, paths)
        )
        write = functools.partial(write_records, compression=self._settings.compression)
        return (
            documents
            | "choose the groups" >> beam.FlatMap(_with_groups, self._settings, beam.pvalue.AsSingleton(num_groups))
            | "gather the groups" >> beam.GroupByKey()
            | "make records" >> beam.ParDo(_MakeGroup(RecordMaker(self._tokenizer, self._settings), len(self._outputs)))
            | "write" >> WriteShards(self._outputs, write)
        )


class _Tokenize(beam.DoFn):
    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer

    def process(self, part: tuple) -> Iterator[_Packed]:
        counts = CorpusCounts()
        part = CorpusPart(*part)
        for document in tokenized_documents(CorpusReader(part), self._tokenizer, counts, part.file_number):
            lengths, ids = document.sentence_lengths.tobytes(), document.ids.tobytes()
            yield document.file_number, document.position, lengths, ids
        _count(counts)


def _count(counts: CorpusCounts | RecordCounts) -> None:
    for name, count in vars(counts).items():
        beam_jobs.counter(name).inc(count)


def _size(document: _Packed) -> tuple[int, int]:
    return 1, len(document[3]) // _ID_BYTES


def _num_groups(sizes: tuple[int, int], paths: Sequence[str]) -> int:
    num_documents, num_ids = sizes
    if not num_documents:
        raise UserError(f"no text in {', '.join(paths)}")
    return count_groups(num_documents, num_ids)


def _with_groups(
    document: _Packed, settings: RecordOptions, num_groups: int
) -> Iterator[tuple[tuple[int, int], tuple[bytes, _Packed]]]:
    """Yield, for each copy, its number and the document's group in it, with the document and its key."""
    file_number, position = np.array([document[0]]), np.array([document[1]])
    for copy in range(settings.dupe_factor):
        keys = document_keys(settings.random_seed, copy, file_number, position)
        yield (copy, int(group_numbers(keys, num_groups)[0])), (_as_bytes(int(keys[0])), document)


def _as_bytes(key: int) -> bytes:
    """Convert a key to bytes with the same order; Beam encodes integers above 63 bits slowly."""
    return key.to_bytes(KEY_BITS // 8, "big")


class _MakeGroup(beam.DoFn):
    def __init__(self, maker: RecordMaker, num_shards: int):
        self._maker, self._num_shards = maker, num_shards

    def process(
        self, group: tuple[tuple[int, int], Iterable[tuple[bytes, _Packed]]]
    ) -> Iterator[tuple[int, list[tuple[bytes, bytes]]]]:
        members = sorted(group[1], key=lambda member: member[1][:2])
        keys = [int.from_bytes(key, "big") for key, _ in members]
        documents = (
            Document(file_number, position, np.frombuffer(lengths, np.int32), np.frombuffer(ids, np.int32))
            for _, (file_number, position, lengths, ids) in members
        )
        self._maker.counts = RecordCounts()
        shards: dict[int, list[tuple[bytes, bytes]]] = {}
        for key, record in group_records(documents, keys, self._maker):
            shards.setdefault(shard_of(key, self._num_shards), []).append((_as_bytes(key), record))
        _count(self._maker.counts)
        yield from shards.items()


def write_records(path: str, records: Iterable[bytes], compression: str) -> None:
    is_empty = True
    with RecordWriter([path], compression) as writer:
        for record in records:
            writer.write(record)
            is_empty = False
        if is_empty:
            raise UserError(f"{path} would have no records; write fewer files or use more text")
