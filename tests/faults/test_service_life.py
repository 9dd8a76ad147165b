"""A model under long use: constant results and memory, no retracing, with and without hostile requests.

As a program, this module calls an export or a `Predictor` many times from many threads and prints statistics as JSON:
python -m tests.faults.test_service_life EXPORT NUM_REQUESTS signature|predictor
"""

import json
import os
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from official_bert.inference.predictor import Predictor
from tests.conftest import ROOT, script_environment

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


@pytest.fixture(scope="module")
def export(tmp_path_factory, write_export):
    return write_export(tmp_path_factory.mktemp("serving"))


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("way", "num_requests"),
    [("signature", 1000), ("predictor", 1000), ("signature", 100_000), ("predictor", 20_000)],
)
def test_answers_and_memory_stay_the_same(export, way, num_requests):
    command = [sys.executable, "-m", __name__, export, str(num_requests), way]
    process = subprocess.run(command, cwd=ROOT, env=script_environment(), capture_output=True, text=True, timeout=3000)
    assert process.returncode == 0, process.stderr[-2000:]
    found = json.loads(process.stdout)
    print(found)
    assert found["worst"] < 1e-5
    assert found["refused"] == num_requests // HOSTILE_EVERY
    assert found["new_operations"] == 0
    assert found["after"] < 1.05 * found["before"]


if __name__ == "__main__":
    main()
