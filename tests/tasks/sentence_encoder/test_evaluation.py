"""Evaluation of sentence vectors: equal texts, self-matches and ids."""

import numpy as np
import pytest

from official_bert.metrics.retrieval import SparseRows, normalized
from official_bert.tasks.sentence_encoder.data import Example
from official_bert.tasks.sentence_encoder.job import retrieval, scores_of_examples

TEXTS = {"a": [1, 0], "b": [1.8, 0.2], "c": [0, 1], "d": [0.1, 0.9]}
NUMBERS = {"": 0, **{text: number for number, text in enumerate(TEXTS, start=1)}}


def example(texts, scores=(), label=0):
    return Example(tuple(texts), tuple(map(NUMBERS.get, texts)), scores, label=label)


def vectors(texts):
    return np.array([TEXTS[text] for text in texts], np.float32)


def unit_vectors(texts):
    return normalized(vectors(texts)).astype(np.float32)


def sparse_vectors(texts):
    return SparseRows.from_rows([vectors(texts)], 2)


def test_sparse_vectors_have_the_scores_of_dense_ones():
    rows = [("a", "d", ""), ("b", "a", "c"), ("c", "d", "b")]
    examples = [example(texts) for texts in rows]
    dense, sparse = (scores_of_examples(examples, table, None) for table in (vectors, sparse_vectors))
    assert dense == sparse and 0 < dense["recall@1"] < 1 and dense["triplet_accuracy"] == 1
    scored = [example(texts[:2], (score,)) for texts, score in zip(rows, (0.1, 0.9, 0.8), strict=True)]
    labelled = [example(text, label=label) for text, label in zip(TEXTS, (0, 0, 1, 0), strict=True)]
    for some in (scored, labelled):
        assert scores_of_examples(some, vectors, None) == scores_of_examples(some, sparse_vectors, None)
    found = [
        retrieval({"q": "a", "r": "d"}, {"1": "b", "2": "c"}, {"q": {"1": 1.0}, "r": {"1": 1.0}}, table)
        for table in (vectors, sparse_vectors)
    ]
    assert found[0] == found[1] and found[0]["recall@1"] == 0.5


def test_an_anchor_is_not_its_own_result():
    examples = list(map(example, ("ab", "ba", "cd", "dc")))
    assert scores_of_examples(examples, unit_vectors, None)["recall@1"] == 1.0


def test_the_candidate_with_the_best_score_is_the_positive():
    for scores, expected in (((0.2, 0.9, 1.0), 1.0), ((0.9, 0.2, 1.0), 0.0)):
        found = scores_of_examples([example(("a", "c", "b", ""), scores)], unit_vectors, None)
        assert found["triplet_accuracy"] == found["recall@1"] == expected


def test_duplicate_texts_count_once_in_the_accuracy():
    examples = [example(text, label=label) for text, label in zip("aabcd", (0, 0, 1, 1, 1), strict=True)]
    assert scores_of_examples(examples, unit_vectors, None)["accuracy"] == pytest.approx(2 / 4)  # two of a, b, c and d


def test_a_pair_classifier_gets_unnormalized_vectors():
    def classify(u, v):
        np.testing.assert_allclose([u, v], [[TEXTS["b"]], [TEXTS["c"]]], rtol=1e-6)
        return np.array([[1.0, 0.0]])

    assert scores_of_examples([example("bc", label=0)], vectors, classify)["accuracy"] == 1.0


def test_a_document_with_the_id_of_the_query_is_left_out_unless_it_is_judged():
    found = retrieval({"1": "a"}, {"1": "b", "2": "c"}, {"1": {"1": 1.0}}, unit_vectors)
    assert found["recall@1"] == 1.0
    found = retrieval({"1": "a"}, {"1": "a", "2": "c"}, {"1": {"2": 1.0}}, unit_vectors)
    assert found["recall@1"] == 1.0
