"""Calls an export or a `Predictor` many times from many threads; prints statistics as JSON.

  python -m tests.faults.service_life EXPORT NUM_REQUESTS signature|predictor

Hostile requests are mixed in. This is not a test: it runs in a separate process, whose memory is measured.
"""

import json
import os
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
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


def resident_bytes():
    with open("/proc/self/statm") as source:
        return int(source.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main():
    export, num_requests, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    ask, hostile, size_of_graph = {"signature": by_signature, "predictor": by_predictor}[way](export)
    pairs = make_pairs()
    expected = [ask(pair) for pair in pairs]  # one by one
    lock, worst, refused = threading.Lock(), [0.0], [0]

    def request(number):
        if number % HOSTILE_EVERY == 0:
            if hostile(number // HOSTILE_EVERY):
                with lock:
                    refused[0] += 1
            return
        difference = float(np.abs(ask(pairs[number % NUM_PAIRS]) - expected[number % NUM_PAIRS]).max())
        with lock:
            worst[0] = max(worst[0], difference)

    with ThreadPoolExecutor(NUM_THREADS) as threads:
        list(threads.map(request, range(num_requests // 2)))  # until memory use is stable
        before, operations = resident_bytes(), size_of_graph()
        list(threads.map(request, range(num_requests // 2)))
        after = resident_bytes()
    found = {"worst": worst[0], "refused": refused[0], "before": before, "after": after}
    json.dump({**found, "new_operations": size_of_graph() - operations}, sys.stdout)


if __name__ == "__main__":
    main()
