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
from official_bert.modeling.pooling import CONCAT_LAST_FOUR, EMBEDDINGS
from official_bert.support.errors import UserError


class ScoredPair(NamedTuple):
    """Two sentences and their similarity score.

    Attributes:
      score: higher for more similar sentences.
      texts: the two sentences.
    """

    score: float
    texts: tuple[TextOrPair, TextOrPair]


_COLUMNS = ("score", "sentence1", "sentence2")


def read_scored_pairs(path: str) -> list[ScoredPair]:
    """Read tab-separated lines of a score and two sentences; blank lines are skipped.

    If the first line has `_COLUMNS`, as in the STS benchmark of GLUE, it names the columns, and others are not read.

    Raises:
      UserError: the file is missing, a line is malformed, or all scores are equal.
    """
    pairs, num_columns, places = [], len(_COLUMNS), range(len(_COLUMNS))
    for row in read_tsv(path):
        if not row.cells:
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
    """Correlations of the cosine similarities of one layer, or several, and pooling.

    Attributes:
      layer: the layer, from 0; "embeddings", the input of the first; layers whose vectors are averaged, as in "-1,-2";
        or "concat_last_four".
      pooling: see `VectorSettings`.
      spearman: Spearman's correlation.
      pearson: Pearson's correlation.
    """

    layer: int | str
    pooling: str
    spearman: float
    pearson: float

    @property
    def is_flag(self) -> bool:
        """True if the layer is a value of the flag `layers`."""
        return self.layer not in (EMBEDDINGS, CONCAT_LAST_FOUR)


def compare_layers(
    pairs: Sequence[ScoredPair], encoder: TextEncoder, poolings: Sequence[str], report: Callable[[int], None]
) -> tuple[list[LayerScore], int]:
    """Compare the vectors of all layers and combinations of layers with each of some poolings.

    Args:
      pairs: see `correlations`.
      encoder: the encoder; only `max_seq_length` of its settings is used.
      poolings: see `VectorSettings`; the weights for "bm25" are computed from the sentences.
      report: called with the number of finished pairs.

    Returns:
      The scores, layer by layer, and the number of truncated sentences.
    """
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
      pairs: pairs with at least two different scores.
      encoder: an encoder that computes K vectors per sentence.
      report: called with the number of finished pairs.
      kinds: converts them, float [K, D], to arrays with a vector per row; by default, the vectors are used as they are.

    Returns:
      Spearman's and Pearson's correlation for each vector.
    """
    cosines = []
    features = encoder.features(text for pair in pairs for text in pair.texts)
    for number, texts in enumerate(zip(features, features, strict=True), start=1):
        of_pair = zip(*(map(normalized, kinds(text.vectors)) for text in texts), strict=True)
        cosines.append(np.concatenate([(first * second).sum(axis=1) for first, second in of_pair]))
        report(number)
    scores = [pair.score for pair in pairs]
    return [(spearman(scores, column), pearson(scores, column)) for column in np.stack(cosines, axis=1)]
