r"""Nearest-neighbour search in many vectors: seconds per query and memory, compared with plain NumPy.

  python benchmarks/similarity_search.py --num_vectors 1000000

The vectors are random, in a file like that of `official-bert sentence_similarity --index_dir`. Plain NumPy reads the
whole file into memory and sorts all cosine similarities. Each side runs in a separate process.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
from common import measure_in_process

from official_bert.metrics.retrieval import nearest, normalized

WIDTH, TOP_K, NUM_QUERIES = 384, 10, 7
_ROWS_AT_A_TIME = 10_000


def write_vectors(path: pathlib.Path, num_vectors: int) -> None:
    rng = np.random.default_rng(1)
    vectors = np.lib.format.open_memmap(path, "w+", np.float32, (num_vectors, WIDTH))
    for start in range(0, num_vectors, _ROWS_AT_A_TIME):
        rows = vectors[start : start + _ROWS_AT_A_TIME]
        rows[:] = normalized(rng.standard_normal(rows.shape, np.float32))


def plain(vectors: np.ndarray, queries: np.ndarray) -> np.ndarray:
    return np.argsort(-(vectors @ queries.T), axis=0)[:TOP_K].T


def measure(path: str, side: str) -> None:
    """Print the seconds of each query, memory in MB and the rows found, as JSON."""
    vectors = np.load(path, mmap_mode="r" if side == "ours" else None)
    queries = normalized(np.random.default_rng(2).standard_normal((NUM_QUERIES, WIDTH))).astype(np.float32)
    seconds, found = [], []
    for number in range(NUM_QUERIES):
        query = queries[number : number + 1]
        began = time.perf_counter()
        rows = nearest(vectors, query, TOP_K)[0] if side == "ours" else plain(vectors, query)
        seconds.append(time.perf_counter() - began)
        found.append(rows[0].tolist())
    status = pathlib.Path("/proc/self/status").read_text()
    own, peak = (int(status.split(f"{name}:")[1].split()[0]) / 1024 for name in ("RssAnon", "VmHWM"))
    print(json.dumps({"seconds": seconds, "own": own, "peak": peak, "rows": found}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num_vectors", type=int, default=1_000_000)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.measure:
        measure(*flags.measure)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "vectors.npy"
        write_vectors(path, flags.num_vectors)
        print(f"{flags.num_vectors:,} vectors of {WIDTH} numbers, {os.cpu_count()} cores, the best {TOP_K}")
        results = {side: measure_in_process(__file__, "--measure", str(path), side) for side in ("ours", "NumPy")}
    for side, result in results.items():
        first, *others = result["seconds"]
        print(
            f"  {side:<6} {statistics.median(others):>6.3f} s per query (the first: {first:.3f} s), "
            f"{result['own']:,.0f} MB of its own at the end, at most {result['peak']:,.0f} MB with mapped files"
        )
    if results["ours"]["rows"] != results["NumPy"]["rows"]:
        sys.exit("the two sides found different vectors")


if __name__ == "__main__":
    main()
