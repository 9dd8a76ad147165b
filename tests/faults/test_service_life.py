"""A model under long use: constant results and memory, no retracing, with and without hostile requests."""

import os
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from official_bert.inference.predictor import Predictor

NUM_THREADS, NUM_PAIRS = 16, 64
WORDS = ("the", "harbour", "town", "boats", "rain", "é", "서울", "👨\u200d👩", "\u0000", "mirror")
HOSTILE_EVERY = 50


def make_pairs():
    rng = random.Random(1)
    texts = lambda: " ".join(rng.choices(WORDS, k=rng.randrange(40)))  # noqa: E731
    return [(texts(), texts()) for _ in range(NUM_PAIRS)]


def by_signature(export):
    signature = tf.saved_model.load(export).signatures["text"]

    def ask(pair):
        return signature(text_a=tf.constant([pair[0]]), text_b=tf.constant([pair[1]]))["probabilities"].numpy()[0]

    def hostile(number):
        wrong = (
            {"text_a": tf.constant([[b"a"]]), "text_b": tf.constant([b"a"])},
            {"text_a": tf.constant([b"a", b"b"]), "text_b": tf.constant([b"a"])},
            {"text_a": tf.constant([3])},
        )[number % 3]
        try:
            signature(**wrong)
        except (tf.errors.OpError, TypeError, ValueError):
            return True
        return False

    return ask, hostile, lambda: len(signature.graph.get_operations())


def by_predictor(export):
    predictor = Predictor(export)

    def ask(pair):
        return np.array([float(value) for value in predictor([pair])[0].probabilities.values()])

    def hostile(number):
        try:
            predictor([(3, None), ("a",), 5][number % 3 : number % 3 + 1])
        except (TypeError, ValueError):
            return True
        return False

    return ask, hostile, lambda: 0


@pytest.mark.endurance
@pytest.mark.parametrize(("way", "num_requests"), [(by_signature, 100_000), (by_predictor, 20_000)])
def test_answers_and_memory_stay_the_same(tmp_path, write_export, way, num_requests):
    ask, hostile, size_of_graph = way(write_export(tmp_path))
    pairs = make_pairs()
    expected = [ask(pair) for pair in pairs]  # one by one

    def request(number):
        if number % HOSTILE_EVERY == 0:
            assert hostile(number // HOSTILE_EVERY)
        else:
            answer = ask(pairs[number % NUM_PAIRS])
            np.testing.assert_allclose(answer, expected[number % NUM_PAIRS], atol=1e-5)

    def used_after_requests():
        with ThreadPoolExecutor(NUM_THREADS) as threads:
            list(threads.map(request, range(num_requests // 2)))
        with open("/proc/self/statm") as source:
            return int(source.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"), size_of_graph()

    (before, operations), (after, operations_after) = used_after_requests(), used_after_requests()
    print(before, after)
    assert after < 1.05 * before and operations_after == operations
