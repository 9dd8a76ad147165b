"""Retrieval metrics: recall, reciprocal rank and nDCG of ranked documents.

The gain of a document is its relevance to a query: positive for relevant documents, 0 for documents without a
judgment. `gains` are those of a query's ranked documents, best rank first; `judged` those of all its judged documents,
in any order. A query without relevant documents scores 0.0, and is left out of means, as in trec_eval.
"""

import dataclasses
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from absl import logging

from official_bert.support.errors import UserError

_BLOCK_NUMBERS = 6 << 20  # components of the rows that are compared together: 25 MB in float32
_UNIT_ERROR = 1e-6  # of the length of a unit vector in float32
# Upper bound of the float32 rounding error of the dot product of two unit vectors, relative to a larger product.
_FLOAT32_ERROR = 1e-5
_DEPTH = 10  # number of ranks for MRR and nDCG
RERANKING_METRICS = (f"mrr@{_DEPTH}", f"ndcg@{_DEPTH}")


BM25_K1, BM25_B = 1.2, 0.75  # the usual constants


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


@dataclasses.dataclass(frozen=True)
class SparseRows:
    """Vectors, float32 [N, D], most of whose components are 0, in compressed rows; indexing returns dense ones."""

    values: np.ndarray  # float32 [M], the others, row by row
    columns: np.ndarray  # int32 [M], their places in the row
    row_splits: np.ndarray  # int64 [N + 1], number of values before each row, and in total
    width: int  # D

    @classmethod
    def from_rows(cls, rows: Iterable[np.ndarray], width: int) -> "SparseRows":
        """Compress rows, float32 [..., D] each, one at a time."""
        columns, values, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.float32)], [0]
        for row in rows:
            places = np.nonzero(np.atleast_2d(row))
            columns.append(places[1].astype(np.int32))
            values.append(np.atleast_2d(row)[places])
            lengths.extend(np.bincount(places[0], minlength=row.size // width).tolist())
        return cls(np.concatenate(values), np.concatenate(columns), np.cumsum(lengths), width)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.width

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    @classmethod
    def joined(cls, parts: Sequence["SparseRows"]) -> "SparseRows":
        values, columns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "columns"))
        lengths = np.concatenate([np.diff(part.row_splits) for part in parts])
        return cls(values, columns, np.concatenate([[0], np.cumsum(lengths)]), parts[0].width)

    def take(self, rows: npt.ArrayLike, axis: int = 0) -> "SparseRows":
        """Return rows, int [N], in compressed form, as `numpy.ndarray.take` does; `axis` is 0."""
        starts, lengths = self.row_splits[:-1].take(rows), np.diff(self.row_splits).take(rows)
        row_splits = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(row_splits[-1]) + np.repeat(starts - row_splits[:-1], lengths)
        return SparseRows(self.values[places], self.columns[places], row_splits, self.width)

    def __getitem__(self, rows: int | slice | np.ndarray) -> np.ndarray:
        """Return rows, float32 [..., D]."""
        chosen = np.arange(len(self))[rows]
        some = self.take(chosen.ravel())
        dense = np.zeros((len(some), self.width), np.float32)
        dense[np.repeat(np.arange(len(some)), np.diff(some.row_splits)), some.columns] = some.values
        return dense.reshape(*chosen.shape, self.width)


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors, float [..., D], to length 1."""
    vectors = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


def exact(vectors: np.ndarray) -> np.ndarray:
    """Return vectors, float [..., D], in float64, with those of length 1 normalized again, as float32 rounds them."""
    vectors = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(np.abs(lengths - 1) < _UNIT_ERROR, lengths, 1.0)


def nearest(
    vectors: np.ndarray | SparseRows, queries: np.ndarray | SparseRows, top_k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Find the vectors with the largest dot product with each query: the cosine similarity of unit vectors.

    Blocks of vectors, float32 [N, D], N > 0, which may be memory-mapped, are multiplied with all queries, float32 [Q,
    D]. The best candidates are then compared again in float64, so that equal vectors have equal similarities at any
    position and nearly equal vectors differ.

    For each query, the result has the nearest rows, int64 [Q, K], best first and ties in row order, and their
    similarities, float64 [Q, K]. K is the smaller of `top_k` and N.
    """
    block_rows = max(_BLOCK_NUMBERS // vectors.shape[1], 1)
    if isinstance(queries, SparseRows):
        blocks = (queries[start : start + block_rows] for start in range(0, len(queries), block_rows))
        rows, cosines = zip(*(nearest(vectors, block, top_k) for block in blocks), strict=True)
        return np.concatenate(rows), np.concatenate(cosines)
    rows = [np.zeros(0, np.int64)] * len(queries)
    cosines = [np.zeros(0)] * len(queries)
    for start in range(0, len(vectors), block_rows):
        block = vectors[start : start + block_rows]
        products = (block @ queries.T).T  # [Q, rows of the block]; several times faster than queries @ block.T
        for number, query in enumerate(exact(queries)):
            candidates = _above(products[number], cosines[number], top_k)
            similarities = (exact(block[candidates]) * query).sum(axis=1)
            cosines[number] = np.concatenate([cosines[number], similarities])
            rows[number] = np.concatenate([rows[number], start + candidates])
            # Stable: ties keep row order.
            best = np.argsort(-cosines[number], kind="stable")[:top_k]
            cosines[number], rows[number] = cosines[number][best], rows[number][best]
    return np.stack(rows), np.stack(cosines)


def _above(products: np.ndarray, best_so_far: np.ndarray, top_k: int) -> np.ndarray:
    """Return the rows of a block that may be among the best, given the rounding error, in row order."""
    limit = best_so_far[-1] if len(best_so_far) == top_k else -np.inf
    if len(products) > top_k:
        limit = max(limit, np.partition(products, -top_k)[-top_k])
    return np.flatnonzero(products >= limit - _FLOAT32_ERROR * max(1.0, abs(limit)))


def recall(gains: npt.ArrayLike, judged: npt.ArrayLike, depth: int) -> float:
    """Return the fraction of the relevant documents that are ranked within `depth`."""
    found, relevant = (np.count_nonzero(np.asarray(each) > 0) for each in (gains[:depth], judged))
    return found / max(relevant, 1)


def reciprocal_rank(gains: npt.ArrayLike, depth: int | None = None) -> float:
    """Return 1 / rank of the first relevant document; 0.0 if none is ranked within `depth`."""
    ranks = np.flatnonzero(np.asarray(gains)[:depth] > 0) + 1
    return 1 / float(ranks[0]) if len(ranks) else 0.0


def ndcg(gains: npt.ArrayLike, judged: npt.ArrayLike, depth: int | None = None) -> float:
    """Return the normalized discounted cumulative gain, which is 1.0 for the ideal ranking.

    Source: Järvelin and Kekäläinen 2002, with linear gains, as in trec_eval and BEIR.
    """
    best = _discounted(np.sort(np.asarray(judged, np.float64))[::-1], depth)
    return _discounted(np.asarray(gains, np.float64), depth) / best if best else 0.0


def retrieval_scores(
    ranked: Mapping[Hashable, Sequence[Hashable]],
    qrels: Mapping[Hashable, Mapping[Hashable, float]],
    recall_at: Sequence[int] = (1, _DEPTH),
) -> dict[str, float]:
    """Score the rankings of many queries.

    Args:
      ranked: the retrieved documents of each query, best first; a query that is absent retrieved none.
      qrels: the gains of the judged documents of each query.
      recall_at: depths at which to compute recall.

    Returns:
      The means over the queries of `qrels` with a relevant document: "recall@1", "recall@10", "mrr@10", "ndcg@10".

    Raises:
      ValueError: a document is ranked twice, or no query has a relevant document.
    """
    depth = max(*recall_at, _DEPTH)
    rows = []
    for query, judgments in qrels.items():
        documents = ranked.get(query, ())[:depth]
        if len(set(documents)) < len(documents):
            raise ValueError(f"query {query!r}: a document is ranked twice")
        gains, judged = [judgments.get(document, 0) for document in documents], list(judgments.values())
        recalls = [recall(gains, judged, k) for k in recall_at]
        if max(judged, default=0) > 0:
            rows.append([*recalls, reciprocal_rank(gains, _DEPTH), ndcg(gains, judged, _DEPTH)])
    return _means([*(f"recall@{k}" for k in recall_at), *RERANKING_METRICS], rows)


def reranking_scores(queries: Sequence[Hashable], gains: npt.ArrayLike, scores: npt.ArrayLike) -> dict[str, float]:
    """Score the ranking of candidates with gains, float [N], by scores, float [N]; ties are in the worst order."""
    numbers: dict[Hashable, int] = {}
    groups = np.array([numbers.setdefault(query, len(numbers)) for query in queries], np.int64)
    gains = np.asarray(gains, np.float64)
    best_first = np.lexsort((gains, -np.asarray(scores, np.float64), groups))
    ranked = np.split(gains[best_first], np.cumsum(np.bincount(groups))[:-1]) if numbers else []
    rows = [(reciprocal_rank(each, _DEPTH), ndcg(each, each, _DEPTH)) for each in ranked if each.max() > 0]
    return _means(RERANKING_METRICS, rows)


def check_relevant(judged: Mapping[Hashable, Iterable[float]], where: str) -> None:
    """Warn if queries have no relevant document among the gains of their judged ones; raise a UserError if all do."""
    num_without = sum(max(gains, default=0) <= 0 for gains in judged.values())
    if num_without == len(judged):
        raise UserError(f"{where}: none of the {num_without:,} queries has a relevant text, one with a score above 0")
    if num_without:
        logging.warning(
            "%s: %d of %d queries have no relevant text; metrics leave them out", where, num_without, len(judged)
        )


def triplet_accuracy(positive: npt.ArrayLike, negative: npt.ArrayLike) -> float:
    """Return the fraction of anchors that are more similar to their positive than to their negative, both float [N]."""
    positive, negative = np.asarray(positive), np.asarray(negative)
    if positive.shape != negative.shape:
        raise ValueError(f"positive has shape {positive.shape}, but negative has shape {negative.shape}")
    return float(np.count_nonzero(positive > negative) / max(len(positive), 1))


def _means(names: Sequence[str], rows: Sequence[Sequence[float]]) -> dict[str, float]:
    if not rows:
        raise ValueError("no query has a relevant document")
    return dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True))


def _discounted(gains: np.ndarray, depth: int | None) -> float:
    gains = np.maximum(gains[:depth], 0)
    return float(gains @ (1 / np.log2(np.arange(len(gains)) + 2)))
