"""Cosine similarities, nearest vectors and principal components, compared with plain NumPy and SciPy."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.spatial
import scipy.stats

from official_bert.data.feature_files import TextFeatures
from official_bert.data.text_inputs import ScoredPair, TextOrPair
from official_bert.inference.text_encoder import correlations
from official_bert.metrics import retrieval
from official_bert.metrics.retrieval import SparseRows, nearest, normalized


def naive(vectors, queries, top_k):
    cosines = 1 - scipy.spatial.distance.cdist(queries.astype(np.float64), vectors.astype(np.float64), "cosine")
    rows = np.array(
        [sorted(range(len(vectors)), key=lambda row: (-of_query[row], row))[:top_k] for of_query in cosines]
    )
    return rows, np.take_along_axis(cosines, rows, axis=1)


def rounded(vectors):
    return normalized(vectors).astype(np.float32)


@pytest.mark.parametrize("top_k", [1, 7, 500])
@pytest.mark.parametrize("spread", [1.0, 1e-3])  # 1e-3: cosine similarities between 1 - 1e-6 and 1
def test_nearest_equals_a_full_sort(top_k, spread, monkeypatch):
    rng = np.random.default_rng(3)
    centre = (1 - spread) * rng.normal(size=16)
    vectors, queries = (rounded(centre + spread * rng.normal(size=(count, 16))) for count in (300, 4))
    expected_rows, expected = naive(vectors, queries, top_k)
    for block_rows in (1, 37, 1000):
        monkeypatch.setattr(retrieval, "_BLOCK_NUMBERS", 16 * block_rows)
        rows, cosines = nearest(vectors, queries, top_k)
        np.testing.assert_array_equal(rows, expected_rows)
        np.testing.assert_allclose(cosines, expected, atol=1e-12)
    of_other_lengths = (100 * rng.random(size=(300, 16)) ** 9).astype(np.float32)  # compared by their dot product
    products = of_other_lengths[:4].astype(np.float64) @ of_other_lengths.T.astype(np.float64)
    rows, found = nearest(of_other_lengths, of_other_lengths[:4], top_k)
    np.testing.assert_array_equal(rows, np.argsort(-products, axis=1)[:, :top_k])
    np.testing.assert_allclose(found, np.take_along_axis(products, rows, axis=1), rtol=1e-12)


def test_sparse_vectors_have_the_nearest_and_the_memory_of_their_weights(monkeypatch):
    rng = np.random.default_rng(6)
    dense = np.where(rng.random((300, 50)) < 0.1, rng.random((300, 50)), 0).astype(np.float32)
    dense[7] = 0
    sparse = SparseRows.from_rows(iter(dense), 50)
    assert len(sparse.values) == len(sparse.columns) == np.count_nonzero(dense) and sparse.shape == dense.shape
    for rows in (3, slice(5, 9), slice(290, 999), np.array([4, 7, 4])):
        np.testing.assert_array_equal(sparse[rows], dense[rows])
    monkeypatch.setattr(retrieval, "_BLOCK_NUMBERS", 50 * 37)
    for found, expected in zip(nearest(sparse, dense[:9], 20), nearest(dense, dense[:9], 20), strict=True):
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(nearest(sparse, sparse.take(range(9)), 20)[0], nearest(dense, dense[:9], 20)[0])
    assert SparseRows.from_rows([], 50)[:].shape == (0, 50)
    parts = [SparseRows.from_rows([dense[:200]], 50), SparseRows.from_rows(dense[200:], 50)]
    np.testing.assert_array_equal(SparseRows.joined(parts)[:], dense)


def test_equal_vectors_are_ordered_by_their_row(monkeypatch):
    rng = np.random.default_rng(4)
    few = rounded(rng.normal(size=(5, 48)))
    which = rng.integers(0, 5, size=999)
    vectors = few[which]
    for block_rows in (10, 64, 4096):
        monkeypatch.setattr(retrieval, "_BLOCK_NUMBERS", 48 * block_rows)
        rows, cosines = nearest(vectors, few[:2], 400)
        for query in (0, 1):
            order = np.argsort(-(few.astype(np.float64) @ few[query].astype(np.float64)), kind="stable")
            wanted = np.concatenate([np.flatnonzero(which == kind) for kind in order])[:400]
            np.testing.assert_array_equal(rows[query], wanted)
            assert len(np.unique(cosines[query])) == len(np.unique(which[wanted]))


def test_normalized_vectors_have_length_one_except_zeros():
    vectors = normalized(np.array([[3.0, 4.0], [0.0, 0.0], [1e-30, 0.0]]))
    np.testing.assert_allclose(vectors, [[0.6, 0.8], [0, 0], [1, 0]], atol=1e-7)


def test_pairs_of_nearly_equal_vectors_correlate_as_in_scipy():
    rng = np.random.default_rng(7)
    centre = rng.normal(size=384)
    vectors = np.float32(centre + 5e-4 * rng.normal(size=(200, 2, 2, 384)))  # pairs, sentences, layers
    scores = rng.normal(size=200)
    texts = [(TextOrPair(f"{number} a"), TextOrPair(f"{number} b")) for number in range(200)]
    pairs = list(map(ScoredPair, scores, texts))
    both = [each for pair, arrays in zip(pairs, vectors, strict=True) for each in zip(pair.texts, arrays, strict=True)]
    by_text = {text: TextFeatures(0, (), array) for text, array in both}
    encoder = SimpleNamespace(features=lambda texts: map(by_text.get, texts))
    for layer, (found_spearman, found_pearson) in enumerate(correlations(pairs, encoder, report=lambda number: None)):
        first, second = np.longdouble(vectors[:, :, layer]).swapaxes(0, 1)
        lengths = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
        cosines = ((first * second).sum(axis=1) / lengths - 1).astype(np.float64)
        assert -1e-6 < np.median(cosines) < 0
        assert found_spearman == pytest.approx(scipy.stats.spearmanr(scores, cosines).statistic, abs=1e-9)
        assert found_pearson == pytest.approx(scipy.stats.pearsonr(scores, cosines).statistic, abs=1e-6)
