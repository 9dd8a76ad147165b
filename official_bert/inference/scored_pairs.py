"""Sentence pairs with similarity scores, as in the STS benchmark, and correlations of cosine similarities with them."""

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
    """Two sentences and their similarity score.

    Attributes:
      score: higher for more similar sentences.
      texts: the two sentences.
    """

    score: float
    texts: tuple[TextOrPair, TextOrPair]


def read_scored_pairs(path: str) -> list[ScoredPair]:
    """Read tab-separated lines of a score and two sentences; blank lines are skipped.

    Raises:
      UserError: the file is missing, a line is malformed, or all scores are equal.
    """
    pairs = []
    for row in read_tsv(path):
        if not row.cells:
            continue
        if len(row.cells) != 3:
            raise UserError(f"{row.where}: {len(row.cells)} columns; give a score and two sentences, separated by tabs")
        score = parse_score(row.cells[0], row.where, "; remove the header, if any")
        pairs.append(ScoredPair(score, tuple(TextOrPair(text.strip()) for text in row.cells[1:])))
    if len({pair.score for pair in pairs}) < 2:
        raise UserError(f"{path}: all {len(pairs)} pairs have the same score, so the correlation is undefined")
    return pairs


class LayerScore(NamedTuple):
    """Correlations of the cosine similarities of one layer and pooling."""

    layer: int
    pooling: str
    spearman: float
    pearson: float


def compare_layers(
    pairs: Sequence[ScoredPair], encoder: TextEncoder, poolings: Sequence[str], report: Callable[[int], None]
) -> tuple[list[LayerScore], int]:
    """Compare the vectors of all layers with each of some poolings.

    Args:
      pairs: see `correlations`.
      encoder: the encoder; only `max_seq_length` of its settings is used.
      poolings: see `VectorSettings`; the weights for "bm25" are computed from the sentences.
      report: called with the number of finished pairs.

    Returns:
      The scores, pooling by pooling, and the number of truncated sentences.
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
      pairs: pairs with at least two different scores.
      encoder: an encoder that computes K vectors per sentence.
      report: called with the number of finished pairs.

    Returns:
      Spearman's and Pearson's correlation for each of the K vectors.
    """
    cosines = []  # N arrays [K]
    features = encoder.features(text for pair in pairs for text in pair.texts)
    for number, (first, second) in enumerate(zip(features, features, strict=True), start=1):
        cosines.append((normalized(first.vectors) * normalized(second.vectors)).sum(axis=1))
        report(number)
    scores = [pair.score for pair in pairs]
    return [(spearman(scores, column), pearson(scores, column)) for column in np.stack(cosines, axis=1)]
