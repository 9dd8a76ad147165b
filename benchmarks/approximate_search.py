r"""Approximate nearest-neighbour search with usearch and faiss: recall@10, queries per second, build time and size.

  python benchmarks/approximate_search.py --num_vectors 100000

The unit vectors lie in clusters around random centres and each query is close to a vector, as for texts. The exact
search is that of `official-bert sentence_similarity`. Packages that are not installed are skipped. Each index is built
and queried in a process of its own.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import tempfile
import time

import numpy as np
from common import measure_in_process

from official_bert.metrics.retrieval import nearest, normalized

WIDTH, TOP_K, NUM_QUERIES, NUM_EXACT = 384, 10, 1000, 100
EXPANSION = 128  # size of an HNSW graph's candidate list, in building (efConstruction) and in search (efSearch)
_ROWS_AT_A_TIME = 10_000
_CLUSTER_ROWS, _SPREAD = 100, 0.04  # vectors per cluster, and their standard deviation in each component


def write_vectors(folder: pathlib.Path, num_vectors: int) -> None:
    rng = np.random.default_rng(1)
    centres = normalized(rng.standard_normal((num_vectors // _CLUSTER_ROWS, WIDTH)))
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (num_vectors, WIDTH))
    for start in range(0, num_vectors, _ROWS_AT_A_TIME):
        rows = vectors[start : start + _ROWS_AT_A_TIME]
        around = centres[rng.integers(len(centres), size=len(rows))]
        rows[:] = normalized(around + _SPREAD * rng.standard_normal(rows.shape))
    asked = vectors[rng.integers(num_vectors, size=NUM_QUERIES)]
    queries = normalized(asked + _SPREAD / 2 * rng.standard_normal(asked.shape)).astype(np.float32)
    np.save(folder / "queries.npy", queries)
    np.save(folder / "exact.npy", nearest(vectors, queries, TOP_K)[0])


def of_exact(vectors, path):
    return lambda queries: nearest(vectors, queries, TOP_K)[0]


def of_usearch(dtype):
    def build(vectors, path):
        from usearch.index import Index

        index = Index(ndim=WIDTH, metric="cos", dtype=dtype, expansion_add=EXPANSION, expansion_search=EXPANSION)
        for start in range(0, len(vectors), _ROWS_AT_A_TIME):
            rows = vectors[start : start + _ROWS_AT_A_TIME]
            index.add(np.arange(start, start + len(rows)), np.array(rows))
        index.save(path)
        index.view(path)
        return lambda queries: index.search(queries, TOP_K).keys.reshape(-1, TOP_K)  # a single query has no batch axis

    return build


def of_faiss(factory, **parameters):
    def build(vectors, path):
        import faiss

        index = faiss.index_factory(WIDTH, factory, faiss.METRIC_INNER_PRODUCT)
        for name, value in parameters.items():
            faiss.ParameterSpace().set_index_parameter(index, name, value)
        index.train(np.array(vectors[:: max(1, len(vectors) // 50_000)]))
        for start in range(0, len(vectors), _ROWS_AT_A_TIME):
            index.add(np.array(vectors[start : start + _ROWS_AT_A_TIME]))
        faiss.write_index(index, path)
        return lambda queries: index.search(queries, TOP_K)[1]

    return build


SIDES = {
    "exact": ("numpy", of_exact),
    "usearch, HNSW, float16": ("usearch", of_usearch("f16")),
    "faiss, HNSW, float16": ("faiss", of_faiss("HNSW16_SQfp16", efConstruction=EXPANSION, efSearch=EXPANSION)),
    "faiss, inverted lists, float16": ("faiss", of_faiss("IVF1024,SQfp16", nprobe=16)),
}


def measure(folder: str, side: str) -> None:
    """Print as JSON the recall, queries per second of CPU time, seconds of CPU time to build, and MB of the file."""
    vectors, queries, exact = (
        np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in ("vectors", "queries", "exact")
    )
    path = f"{folder}/index"
    began = time.process_time()
    search = SIDES[side][1](vectors, path)
    built = time.process_time() - began
    num_queries = NUM_EXACT if side == "exact" else NUM_QUERIES
    search(np.array(queries[:1]))
    began = time.process_time()
    found = [np.asarray(search(np.array(queries[number : number + 1])))[0] for number in range(num_queries)]
    seconds = time.process_time() - began
    recall = np.mean([len(set(some) & set(best)) / TOP_K for some, best in zip(found, exact, strict=False)])
    megabytes = os.path.getsize(path) / 1e6 if os.path.exists(path) else os.path.getsize(f"{folder}/vectors.npy") / 1e6
    print(json.dumps({"recall": recall, "speed": num_queries / seconds, "built": built, "megabytes": megabytes}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num_vectors", type=int, default=100_000)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.measure:
        measure(*flags.measure)
        return
    print(f"{flags.num_vectors:,} vectors of {WIDTH} numbers, one query at a time; seconds are those of a core")
    with tempfile.TemporaryDirectory() as folder:
        write_vectors(pathlib.Path(folder), flags.num_vectors)
        for side, (package, _) in SIDES.items():
            if importlib.util.find_spec(package) is None:
                print(f"  {side:<30} not installed")
                continue
            result = measure_in_process(__file__, "--measure", folder, side)
            print(
                f"  {side:<30} recall@{TOP_K} {result['recall']:.3f}, {result['speed']:>7,.0f} queries/s, "
                f"built in {result['built']:>4,.0f} s, {result['megabytes']:>4,.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
