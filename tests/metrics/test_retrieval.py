"""Retrieval metrics, compared with scikit-learn and hand-computed values, and their divisions by zero."""

import math

import numpy as np
import pytest
import sklearn.metrics

from official_bert.metrics.retrieval import ndcg, reciprocal_rank, reranking_scores, retrieval_scores, triplet_accuracy


def test_ndcg_equals_that_of_scikit_learn():
    rng = np.random.default_rng(1)
    for depth in [None, 3, 10] * 30:
        gains, scores = rng.integers(0, 4, 12), rng.permutation(12)
        expected = sklearn.metrics.ndcg_score([gains], [scores], k=depth)
        assert ndcg(gains[np.argsort(-scores)], gains, depth) == pytest.approx(expected, abs=1e-12)


def test_scores_of_several_queries_equal_hand_computed_values():
    qrels = {"a": {1: 2, 2: 1, 3: 0, 4: -1}, "b": {9: 1}, "nothing found": {7: 1}, "nothing relevant": {1: 0}}
    ranked = {"a": [4, 3, 2, 8, 1], "b": [*range(20, 29), 9, 10], "nothing relevant": [1], "not judged": [1]}
    ndcg_a = (1 / math.log2(4) + 2 / math.log2(6)) / (2 + 1 / math.log2(3))
    assert retrieval_scores(ranked, qrels, recall_at=(1, 3, 10)) == pytest.approx(
        {
            "recall@1": 0, "recall@3": (1 / 2) / 3, "recall@10": (1 + 1) / 3, "mrr@10": (1 / 3 + 1 / 10) / 3,
            "ndcg@10": (ndcg_a + 1 / math.log2(11)) / 3,
        }
    )  # fmt: skip
    assert list(retrieval_scores(ranked, qrels)) == ["recall@1", "recall@10", "mrr@10", "ndcg@10"]
    eleventh = {"q": [*"abcdefghij", "x"]}
    assert retrieval_scores(eleventh, {"q": {"x": 1}}, (11,)) == {"recall@11": 1, "mrr@10": 0, "ndcg@10": 0}
    assert reciprocal_rank([0] * 10 + [1]) == 1 / 11


def test_ties_between_candidates_count_as_the_worst_order():
    queries = ["x", "y", "x", "nothing relevant", "y", "x", "y"]
    gains, scores = [0, 1, 2, 0, 0, 1, 0], [0.9, 0.5, 0.3, 0.1, 0.5, 0.1, 0.2]
    # x: 0, 2, 1; y: 0, 1, 0, since two of its scores are equal
    of_x = (2 / math.log2(3) + 1 / math.log2(4)) / (2 + 1 / math.log2(3))
    expected = {"mrr@10": 1 / 2, "ndcg@10": (of_x + 1 / math.log2(3)) / 2}
    assert reranking_scores(queries, gains, scores) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("score", "arguments", "message"),
    [
        (reranking_scores, ([], [], []), "no query has a relevant document"),
        (reranking_scores, (["x"], [0], [1]), "no query has a relevant document"),
        (retrieval_scores, ({"x": [1]}, {"x": {1: 0}, "y": {}}), "no query has a relevant document"),
        (retrieval_scores, ({1: [5, 6, 5]}, {1: {5: 1}}), "query 1: a document is ranked twice"),
    ],
)
def test_what_has_no_score_is_refused(score, arguments, message):
    with pytest.raises(ValueError, match=message):
        score(*arguments)


def test_triplets_with_equal_similarities_are_not_correct():
    assert triplet_accuracy([0.5, 0.5, 0.5, -0.5], [0.4, 0.5, 0.6, -1]) == 0.5
    assert triplet_accuracy([], []) == 0.0
