"""`read_beir`: a reader for retrieval collections in the layout of the BEIR benchmark.

A collection is a folder with `corpus.jsonl` (`_id`, `text` and optionally `title` on each line), `queries.jsonl`
(`_id`, `text`) and `qrels/<split>.tsv`, the relevance judgments with the columns `query-id`, `corpus-id` and `score`.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from official_bert.data.tables import Columns, Row, column_number, parse_score, read_jsonl, read_tsv
from official_bert.metrics.retrieval import check_relevant
from official_bert.support import files
from official_bert.support.errors import UserError, format_names

_COLUMNS = ("query-id", "corpus-id", "score")
BM25 = "bm25"  # name of the pooling


class Passage(NamedTuple):
    id: str  # the id that the judgments use
    text: str  # the title, if there is one, followed by the text


class BeirCorpus:
    """A corpus that is read and checked anew in each iteration, without keeping it in memory."""

    def __init__(self, path: str, judged: Mapping[str, str]):
        """Judged documents, by id, may occur only once; their values are the places of their first judgments."""
        self._path, self._judged = path, judged

    def __iter__(self) -> Iterator[Passage]:
        missing = dict(self._judged)
        for row, passage in _texts(self._path):
            if passage.id in self._judged and missing.pop(passage.id, None) is None:
                raise UserError(f"{row.where}: an earlier document also has the _id {passage.id!r}; remove one of them")
            yield passage
        if missing:
            document, where = next(iter(missing.items()))
            logging.warning(
                "%s has no document with the _id %r (%s), and lacks %d of %d judged documents; they count as not found",
                self._path,
                document,
                where,
                len(missing),
                len(self._judged),
            )


def read_beir(folder: str, split: str) -> tuple[dict[str, str], BeirCorpus, dict[str, dict[str, float]]]:
    """Return the texts of the judged queries, the documents, and for each query the scores of its judged documents."""
    qrels_path = os.path.join(folder, "qrels", f"{split}.tsv")
    if not files.exists(qrels_path):
        raise UserError(f"{qrels_path} does not exist; the BEIR layout keeps the judgments of split {split!r} there")
    texts: dict[str, str] = {}
    queries_path = os.path.join(folder, "queries.jsonl")
    for row, query in _texts(queries_path):
        if texts.setdefault(query.id, query.text) != query.text:
            raise UserError(f"{row.where}: an earlier query also has the _id {query.id!r}; remove one of them")
    qrels: dict[str, dict[str, float]] = {}
    judged: dict[str, str] = {}
    for row, query, document, score in _judgments(qrels_path):
        if query not in texts:
            raise UserError(f"{row.where}: {queries_path} has no query with the _id {query!r}")
        if qrels.setdefault(query, {}).setdefault(document, score) != score:
            raise UserError(f"{row.where}: query {query!r} and document {document!r} have a different score above")
        judged.setdefault(document, row.where)
    if not qrels:
        raise UserError(f"{qrels_path} has no judgments")
    check_relevant({query: judgments.values() for query, judgments in qrels.items()}, qrels_path)
    return {query: texts[query] for query in qrels}, BeirCorpus(os.path.join(folder, "corpus.jsonl"), judged), qrels


def _texts(path: str) -> Iterator[tuple[Row, Passage]]:
    for row in read_jsonl(path, Columns(("_id", "text"))):
        if row.mistake:
            raise UserError(f"{row.where}: {row.mistake}")
        if row.cells:
            text = f"{row.cells.get('title') or ''} {row.cells['text']}"
            yield row, Passage(row.cells["_id"], text.strip())


def _judgments(path: str) -> Iterator[tuple[Row, str, str, float]]:
    rows = read_tsv(path)
    header = next(rows, None)
    if header is None:
        raise UserError(f"{path} is empty; its first line must name the columns: {format_names(_COLUMNS)}")
    columns = [column_number(name, header.where, header.cells) for name in _COLUMNS]
    for row in rows:
        if not row.cells:
            continue
        if len(row.cells) != len(header.cells):
            raise UserError(f"{row.where}: found {len(row.cells)} columns; the header has {len(header.cells)}")
        query, document, score = (row.cells[column] for column in columns)
        yield row, query, document, parse_score(score, row.where)


class Bm25Weights(NamedTuple):
    """The weight of each wordpiece of a sentence.

    With N sentences of `average_length` wordpieces on average, n of which contain the wordpiece w, a sentence of
    `length` wordpieces that contains w `count` times has the BM25 weight

        idf(w) * count * (k1 + 1) / (count + k1 * (1 - b + b * length / average_length))
        idf(w) = ln(1 + (N - n + 0.5) / (n + 0.5))

    for w, where k1 = 1.2 and b = 0.75. It is divided equally among the `count` occurrences of w, so the weight of a
    repeated word grows, but less than in proportion to its count. The 1 in the logarithm keeps the weights of frequent
    wordpieces positive. [CLS] and [SEP] are not counted and have weight 0.

    Source: S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
    """

    idf: np.ndarray  # float32 [V]
    average_length: float  # average number of wordpieces per sentence, at least 1

    @classmethod
    def fit(cls, sentences: Iterable[Sequence[int]], vocab_size: int) -> "Bm25Weights":
        """Count the wordpieces of sentences, given without [CLS] and [SEP]."""
        num_sentences = total_length = 0
        num_with: Counter[int] = Counter()
        for input_ids in sentences:
            num_sentences += 1
            total_length += len(input_ids)
            num_with.update(set(input_ids))
        counts = np.zeros(vocab_size)
        counts[list(num_with.keys())] = list(num_with.values())
        idf = np.log(1 + (num_sentences - counts + 0.5) / (counts + 0.5))
        return cls(idf.astype(np.float32), max(1.0, total_length / max(1, num_sentences)))
