"""Sentence vectors stored in a folder (`SentenceIndex`) and nearest-neighbour search over them (`SentenceSearch`).

The folder contains `vectors.npy`, unit vectors, float32 [N, 1, D]; `index.json`, their manifest; with the pooling
"bm25" also `bm25.npz`, the weights of the wordpieces; and for approximate search the files of a `NeighbourGraph`.
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from official_bert.metrics.retrieval import nearest
from official_bert.support import writing
from official_bert.support.errors import UserError, require
from official_bert.support.manifest import Manifest

if TYPE_CHECKING:
    from faiss import Index
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from absl import logging

from official_bert.data.feature_files import FeatureLayout, TextFeatures, feature_writer
from official_bert.data.retrieval import BM25, Bm25Weights
from official_bert.data.text_inputs import TextOrPair, TextSource
from official_bert.inference.text_encoder import TextEncoder
from official_bert.metrics.retrieval import normalized
from official_bert.modeling.pooling import BM25_B, BM25_K1
from official_bert.modeling.token_model import model_fingerprint
from official_bert.support.console import Progress
from official_bert.tokenization import Tokenizer

PACKAGE, EXTRA = "faiss", "search"
_GRAPH, _GRAPH_MANIFEST = "graph.faiss", "graph.json"
_KIND = "HNSW16_SQfp16"  # 16 neighbours per vector, vectors stored in float16
_EXPANSION = 128  # size of the candidate list when a vector is added (efConstruction)
_LEAST_CANDIDATES = 128  # minimum number of candidates per query; more are slower and miss less
_ROWS_AT_A_TIME = 10_000
_VECTORS, _WEIGHTS, _MANIFEST = "vectors.npy", "bm25.npz", "index.json"


class NeighbourGraph:
    """A graph over unit vectors; both may be memory-mapped."""

    def __init__(self, vectors: np.ndarray, graph: "Index"):
        """Combine the vectors with their graph; see `neighbour_graph`."""
        self._vectors, self._graph = vectors, graph

    def nearest(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Find nearly all of the vectors with the largest cosine similarity to each query.

        Arguments and results are those of `metrics.retrieval.nearest`.
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
      vectors: float32 [N, D], of length 1 up to rounding.
    """
    require(PACKAGE, extra=EXTRA)
    import faiss

    path, manifest_path = os.path.join(folder, _GRAPH), os.path.join(folder, _GRAPH_MANIFEST)
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


class Sentence(NamedTuple):
    """A sentence of a file."""

    line: int  # its number in the file, from 1
    text: TextOrPair  # the sentence, or a pair of sentences

    def __str__(self) -> str:
        """Return the line of the file with whitespace normalized to single spaces."""
        return " ".join(" ||| ".join(filter(None, self.text)).split())


def read_sentences(path: str, parameter: str) -> Iterator[Sentence]:
    """Read sentences, one per line; blank lines are skipped."""
    is_empty = True
    for number, text in enumerate(TextSource(path, parameter=parameter), start=1):
        if text.text_a:
            is_empty = False
            yield Sentence(number, text)
    if is_empty:
        raise UserError(f"{parameter}={path} has only blank lines; give one sentence per line")


def sentence_ids(tokenizer: Tokenizer, text: TextOrPair, max_seq_length: int) -> list[int]:
    """Return the wordpieces of a sentence, truncated and without [CLS] and [SEP], for BM25."""
    input_ids = [piece for part in text if part for piece in tokenizer.encode(part)]
    return input_ids[: max_seq_length - (3 if text.text_b else 2)]


def sentence_weights(texts: Iterable[TextOrPair], encoder: TextEncoder) -> Bm25Weights:
    """Compute the BM25 weights of the wordpieces of sentences."""
    tokenizer, max_seq_length = encoder.tokenizer, encoder.settings.max_seq_length
    return Bm25Weights.fit((sentence_ids(tokenizer, text, max_seq_length) for text in texts), len(tokenizer))


def sentence_vectors(texts: Iterable[TextOrPair], encoder: TextEncoder) -> Iterator[np.ndarray]:
    """Compute one vector per sentence: the mean of its pooled vectors over the chosen layers.

    Yields:
      float32 [D], normalized to length 1; zeros for a text without wordpieces to pool.
    """
    for features in encoder.features(texts):
        yield normalized(features.vectors.mean(axis=0, dtype=np.float64)).astype(np.float32)


