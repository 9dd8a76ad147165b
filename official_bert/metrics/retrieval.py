"""Retrieval metrics: recall, reciprocal rank and nDCG of ranked documents.

The gain of a document is its relevance to a query: positive for relevant documents, 0 for documents without a
judgment. A query without relevant documents scores 0.0, and is left out of means, as in trec_eval.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from absl import logging

from official_bert.support.errors import UserError

_DEPTH = 10  # number of ranks for MRR and nDCG
RERANKING_METRICS = (f"mrr@{_DEPTH}", f"ndcg@{_DEPTH}")


def recall(gains: npt.ArrayLike, judged: npt.ArrayLike, depth: int) -> float:
    """Return the fraction of the relevant documents that are ranked within `depth`.

    Args:
      gains: float [R], gains of the ranked documents, best rank first.
      judged: float [J], gains of all judged documents of the query, in any order.
      depth: number of ranks.
    """
    found, relevant = (np.count_nonzero(np.asarray(each) > 0) for each in (gains[:depth], judged))
    return found / max(relevant, 1)


def reciprocal_rank(gains: npt.ArrayLike, depth: int | None = None) -> float:
    """Return 1 / rank of the first relevant document; 0.0 if none is ranked within `depth`.

    Args:
      gains: float [R], gains of the ranked documents, best rank first.
      depth: number of ranks; None for all.
    """
    ranks = np.flatnonzero(np.asarray(gains)[:depth] > 0) + 1
    return 1 / float(ranks[0]) if len(ranks) else 0.0


def ndcg(gains: npt.ArrayLike, judged: npt.ArrayLike, depth: int | None = None) -> float:
    """Return the normalized discounted cumulative gain, which is 1.0 for the ideal ranking.

    Args:
      gains: float [R], gains of the ranked documents, best rank first.
      judged: float [J], gains of all judged documents of the query, in any order.
      depth: number of ranks; None for all.
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
    """Score a model's ranking of each query's candidates.

    Args:
      queries: the query of each of N pairs of a query and a candidate.
      gains: float [N], gains of the candidates.
      scores: float [N], scores by which to rank the candidates; ties are broken in the worst order.

    Returns:
      The mean of each of `RERANKING_METRICS` over the queries with a relevant candidate.

    Raises:
      ValueError: no query has a relevant candidate.
    """
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
    """Return the fraction of triplets whose anchor is nearer to its positive than to its negative.

    Args:
      positive: float [N], similarities of the anchors to their positives.
      negative: float [N], similarities of the anchors to their negatives; ties count as not nearer.
    """
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
