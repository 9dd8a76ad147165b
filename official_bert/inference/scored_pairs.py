"""Pairs of sentences with scores, as in the STS benchmark, and how cosine similarities correlate with the scores."""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.data.tables import parse_score, read_tsv
from official_bert.data.text_inputs import TextOrPair
from official_bert.inference.sentence_index import sentence_weights
from official_bert.inference.text_encoder import TextEncoder
from official_bert.metrics.classification import pearson, spearman
from official_bert.metrics.similarity import normalized
from official_bert.support.errors import UserError


class ScoredPair(NamedTuple):
    """Two sentences and how similar they are.

    Attributes:
      score: larger means more similar.
      texts: the two sentences.
    """

    score: float
    texts: tuple[TextOrPair, TextOrPair]


def read_scored_pairs(path: str) -> list[ScoredPair]:
    """Read lines of a score and two sentences, with tabs between them; blank lines are left out.

    Raises:
      UserError: the file is missing, a line has something else, or all scores are equal, so that nothing can correlate.
    """
    pairs = []
    for row in read_tsv(path):
        if not row.cells:
            continue
        if len(row.cells) != 3:
            raise UserError(f"{row.where}: {len(row.cells)} columns; give a score and two sentences, tabs between them")
        score = parse_score(row.cells[0], row.where, "; leave a header out")
        pairs.append(ScoredPair(score, tuple(TextOrPair(text.strip()) for text in row.cells[1:])))
    if len({pair.score for pair in pairs}) < 2:
        raise UserError(f"{path}: {len(pairs)} pairs without two different scores; there is nothing to correlate with")
    return pairs


class LayerScore(NamedTuple):
    """Scores of a layer and a pooling at comparing sentences: correlations of cosine similarities."""

    layer: int
    pooling: str
    spearman: float
    pearson: float


def compare_layers(
    pairs: Sequence[ScoredPair], encoder: TextEncoder, poolings: Sequence[str], report: Callable[[int], None]
) -> tuple[list[LayerScore], int]:
    """Compare all layers and some poolings.

    Args:
      pairs: as for `correlations`.
      encoder: of its settings, `max_seq_length` counts.
      poolings: see `VectorSettings`; the weights of "bm25" are counted in the sentences.
      report: is told how many pairs are done.

    Returns:
      The scores, pooling by pooling; and how many sentences were truncated.
    """
    layers = list(range(encoder.encoder.config.num_layers))
    weights = sentence_weights((text for pair in pairs for text in pair.texts), encoder)
    settings = encoder.settings._replace(layers=layers, pooling=poolings)
    encoder = encoder.with_settings(settings, bm25=weights)
    names = itertools.product(poolings, layers)
    table = zip(names, correlations(pairs, encoder, report), strict=True)
    return [LayerScore(layer, pooling, *scores) for (pooling, layer), scores in table], encoder.num_long


def correlations(
    pairs: Sequence[ScoredPair], encoder: TextEncoder, report: Callable[[int], None]
) -> list[tuple[float, float]]:
    """Correlate the cosine similarities of pairs with their scores, for each kind of vector.

    Args:
      pairs: with at least two different scores.
      encoder: gives each sentence K vectors.
      report: is told how many pairs are done.

    Returns:
      K times Spearman's and Pearson's correlation.
    """
    cosines = []  # N of [K]
    features = encoder.features(text for pair in pairs for text in pair.texts)
    for number, (first, second) in enumerate(zip(features, features, strict=True), start=1):
        cosines.append((normalized(first.vectors) * normalized(second.vectors)).sum(axis=1))
        report(number)
    scores = [pair.score for pair in pairs]
    return [(spearman(scores, column), pearson(scores, column)) for column in np.stack(cosines, axis=1)]
