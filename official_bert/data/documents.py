"""Tokenized documents on disk, for corpora larger than memory: written sequentially, read in any order."""

import itertools
import operator
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from official_bert.data.block_files import BlockFile, block_writer
from official_bert.data.corpus_files import CorpusPart, CorpusReader
from official_bert.support.processes import Workers, available_cores
from official_bert.tokenization import Tokenizer

_TEXTS_WORTH_A_PROCESS = 30_000  # one process handles these in a second or two
_EXAMPLES_IN_A_BATCH = 500


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
        metadata = [_metadata(path) for path in paths]
        self.num_unknown = sum(part["num_unknown"] for part in metadata)  # number of wordpieces that are [UNK]
        self.table = DocumentTable.empty(sum(part["num_documents"] for part in metadata))  # all documents, in order
        start = 0
        for number, path in enumerate(paths):
            with BlockFile(path) as file:
                columns = file.read("documents").reshape(-1, 5).T
            rows = self.table.rows(slice(start, start + columns.shape[1]))
            rows.spool[:] = number
            for column, values in zip(rows[1:], columns, strict=True):
                column[:] = values
            start += columns.shape[1]


def _metadata(path: str) -> dict[str, int]:
    with BlockFile(path) as file:
        return file.metadata


def read_documents(paths: list[str], rows: DocumentTable) -> Iterator[Document]:
    columns = (column.tolist() for column in rows)
    places = zip(*columns, strict=True)
    for spool, documents in itertools.groupby(places, key=operator.itemgetter(0)):
        with BlockFile(paths[spool]) as file:
            for _, file_number, position, offset, num_sentences, num_ids in documents:
                numbers = file.read("numbers", offset, offset + num_sentences + num_ids)
                yield Document(file_number, position, numbers[:num_sentences], numbers[num_sentences:])


class EncodedBatch(NamedTuple):
    """Records of some examples, and counts of their texts."""

    records: list[bytes]
    counts: Mapping[str, int]


def encode_examples(
    examples: Sequence[Any],
    encode: Callable[..., EncodedBatch],
    *settings: Any,
    num_texts: int,
    counts: Counter,
    num_processes: int = 0,
) -> Iterator[bytes]:
    num_used = max(1, min(num_processes or available_cores(), num_texts // _TEXTS_WORTH_A_PROCESS))
    starts = range(0, len(examples), _EXAMPLES_IN_A_BATCH)
    batches = (examples[start : start + _EXAMPLES_IN_A_BATCH] for start in starts)
    with Workers(num_used, *settings, name="tokenizes texts") as workers:
        for batch in workers.map(encode, batches):
            yield from batch.records
            counts.update(batch.counts)
