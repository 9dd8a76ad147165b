"""Mining of training examples by vector similarity: hard negatives and paraphrases."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.data.text_inputs import TextOrPair
from official_bert.inference.sentence_index import SentenceSearch, sentence_vectors
from official_bert.metrics.similarity import normalized

_QUERIES_AT_A_TIME = 256
# Rows per block; comparing two blocks takes 16 MB of products and at most 80 MB of pairs.
_BLOCK_ROWS = 1 << 11
# Upper bound of the float32 rounding error of the dot product of two unit vectors.
_FLOAT32_ERROR = 1e-5


class AnchoredPair(NamedTuple):
    """A query and a passage that answers it, or two texts with the same meaning."""

    anchor: str
    positive: str


class NegativeRule(NamedTuple):
    """Rules for selecting negatives.

    Attributes:
      num_negatives: number of negatives per pair.
      range_min: number of nearest passages to skip.
      range_max: number of nearest passages to consider, including skipped ones.
      margin: minimum by which the positive is more similar to the anchor than a negative; None for no minimum.
    """

    num_negatives: int = 1
    range_min: int = 0
    range_max: int = 100
    margin: float | None = None


def hard_negatives(
    pairs: Sequence[AnchoredPair],
    search: SentenceSearch,
    rule: NegativeRule,
    *,
    query_prefix: str = "",
    passage_prefix: str = "",
) -> Iterator[list[str]]:
    """Find for each pair the passages nearest to its anchor that are not known answers.

    The anchor itself and all its positives are excluded, as are passages that differ from these only in case and
    whitespace.

    Args:
      pairs: the pairs; an anchor may have several.
      search: the passages with their prefix, including the positives.
      rule: the selection rules.
      query_prefix: prefix of each anchor for its vector.
      passage_prefix: prefix of the passages, which is removed from negatives.

    Yields:
      The negatives of each pair, nearest first; fewer than `num_negatives` if there are not enough.
    """
    passages = [text.text_a.removeprefix(passage_prefix) for text in search.lines]
    row_of = {passage: row for row, passage in enumerate(passages)}
    known: dict[str, set[str]] = defaultdict(set)  # texts that are not negatives of an anchor
    for anchor, positive in pairs:
        known[anchor] |= {_key(anchor), _key(positive)}
    rows_of: dict[str, list[int]] = {key: [] for keys in known.values() for key in keys}
    for row, passage in enumerate(passages):
        rows_of.get(_key(passage), []).append(row)

    for start in range(0, len(pairs), _QUERIES_AT_A_TIME):
        some = pairs[start : start + _QUERIES_AT_A_TIME]
        queries = (TextOrPair(query_prefix + pair.anchor) for pair in some)
        vectors = np.stack(list(sentence_vectors(queries, search.encoder)))
        left_out = [{row for key in known[pair.anchor] for row in rows_of[key]} for pair in some]
        found = search.nearest_rows(vectors, rule.range_max + max(map(len, left_out)))
        for pair, vector, without, rows, cosines in zip(some, vectors, left_out, *found, strict=True):
            limit = np.inf
            if rule.margin is not None:
                of_positive = search.vectors[row_of[pair.positive]]
                limit = float((normalized(of_positive) * normalized(vector)).sum()) - rule.margin
            others = [(row, cosine) for row, cosine in zip(rows, cosines, strict=True) if row not in without]
            allowed = [row for row, cosine in others[rule.range_min : rule.range_max] if cosine <= limit]
            yield [passages[row] for row in allowed[: rule.num_negatives]]


class SimilarPairs(NamedTuple):
    """Pairs of rows, most similar first.

    Attributes:
      first: int64 [P], the smaller row of each pair.
      second: int64 [P], the larger row.
      cosines: float64 [P].
      are_all: False if more pairs were similar enough.
    """

    first: np.ndarray
    second: np.ndarray
    cosines: np.ndarray
    are_all: bool


def similar_pairs(
    vectors: np.ndarray, min_cosine: float, max_pairs: int, report: Callable[[int], None] = lambda number: None
) -> SimilarPairs:
    """Find the most similar pairs among all vectors, block by block.

    Args:
      vectors: float32 [N, D], of length 1 up to rounding; may be memory-mapped.
      min_cosine: minimum cosine similarity.
      max_pairs: maximum number of pairs, the most similar ones.
      report: called with the number of vectors that have been compared with all others.

    Returns:
      The pairs; ties are in row order.
    """
    rows, products = np.zeros((2, 0), np.int64), np.zeros(0, np.float32)
    limit, are_all = min_cosine - _FLOAT32_ERROR, True
    for start in range(0, len(vectors), _BLOCK_ROWS):
        block = vectors[start : start + _BLOCK_ROWS]
        for other in range(start, len(vectors), _BLOCK_ROWS):
            compared = block @ vectors[other : other + _BLOCK_ROWS].T
            if other == start:  # count each pair once and no vector with itself
                compared[np.tril_indices(len(compared))] = -np.inf
            new = np.stack(np.nonzero(compared >= limit))
            products = np.concatenate([products, compared[tuple(new)]])
            rows = np.concatenate([rows, new + np.array([[start], [other]])], axis=1)
            if len(products) > 2 * max_pairs:
                best = np.argpartition(-products, max_pairs)[:max_pairs]
                rows, products, are_all = rows[:, best], products[best], False
                limit = float(products.min())
        report(min(start + _BLOCK_ROWS, len(vectors)))
    cosines = np.concatenate(
        [np.zeros(0)]
        + [
            (normalized(vectors[first]) * normalized(vectors[second])).sum(axis=1)
            for first, second in (rows[:, at : at + _BLOCK_ROWS] for at in range(0, rows.shape[1], _BLOCK_ROWS))
        ]
    )
    best = np.lexsort((rows[1], rows[0], -cosines))
    best = best[cosines[best] >= min_cosine]
    are_all &= len(best) <= max_pairs
    return SimilarPairs(*rows[:, best[:max_pairs]], cosines[best[:max_pairs]], are_all)


def _key(text: str) -> str:
    """Return a key that is equal for texts that differ only in case and whitespace."""
    return " ".join(text.casefold().split())
