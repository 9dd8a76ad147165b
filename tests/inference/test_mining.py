"""Hard negatives, compared with a brute-force search."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest

from official_bert.data.text_inputs import TextOrPair
from official_bert.inference import sentence_index
from official_bert.inference.sentence_index import AnchoredPair, NegativeRule, hard_negatives
from official_bert.metrics.retrieval import nearest

PLACES = {"query": 0, "QUERY": 1, "answer": 10, " ANSWER": 11, "answer two": 5, "near": 8, "nearer": 2, "far": 60}


@pytest.fixture
def search(monkeypatch):
    """A search over passages given by their angle to the query, in degrees."""

    def vectors_of(texts):
        angles = np.radians([PLACES[text.text_a.partition(": ")[2]] for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    monkeypatch.setattr(sentence_index, "sentence_vectors", lambda texts, encoder, is_query=False: vectors_of(texts))
    lines = {TextOrPair(f"p: {place}"): [1] for place in PLACES}
    vectors = vectors_of(lines)
    rows = functools.partial(nearest, vectors)
    return SimpleNamespace(lines=lines, vectors=vectors, nearest_rows=rows, encoder=None)


@pytest.mark.parametrize(
    ("rule", "negatives"),
    [
        ({"num_negatives": 3}, ["nearer", "near", "far"]),
        ({"num_negatives": 4}, ["nearer", "near", "far"]),
        ({"num_negatives": 1, "range_min": 1}, ["near"]),
        ({"num_negatives": 3, "range_min": 1, "range_max": 2}, ["near"]),
        ({"num_negatives": 3, "margin": 0.0}, ["far"]),
        ({"num_negatives": 3, "margin": -0.01}, ["near", "far"]),
        ({"num_negatives": 3, "margin": 0.6}, []),
    ],
)
def test_negatives_are_the_nearest_passages_without_anchor_positives_and_duplicates(search, rule, negatives):
    pairs = [AnchoredPair("query", "answer"), AnchoredPair("query", "answer two")]
    found = list(hard_negatives(pairs, search, NegativeRule(**rule), query_prefix="q: ", passage_prefix="p: "))
    assert found[0] == negatives


def test_each_batch_of_queries_has_its_own_negatives(search, monkeypatch):
    monkeypatch.setattr(sentence_index, "_QUERIES_AT_A_TIME", 1)
    pairs = [AnchoredPair("query", "near"), AnchoredPair("far", "nearer")]
    found = list(hard_negatives(pairs, search, NegativeRule(), query_prefix="q: ", passage_prefix="p: "))
    assert found == [["nearer"], [" ANSWER"]]
