"""Searches by vectors: hard negatives to train with, a word's occurrences, the best layer."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.config.poolings import CONCAT_LAST_FOUR
from official_bert.data.tables import parse_score, read_tsv
from official_bert.data.text_inputs import TextOrPair
from official_bert.inference.sentence_index import SentenceSearch, sentence_vectors, sentence_weights
from official_bert.inference.text_encoder import TextEncoder
from official_bert.metrics.classification import pearson, spearman
from official_bert.metrics.retrieval import exact, normalized
from official_bert.modeling.pooling import EMBEDDINGS
from official_bert.support.errors import UserError

_QUERIES_AT_A_TIME = 256


class AnchoredPair(NamedTuple):
    """A query and a passage that answers it, or two texts with the same meaning."""

    anchor: str
    positive: str


class NegativeRule(NamedTuple):
    num_negatives: int = 1  # number of negatives per pair
    range_min: int = 0  # number of nearest passages to skip
    range_max: int = 100  # number of nearest passages to consider, including skipped ones
    # minimum by which the positive is more similar to the anchor than a negative; None for no minimum
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
        vectors = np.stack(list(sentence_vectors(queries, search.encoder, is_query=True)))
        left_out = [{row for key in known[pair.anchor] for row in rows_of[key]} for pair in some]
        found = search.nearest_rows(vectors, rule.range_max + max(map(len, left_out)))
        for pair, vector, without, rows, cosines in zip(some, vectors, left_out, *found, strict=True):
            limit = np.inf
            if rule.margin is not None:
                of_positive = search.vectors[row_of[pair.positive]]
                limit = float((exact(of_positive) * exact(vector)).sum()) - rule.margin
            others = [(row, cosine) for row, cosine in zip(rows, cosines, strict=True) if row not in without]
            allowed = [row for row, cosine in others[rule.range_min : rule.range_max] if cosine <= limit]
            yield [passages[row] for row in allowed[: rule.num_negatives]]


def _key(text: str) -> str:
    """Return a key that is equal for texts that differ only in case and whitespace."""
    return " ".join(text.casefold().split())


class ScoredPair(NamedTuple):
    score: float  # higher for more similar sentences
    texts: tuple[TextOrPair, TextOrPair]  # the two sentences


_COLUMNS = ("score", "sentence1", "sentence2")


def read_scored_pairs(path: str) -> list[ScoredPair]:
    """Read tab-separated lines of a score and two sentences; blank lines are skipped.

    If the first line has `_COLUMNS`, as in the STS benchmark of GLUE, it names the columns, and others are not read.
    """
    pairs, num_columns, places = [], len(_COLUMNS), range(len(_COLUMNS))
    for row in read_tsv(path):
        if not "".join(row.cells).strip():
            continue
        if row.number == 0 and set(_COLUMNS) <= set(row.cells):
            num_columns, places = len(row.cells), [row.cells.index(name) for name in _COLUMNS]
            continue
        if len(row.cells) != num_columns:
            expected = "a score and two sentences" if num_columns == len(_COLUMNS) else f"{num_columns}, as line 1"
            raise UserError(f"{row.where}: {len(row.cells)} columns; give {expected}, separated by tabs")
        score, *texts = (row.cells[place] for place in places)
        hint = f"; a header has the names {', '.join(_COLUMNS)}" if row.number == 0 else ""
        pairs.append(ScoredPair(parse_score(score, row.where, hint), tuple(TextOrPair(text.strip()) for text in texts)))
    if len({pair.score for pair in pairs}) < 2:
        raise UserError(f"{path}: all {len(pairs)} pairs have the same score, so the correlation is undefined")
    return pairs


class LayerScore(NamedTuple):
    """Correlations of the cosine similarities of one layer, or several, and pooling."""

    # the layer, from 0; "embeddings", the input of the first; layers whose vectors are averaged, as in "-1,-2";
    # or "concat_last_four"
    layer: int | str
    pooling: str  # see `VectorSettings`
    spearman: float  # Spearman's correlation
    pearson: float  # Pearson's correlation

    @property
    def is_flag(self) -> bool:
        """True if the layer is a value of the flag `layers`."""
        return self.layer not in (EMBEDDINGS, CONCAT_LAST_FOUR)


def compare_layers(
    pairs: Sequence[ScoredPair], encoder: TextEncoder, poolings: Sequence[str], report: Callable[[int], None]
) -> tuple[list[LayerScore], int]:
    """Compare the vectors of all layers and combinations of layers with each of some poolings."""
    num_layers = encoder.encoder.config.num_layers
    layers = [EMBEDDINGS, *range(num_layers)]
    weights = sentence_weights((text for pair in pairs for text in pair.texts), encoder)
    settings = encoder.settings._replace(layers=layers, pooling=poolings)
    encoder = encoder.with_settings(settings, bm25=weights)
    sums = {",".join(map(str, range(num_layers))): num_layers}
    if num_layers > 4:
        sums = {"-1,-2,-3,-4": 4, **sums}
    has_four = num_layers >= 4

    def kinds(vectors: np.ndarray) -> list[np.ndarray]:
        """Return the vectors of each layer and combination, float32 [P, D] each, or [P, 4 * D]."""
        by_layer = vectors.reshape(len(poolings), len(layers), -1)  # [P, L + 1, D]
        summed = [by_layer[:, -count:].sum(axis=1) for count in sums.values()]
        joined = [by_layer[:, -4:].reshape(len(poolings), -1)] if has_four else []
        return [*by_layer.swapaxes(0, 1), *summed, *joined]

    names = itertools.product([*layers, *sums, *([CONCAT_LAST_FOUR] if has_four else [])], poolings)
    table = zip(names, correlations(pairs, encoder, report, kinds), strict=True)
    # [CLS] has the same embedding in each text.
    scores = [LayerScore(*name, *scores) for name, scores in table if name != (EMBEDDINGS, "cls")]
    return scores, encoder.num_long


def correlations(
    pairs: Sequence[ScoredPair],
    encoder: TextEncoder,
    report: Callable[[int], None],
    kinds: Callable[[np.ndarray], Sequence[np.ndarray]] = lambda vectors: [vectors],
) -> list[tuple[float, float]]:
    """Correlate the cosine similarities of pairs with their scores, for each kind of vector.

    Args:
      kinds: converts them, float [K, D], to arrays with a vector per row; by default, the vectors are used as they are.
    """
    cosines = []
    features = encoder.features(text for pair in pairs for text in pair.texts)
    for number, texts in enumerate(zip(features, features, strict=True), start=1):
        of_pair = zip(*(map(normalized, kinds(text.vectors)) for text in texts), strict=True)
        cosines.append(np.concatenate([(first * second).sum(axis=1) for first, second in of_pair]))
        report(number)
    scores = [pair.score for pair in pairs]
    return [(spearman(scores, column), pearson(scores, column)) for column in np.stack(cosines, axis=1)]
