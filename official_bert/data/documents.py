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
    """A tokenized document of N sentences.

    Attributes:
      file_number: index of its file in the corpus.
      position: its start in the file; see `CorpusReader`. The two form its id, however the corpus is divided.
      sentence_lengths: int32 [N], wordpieces per sentence, at least one.
      ids: int32, wordpieces of all sentences.
    """

    file_number: int
    position: int
    sentence_lengths: np.ndarray
    ids: np.ndarray


class DocumentTable(NamedTuple):
    """Locations and lengths of D documents; each attribute is an array [D].

    Attributes:
      spool: int32, index of the file that contains the document.
      file_number: int32, as in `Document`.
      position: int64, as in `Document`.
      offset: int64, start of its numbers in the spool.
      num_sentences: int32, number of sentences.
      num_ids: int32, number of wordpieces.
    """

    spool: np.ndarray
    file_number: np.ndarray
    position: np.ndarray
    offset: np.ndarray
    num_sentences: np.ndarray
    num_ids: np.ndarray

    @classmethod
    def empty(cls, num_documents: int) -> "DocumentTable":
        """Return an uninitialized table."""
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

    Args:
      lines: see `CorpusReader`.
      tokenizer: converts lines to ids.
      file_number: as in `Document`.
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
    """Files written by `write_documents` for all parts of a corpus.

    Attributes:
      paths: the files, in part order.
      table: all documents, in order.
      num_unknown: number of wordpieces that are [UNK].
    """

    def __init__(self, paths: list[str]):
        """Read the tables; needs 32 bytes of memory per document.

        Raises:
          UserError: a file is corrupt.
        """
        self.paths = paths
        metadata = [_metadata(path) for path in paths]
        self.num_unknown = sum(part["num_unknown"] for part in metadata)
        self.table = DocumentTable.empty(sum(part["num_documents"] for part in metadata))
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
    """Read documents.

    Args:
      paths: the spools; see `DocumentSpools.paths`.
      rows: the documents, grouped by spool.
    """
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
    """Encode examples.

    Args:
      examples: the examples.
      encode: a function of a module, called with a slice of the examples and the settings.
      *settings: further arguments of `encode`.
      num_texts: number of texts of all examples.
      counts: the counts of all batches are added to it.
      num_processes: maximum number of processes, 0 for one per processor core; few texts use one.

    Yields:
      The records, in the order of the examples.
    """
    num_used = max(1, min(num_processes or available_cores(), num_texts // _TEXTS_WORTH_A_PROCESS))
    starts = range(0, len(examples), _EXAMPLES_IN_A_BATCH)
    batches = (examples[start : start + _EXAMPLES_IN_A_BATCH] for start in starts)
    with Workers(num_used, *settings, name="tokenizes texts") as workers:
        for batch in workers.map(encode, batches):
            yield from batch.records
            counts.update(batch.counts)
