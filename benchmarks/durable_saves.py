"""Cost of durable checkpoints: the time for reading back and waiting for the disk in each save.

  python benchmarks/durable_saves.py

Writes checkpoints of two sizes to a temporary folder, as training does. Both times are measured within the same saves:
on a busy machine, separate saves would differ by more than the effect.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np

from official_bert.checkpoints import bundle
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder

ROUNDS = 7
MEGABYTES = (50, 400)
ARRAY_BYTES = 10_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="output folder; by default the system's temporary folder")
    folder = parser.parse_args().folder
    print(f"Saving a checkpoint: medians of {ROUNDS}")
    for megabytes in MEGABYTES:
        tensors = {
            f"array_{number}": np.full(ARRAY_BYTES // 4, number, np.float32)
            for number in range(megabytes * 1_000_000 // ARRAY_BYTES)
        }
        whole, waiting, reading = (
            statistics.median(side) for side in zip(*(save(tensors, folder) for _ in range(ROUNDS)), strict=True)
        )
        print(
            f"  {megabytes:>4} MB   a save {whole:6.2f} s, of which waiting for the disk {waiting:6.2f} s,"
            f" reading back {reading:6.2f} s"
        )


def save(tensors: dict[str, np.ndarray], parent: str | None) -> tuple[float, float, float]:
    """Save a checkpoint; return the total seconds, the seconds in `os.fsync`, and those for reading it back."""
    with tempfile.TemporaryDirectory(dir=parent) as path:
        folder = CheckpointFolder(path, keep_max=1)
        os.sync()  # earlier unwritten data would be counted, too
        fsync, is_whole = os.fsync, bundle.is_whole
        waited, read = [], []
        os.fsync = lambda descriptor: timed(waited, fsync, descriptor)
        bundle.is_whole = lambda prefix: timed(read, is_whole, prefix)
        try:
            return seconds(lambda: folder.save(1, tensors)), sum(waited), sum(read)
        finally:
            os.fsync, bundle.is_whole = fsync, is_whole


def timed(times: list[float], function: Callable, *arguments):
    """Call a function and append its time to a list."""
    began = time.perf_counter()
    try:
        return function(*arguments)
    finally:
        times.append(time.perf_counter() - began)


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
