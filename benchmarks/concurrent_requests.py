r"""Concurrent requests to an export, with TensorFlow's usual threads and with one thread per operation.

  python benchmarks/concurrent_requests.py --export serving/mrpc/1 --data_dir glue/MRPC

1, 2 and 4 concurrent callers call an export with MRPC's pairs, one by one and in batches of 32, and wait for each
answer. With `TF_NUM_INTRAOP_THREADS=1` an operation does not wait for threads on other cores, and the cores answer
different requests. Each setting runs in a separate process, alternating.
"""

import argparse
import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from common import measure_in_process

from official_bert.tasks.classification.data import DATASETS

BATCH_SIZE, NUM_SINGLE = 32, 200
CALLERS = (1, 2, 4)
SETTINGS = {"usual threads": {}, "one thread each": {"TF_NUM_INTRAOP_THREADS": "1"}}
FIGURES = ("requests/s", "p50 ms", "batched examples/s")


def measure(export: str, data_dir: str) -> dict[str, list[float]]:
    """Return, by number of callers: single requests/s, their median latency, and examples/s in batches."""
    import tensorflow as tf

    examples = DATASETS["mrpc"].examples(data_dir, "dev")
    pairs = [(example.text_a, example.text_b) for example in examples]
    signature = tf.saved_model.load(export).signatures["text"]

    def seconds(part: list[tuple[str, str]]) -> float:
        began = time.perf_counter()
        text_a, text_b = map(tf.constant, zip(*part, strict=True))
        signature(text_a=text_a, text_b=text_b)["probabilities"].numpy()
        return time.perf_counter() - began

    def all_seconds(num_callers: int, parts: list[list[tuple[str, str]]]) -> tuple[float, list[float]]:
        with ThreadPoolExecutor(num_callers) as callers:
            began = time.perf_counter()
            each = list(callers.map(seconds, parts))
            return time.perf_counter() - began, each

    single = [[pair] for pair in pairs[:NUM_SINGLE]]
    batches = [pairs[start : start + BATCH_SIZE] for start in range(0, len(pairs) - BATCH_SIZE + 1, BATCH_SIZE)]
    all_seconds(max(CALLERS), single + batches)  # a warm-up
    found = {}
    for num_callers in CALLERS:
        total, each = all_seconds(num_callers, single)
        in_batches, _ = all_seconds(num_callers, batches)
        rate = BATCH_SIZE * len(batches) / in_batches
        found[str(num_callers)] = [len(single) / total, 1000 * statistics.median(each), rate]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--export", required=True, help="a version of an exported classifier of pairs")
    parser.add_argument("--data_dir", required=True, help="MRPC")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.measure:
        print(json.dumps(measure(flags.export, flags.data_dir)))
        return
    print(
        f"Concurrent requests: {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {flags.rounds} rounds", flush=True
    )
    rounds = {name: [] for name in SETTINGS}
    for _ in range(flags.rounds):
        for name, variables in SETTINGS.items():
            arguments = ["--measure", "--export", flags.export, "--data_dir", flags.data_dir]
            rounds[name].append(measure_in_process(__file__, *arguments, environment=variables))
    print(f"  {'callers':<9}{'threads':<17}" + "".join(f"{figure:>21}" for figure in FIGURES))
    for num_callers in map(str, CALLERS):
        for name, measured in rounds.items():
            columns = zip(*(row[num_callers] for row in measured), strict=True)
            print(
                f"  {num_callers:<9}{name:<17}" + "".join(f"{statistics.median(column):>21.1f}" for column in columns)
            )


if __name__ == "__main__":
    main()
