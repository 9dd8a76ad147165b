"""`NeighbourGraph`: approximate nearest-neighbour search in many vectors with an HNSW graph from faiss.

The graph is stored in the folder of the vectors: `graph.faiss`, which contains the vectors in float16, and its manifest
`graph.json`. The graph only proposes candidates; their similarities are computed from the original vectors.
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from official_bert.metrics.similarity import nearest
from official_bert.support import writing
from official_bert.support.errors import UserError
from official_bert.support.extras import require
from official_bert.support.manifest import Manifest

if TYPE_CHECKING:
    from faiss import Index

PACKAGE, EXTRA = "faiss", "search"
_GRAPH, _MANIFEST = "graph.faiss", "graph.json"
_KIND = "HNSW16_SQfp16"  # 16 neighbours per vector, vectors stored in float16
_EXPANSION = 128  # size of the candidate list when a vector is added (efConstruction)
_LEAST_CANDIDATES = 128  # minimum number of candidates per query; more are slower and miss less
_ROWS_AT_A_TIME = 10_000


class NeighbourGraph:
    """A graph over unit vectors; both may be memory-mapped."""

    def __init__(self, vectors: np.ndarray, graph: "Index"):
        """Combine the vectors with their graph; see `neighbour_graph`."""
        self._vectors, self._graph = vectors, graph

    def nearest(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Find nearly all of the vectors with the largest cosine similarity to each query.

        Arguments and results are those of `metrics.similarity.nearest`.
        """
        from faiss import SearchParametersHNSW

        number = min(max(2 * top_k, _LEAST_CANDIDATES), len(self._vectors))
        # [Q, candidates]; -1 if the search found fewer
        _, proposed = self._graph.search(queries, number, params=SearchParametersHNSW(efSearch=number))
        found = []
        for query, candidates in zip(queries, np.sort(proposed), strict=True):
            candidates = candidates[candidates >= 0]
            if len(candidates) < top_k:
                candidates = np.arange(len(self._vectors))
            rows, cosines = nearest(self._vectors[candidates], query[np.newaxis], top_k)
            found.append((candidates[rows[0]], cosines[0]))
        rows, cosines = zip(*found, strict=True)
        return np.stack(rows), np.stack(cosines)


def neighbour_graph(
    folder: str, vectors: np.ndarray, provenance: Mapping[str, Any], report: Callable[[int], None]
) -> NeighbourGraph:
    """Memory-map the graph of vectors; build it first if it is missing, damaged or was built from other vectors.

    Args:
      folder: the folder of the vectors.
      vectors: float32 [N, D], of length 1 up to rounding.
      provenance: everything that determines the vectors, for a `Manifest`.
      report: called with the number of vectors added so far, if the graph is built.

    Raises:
      UserError: faiss is not installed, or the folder cannot be written to.
    """
    require(PACKAGE, extra=EXTRA)
    import faiss

    path, manifest_path = os.path.join(folder, _GRAPH), os.path.join(folder, _MANIFEST)
    provenance = {**provenance, "graph": [_KIND, _EXPANSION]}
    if Manifest.read_if_current(manifest_path, provenance, f"the graph {path}") is None:
        writing.remove(manifest_path)
        graph = faiss.index_factory(vectors.shape[1], _KIND, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = _EXPANSION
        for start in range(0, len(vectors), _ROWS_AT_A_TIME):
            graph.add(np.array(vectors[start : start + _ROWS_AT_A_TIME]))
            report(graph.ntotal)
        partial = writing.partial_name(path)
        try:
            faiss.write_index(graph, partial)
            writing.publish([partial], [path])
        except RuntimeError as error:  # raised by faiss, for example if the disk is full
            raise UserError(f"cannot write {path}: {error}") from error
        finally:
            writing.discard([partial])
        Manifest.write(manifest_path, provenance, [_GRAPH])
    return NeighbourGraph(vectors, faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC))