class SentenceIndex:
    """A folder of sentence vectors."""

    def __init__(self, folder: str, provenance: Mapping[str, Any] | None):
        """Store the arguments; nothing is read yet, except a manifest without `provenance`.

        Args:
          provenance: everything that determines the vectors, for a `Manifest`; None to accept the existing vectors
            whatever their origin.
        """
        self._folder = folder
        if provenance is None:
            known = Manifest.read_or_none(self._manifest_path)
            provenance = known.provenance if known else {}
        self._provenance = provenance

    @property
    def weights_path(self) -> str:
        return os.path.join(self._folder, _WEIGHTS)

    @property
    def _manifest_path(self) -> str:
        return os.path.join(self._folder, _MANIFEST)

    def open(self, num_sentences: int | None = None, width: int | None = None) -> np.ndarray | None:
        """Memory-map the vectors if they exist and are up to date; otherwise log the reason.

        Returns:
          float32 [N, D], read-only, or None.
        """
        what = f"the index in {self._folder}"
        if Manifest.read_if_current(self._manifest_path, self._provenance, what) is None:
            return None
        try:
            vectors = np.load(os.path.join(self._folder, _VECTORS), mmap_mode="r")
            expected = (num_sentences or len(vectors), 1, width or vectors.shape[-1])
            if vectors.shape == expected and vectors.dtype == np.float32:
                return vectors[:, 0]
            reason = f"{vectors.dtype} {list(vectors.shape)}"
        except (OSError, ValueError) as error:
            reason = error
        logging.info("%s is damaged: %s: %s; rebuilding it", what, _VECTORS, reason)
        return None

    def graph(self, vectors: np.ndarray) -> NeighbourGraph:
        """Return the graph for approximate search in the vectors from `open`; build and store it if needed."""
        with Progress("building the graph", len(vectors), "candidates") as progress:
            return neighbour_graph(self._folder, vectors, self._provenance, progress.update)

    def write(
        self,
        vectors: Iterable[np.ndarray],
        width: int,
        bm25: Bm25Weights | None,
        report: Callable[[int], None],
        *,
        more_files: Sequence[str] = (),
    ) -> None:
        """Write the vectors, then the manifest that marks them as complete.

        Args:
          vectors: one float32 [D] per sentence.
        """
        writing.make_folders(self._folder)
        writing.remove(self._manifest_path)
        written = [_VECTORS, *more_files]
        if bm25 is not None:
            bm25.save(self.weights_path)
            written.append(_WEIGHTS)
        layout = FeatureLayout(layers=(0,), width=width, is_pooled=True)
        with feature_writer(os.path.join(self._folder, _VECTORS), "npy", layout, tokens_of=list) as write:
            for number, vector in enumerate(vectors):
                write(TextFeatures(number, (), vector[np.newaxis]))
                report(number + 1)
        Manifest.write(self._manifest_path, self._provenance, written)


class SentenceSearch:
    """Distinct sentences, their vectors, and nearest-neighbour search over them."""

    def __init__(
        self,
        sentences: Iterable[Sentence],
        encoder: TextEncoder,
        index_dir: str | None = None,
        *,
        is_approximate: bool = False,
    ):
        """Compute the vectors, unless the index has them."""
        # each sentence with its line numbers; duplicates share a vector and rank alike
        self.lines: dict[TextOrPair, list[int]] = {}
        for line, text in sentences:
            self.lines.setdefault(text, []).append(line)
        size, width = len(self.lines), encoder.width
        index = SentenceIndex(index_dir, self._provenance(encoder)) if index_dir is not None else None
        vectors = index and index.open(size, width)
        weights = None
        if encoder.settings.pooling == BM25:
            if vectors is not None:
                weights = Bm25Weights.load(index.weights_path, len(encoder.tokenizer))
            else:
                weights = sentence_weights((text for text, lines in self.lines.items() for _ in lines), encoder)
        self.encoder = encoder.with_settings(encoder.settings, bm25=weights)  # computes the vectors of queries
        if vectors is not None:
            logging.info("%s: reusing the vectors of %s candidates", index_dir, f"{size:,}")
        else:
            vectors = self._computed(index, weights, size, width)
        self.vectors: np.ndarray = vectors  # float32 [N, D], of length 1 up to rounding
        self._graph = index.graph(vectors) if is_approximate else None

    def _computed(self, index: SentenceIndex | None, weights: Bm25Weights | None, size: int, width: int) -> np.ndarray:
        computed = sentence_vectors(self.lines, self.encoder)
        with Progress("computing vectors", size, "candidates") as progress:
            if index is not None:
                index.write(computed, width, weights, progress.update)
                return index.open(size, width)
            vectors = np.empty((size, width), np.float32)
            for row, vector in enumerate(computed):
                vectors[row] = vector
                progress.update(row + 1)
            return vectors

    def _provenance(self, encoder: TextEncoder) -> dict[str, Any]:
        """Return everything that determines the vectors, by its name in messages."""
        digest = hashlib.sha256()
        for item in self.lines.items():
            digest.update(json.dumps(item).encode() + b"\n")
        config, settings = encoder.encoder.config, encoder.settings
        return {
            "candidates": digest.hexdigest(),
            "weights of the model": model_fingerprint(encoder.encoder),
            "model configuration": config.to_json_string(),
            **encoder.tokenizer.identity,
            **encoder.provenance,
            "layers": sorted(layer % config.num_layers for layer in settings.layers),
            "pooling": [settings.pooling, BM25_K1, BM25_B] if settings.pooling == BM25 else [settings.pooling],
            "max_seq_length": settings.max_seq_length,
        }

    def nearest_rows(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Find the rows of `vectors` that are nearest to each query; see `metrics.retrieval.nearest`."""
        return self._graph.nearest(queries, top_k) if self._graph else nearest(self.vectors, queries, top_k)

    def nearest(self, queries: Sequence[TextOrPair], top_k: int) -> list[list[tuple[Sentence, float]]]:
        """Return the sentences with the largest cosine similarity to each query, with their similarities."""
        rows, cosines = self.nearest_rows(np.stack(list(sentence_vectors(queries, self.encoder))), top_k)
        distinct = list(self.lines)
        ranked = [
            [
                (Sentence(line, distinct[row]), float(cosine))
                for row, cosine in zip(best, similarities, strict=True)
                for line in self.lines[distinct[row]]
            ]
            for best, similarities in zip(rows, cosines, strict=True)
        ]
        return [best[:top_k] for best in ranked]
