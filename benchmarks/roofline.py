"""Training steps and forward passes, compared with the CPU's rate of matrix products.

  python benchmarks/roofline.py --shapes 4x256 6x384 12x768

The rate is measured first, for each number format: the fastest of several matrix products, with large matrices and with
those of the models. A training step is that of `training_step.py`: 32 x 128 tokens, 20 predictions, vocabulary 30,522;
a forward pass is only the encoder. Only operations of matrix products are counted.

--profile prints the time of a step by kind of operation, from TensorFlow's profiler, as fractions of the time of all
threads.
"""

import argparse
import collections
import glob
import json
import os
import statistics
import sys
import tempfile
import time

import numpy as np
from common import BACKWARD, encoder_flops, measure_in_process, pretraining_heads_flops
from training_step import (
    BATCH,
    LENGTH,
    POLICIES,
    PREDICTIONS,
    WORK,
    architecture_of,
    model_config,
    our_work,
    per_second,
)

# The products of layers of 256, 384 and 768 for a batch of 32 x 128 tokens, and a large square one.
PRODUCTS = [(4096, width, 4 * width) for width in (256, 384, 768)] + [(4096, 3072, 768), (3072, 3072, 3072)]
SECONDS_A_PRODUCT = 1.0
SHOWN_KINDS = 12


def peak(dtype: str) -> float:
    """Return the operations per second of the fastest product."""
    import tensorflow as tf

    rates = []
    for rows, inner, columns in PRODUCTS:
        left = tf.cast(tf.random.normal([rows, inner], seed=1), dtype)
        right = tf.cast(tf.random.normal([inner, columns], seed=2), dtype)
        multiply = tf.function(lambda left, right: tf.linalg.matmul(left, right)).get_concrete_function(left, right)
        multiply(left, right)
        best, end = float("inf"), time.perf_counter() + SECONDS_A_PRODUCT
        while time.perf_counter() < end:
            began = time.perf_counter()
            multiply(left, right)
            best = min(best, time.perf_counter() - began)
        rates.append(2 * rows * inner * columns / best)
    return max(rates)


def flops(work: str, shape: str) -> int:
    """Return the operations of a training step or a forward pass."""
    config = model_config(architecture_of(shape))
    lengths = np.full([BATCH], LENGTH)
    forward = encoder_flops(config, lengths)
    if work != "training":
        return forward
    return (1 + BACKWARD) * (forward + pretraining_heads_flops(config, BATCH, PREDICTIONS))


def seconds_by_kind(step) -> dict[str, float]:
    """Return the total seconds of all threads in each kind of operation, in three steps."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    for _ in range(3):
        step()
    seconds = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            for _ in range(3):
                step()
        (path,) = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
        space = xplane_pb2.XSpace()
        with open(path, "rb") as source:
            space.ParseFromString(source.read())
    for plane in space.planes:
        if not plane.name.startswith("/host:CPU"):
            continue
        for line in plane.lines:
            for event in line.events:
                name, _, kind = plane.event_metadata[event.metadata_id].name.partition(":")
                if name and kind and kind.isidentifier():  # "gradients/MatMul_1:MatMul" is an operation
                    seconds[kind] += event.duration_ps / 1e12
    return dict(seconds.most_common())


def measure(what: str, *arguments: str) -> None:
    if what == "peak":
        found = {"flops": peak(*arguments)}
    elif what == "profile":
        found = seconds_by_kind(our_work(*arguments))
    else:
        found = {"per_second": per_second(our_work(*arguments))}
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["4x256", "6x384", "12x768"], help="layers x hidden size")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="print the time of a step by kind of operation")
    options = parser.parse_args()
    print(f"Roofline: {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    peaks = {}
    for dtype in POLICIES:
        peaks[dtype] = max(
            measure_in_process(__file__, "--side", "peak", dtype)["flops"] for _ in range(options.rounds)
        )
        print(f"  matrix products in {dtype:<9} {peaks[dtype] / 1e9:8,.0f} GFLOP/s", flush=True)
    for shape in options.shapes:
        for work in WORK:
            for dtype in POLICIES:
                arguments = (work, shape, dtype)
                rates = [
                    measure_in_process(__file__, "--side", "rate", *arguments)["per_second"]
                    for _ in range(options.rounds)
                ]
                rate = statistics.median(rates)
                share = rate * flops(work, shape) / peaks[dtype]
                print(
                    f"  {shape:<7} {work:<10} {dtype:<9} {rate:8.2f} steps/s   {share:6.1%} of the rate "
                    f"(rounds: {min(rates) / rate:.2f} to {max(rates) / rate:.2f} of the median)",
                    flush=True,
                )
                if options.profile:
                    seconds = measure_in_process(__file__, "--side", "profile", *arguments)
                    total = sum(seconds.values())
                    kinds = [f"{kind} {value / total:.0%}" for kind, value in list(seconds.items())[:SHOWN_KINDS]]
                    print(f"    {', '.join(kinds)}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        measure(*sys.argv[2:])
    else:
        main()
