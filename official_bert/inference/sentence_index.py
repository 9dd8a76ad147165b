"""Vectors in a folder and nearest-neighbour search over them: of sentences, for hard negatives, and of any vectors.

The folder contains `vectors.npy`, unit vectors, float32 [N, 1, D], or `sparse.npz`, the fields of `SparseRows`;
`index.json`, their manifest; with the pooling "bm25" also `bm25.npz`, the weights of the wordpieces; in a
`VectorIndex` `ids.npz`, the ids of the texts; and for approximate search the files of a `NeighbourGraph`.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.data.feature_files import FeatureLayout, TextFeatures, TextId, feature_writer, read_parts
from official_bert.data.text_inputs import TextOrPair, TextSource
from official_bert.metrics.retrieval import Bm25Weights, SparseRows, exact, nearest, normalized
from official_bert.support import files, writing
from official_bert.support.console import Progress
from official_bert.support.errors import UserError, require
from official_bert.support.manifest import Manifest

if TYPE_CHECKING:
    from faiss import Index

    from official_bert.inference.text_encoder import TextEncoder
    from official_bert.tasks.sentence_encoder.reader import ExportedEncoder

    AnyEncoder = TextEncoder | ExportedEncoder

_GRAPH, _GRAPH_MANIFEST = "graph.faiss", "graph.json"
_KIND = "HNSW16_SQfp16"  # 16 neighbours per vector, vectors stored in float16
_EXPANSION = 128  # size of the candidate list when a vector is added (efConstruction)
_LEAST_CANDIDATES = 128  # minimum number of candidates per query; more are slower and miss less
_NUMBERS_AT_A_TIME, _QUERIES_AT_A_TIME = 10_000 * 768, 256
_VECTORS, _SPARSE, _WEIGHTS, _IDS, _MANIFEST = "vectors.npy", "sparse.npz", "bm25.npz", "ids.npz", "index.json"
Vectors = np.ndarray | SparseRows


class NeighbourGraph:
    """A graph over unit vectors; both may be memory-mapped."""

    def __init__(self, vectors: Vectors, graph: "Index"):
        self._vectors, self._graph = vectors, graph

    def nearest(self, queries: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
        """Find nearly all of what `metrics.retrieval.nearest` finds."""
        from faiss import SearchParametersHNSW

        number = min(max(2 * top_k, _LEAST_CANDIDATES), len(self._vectors))
        # [Q, candidates]; -1 if the search found fewer
        _, proposed = self._graph.search(queries, number, params=SearchParametersHNSW(efSearch=number))
        found = []
        for query, candidates in zip(queries, np.sort(proposed), strict=True):
            candidates = candidates[candidates >= 0]
            if len(candidates) < top_k:
                rows, cosines = nearest(self._vectors, query[np.newaxis], top_k)
                found.append((rows[0], cosines[0]))
                continue
            rows, cosines = nearest(self._vectors[candidates], query[np.newaxis], top_k)
            found.append((candidates[rows[0]], cosines[0]))
        rows, cosines = zip(*found, strict=True)
        return np.stack(rows), np.stack(cosines)


def neighbour_graph(
    folder: str, vectors: Vectors, provenance: Mapping[str, Any], report: Callable[[int], None]
) -> NeighbourGraph:
    """Memory-map the graph of unit vectors; build it first if it is missing, damaged or was built from others."""
    require("faiss", extra="search")
    import faiss

    path, manifest_path = os.path.join(folder, _GRAPH), os.path.join(folder, _GRAPH_MANIFEST)
    provenance = {**provenance, "graph": [_KIND, _EXPANSION]}
    if Manifest.read_if_current(manifest_path, provenance, f"the graph {path}") is None:
        writing.remove(manifest_path)
        graph = faiss.index_factory(vectors.shape[1], _KIND, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = _EXPANSION
        rows_at_a_time = max(_NUMBERS_AT_A_TIME // vectors.shape[1], 1)
        for start in range(0, len(vectors), rows_at_a_time):
            graph.add(np.array(vectors[start : start + rows_at_a_time]))
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


def sentence_vectors(
    texts: Iterable[TextOrPair], encoder: "AnyEncoder", *, is_query: bool = False
) -> Iterator[np.ndarray]:
    """Yield one vector per sentence, the mean of its pooled vectors over the layers; zeros without wordpieces.

    It is scaled to length 1, unless it is sparse.
    """
    for features in encoder.features(texts, is_query=is_query):
        vector = features.vectors.mean(axis=0, dtype=np.float64)
        yield (vector if encoder.is_sparse else normalized(vector)).astype(np.float32)


class SentenceIndex:
    def __init__(self, folder: str, provenance: Mapping[str, Any]):
        self._folder, self._provenance = folder, provenance  # for a `Manifest`: everything that determines the vectors
        self._manifest_path = self.path(_MANIFEST)

    def path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def open(self) -> Vectors | None:
        """Memory-map the vectors, float32 [N, D], if they exist and are up to date; otherwise log the reason."""
        known = Manifest.read_if_current(self._manifest_path, self._provenance, f"the index in {self._folder}")
        if known is None:
            return None
        if _SPARSE in known.num_bytes:
            with np.load(self.path(_SPARSE), allow_pickle=False) as arrays:
                return SparseRows(**{**arrays, "width": int(arrays["width"])})
        return np.load(self.path(_VECTORS), mmap_mode="r")[:, 0]

    def graph(self, vectors: Vectors) -> NeighbourGraph:
        """Return the graph for approximate search in the vectors from `open`; build and store it if needed."""
        with Progress("building the graph", len(vectors), "candidates") as progress:
            return neighbour_graph(self._folder, vectors, self._provenance, progress.update)

    def write(
        self,
        vectors: Iterable[np.ndarray] | None,
        width: int,
        report: Callable[[int], None],
        more: Mapping[str, Callable[[], Mapping[str, Any]]],
    ) -> None:
        """Write the vectors, float32 [D] each, then more NPZ files, then the manifest that marks all as complete."""
        writing.make_folders(self._folder)
        writing.remove(self._manifest_path)
        layout = FeatureLayout(layers=(0,), width=width, is_pooled=True)
        if vectors is not None:
            with feature_writer(self.path(_VECTORS), "npy", layout, tokens_of=list) as write:
                for number, vector in enumerate(vectors):
                    write(TextFeatures(number, (), vector[np.newaxis]))
                    report(number + 1)
        for name, arrays in more.items():
            with writing.atomic_write(self.path(name), "wb") as sink:
                np.savez(sink, **arrays())
        Manifest.write(self._manifest_path, self._provenance, [*([] if vectors is None else [_VECTORS]), *more])


class SentenceSearch:
    """Distinct sentences, their vectors, and nearest-neighbour search over them."""

    def __init__(
        self,
        sentences: Iterable[Sentence],
        encoder: "AnyEncoder",
        index_dir: str | None = None,
        *,
        is_approximate: bool = False,
    ):
        if name := getattr(encoder, "other_similarity", None):
            logging.warning("the model compares vectors by similarity_fn_name=%s; they are ranked by cosine here", name)
        # each sentence with its line numbers; duplicates share a vector and rank alike
        self.lines: dict[TextOrPair, list[int]] = {}
        for line, text in sentences:
            self.lines.setdefault(text, []).append(line)
        index = SentenceIndex(index_dir, self._provenance(encoder)) if index_dir is not None else None
        vectors = index and index.open()
        weights = None
        if encoder.uses_bm25:
            if vectors is not None:
                with np.load(index.path(_WEIGHTS)) as arrays:
                    weights = Bm25Weights(arrays["idf"], float(arrays["average_length"]))
            else:
                weights = encoder.bm25_weights(text for text, lines in self.lines.items() for _ in lines)
            encoder = encoder.with_settings(encoder.settings, bm25=weights)
        self.encoder = encoder  # computes the vectors of queries
        if vectors is not None:
            logging.info("%s: reusing the vectors of %s candidates", index_dir, f"{len(vectors):,}")
        else:
            vectors = self._computed(index, weights)
        self.vectors: Vectors = vectors  # float32 [N, D], of length 1 up to rounding, unless they are sparse
        # finds the rows of `vectors` that are nearest to each query; see `metrics.retrieval.nearest`
        self.nearest_rows = index.graph(vectors).nearest if is_approximate else functools.partial(nearest, vectors)

    def _computed(self, index: SentenceIndex | None, weights: Bm25Weights | None) -> Vectors:
        computed, width = sentence_vectors(self.lines, self.encoder), self.encoder.width
        with Progress("computing vectors", len(self.lines), "candidates") as progress:

            def reported() -> Iterator[np.ndarray]:
                for number, vector in enumerate(computed, start=1):
                    yield vector
                    progress.update(number)

            if self.encoder.is_sparse:
                sparse = SparseRows.from_rows(reported(), width)
                if index is not None:
                    index.write(None, width, progress.update, {_SPARSE: lambda: dataclasses.asdict(sparse)})
                return sparse
            if index is None:
                vectors = np.empty((len(self.lines), width), np.float32)
                for row, vector in enumerate(reported()):
                    vectors[row] = vector
                return vectors
            more = {_WEIGHTS: weights._asdict} if weights else {}
            index.write(computed, width, progress.update, more)
            return index.open()

    def _provenance(self, encoder: "AnyEncoder") -> dict[str, Any]:
        """Return everything that determines the vectors, by its name in messages."""
        digest = hashlib.sha256()
        for item in self.lines.items():
            digest.update(json.dumps(item).encode() + b"\n")
        return {"candidates": digest.hexdigest(), **encoder.provenance}

    def nearest(self, queries: Sequence[TextOrPair], top_k: int) -> list[list[tuple[Sentence, float]]]:
        """Return the sentences with the largest similarity to each query, with their similarities."""
        vectors = np.stack(list(sentence_vectors(queries, self.encoder, is_query=True)))
        rows, cosines = self.nearest_rows(vectors, top_k)
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


class AnchoredPair(NamedTuple):
    """A query and a passage that answers it, or two texts with the same meaning."""

    anchor: str
    positive: str


class NegativeRule(NamedTuple):
    num_negatives: int = 1  # number of negatives per pair
    range_min: int = 0  # number of nearest passages to skip
    range_max: int = 100  # number of nearest passages to consider, including skipped ones
    # minimum by which the positive is more similar to the anchor than a negative; None for no minimum
    margin: float | None = None


def hard_negatives(
    pairs: Sequence[AnchoredPair],
    search: SentenceSearch,
    rule: NegativeRule,
    *,
    query_prefix: str = "",
    passage_prefix: str = "",
) -> Iterator[list[str]]:
    """Find for each pair the passages nearest to its anchor that are not known answers.

    The anchor itself and all its positives are excluded, as are passages that differ from these only in case and
    whitespace.
    """
    passages = [text.text_a.removeprefix(passage_prefix) for text in search.lines]
    row_of = {passage: row for row, passage in enumerate(passages)}
    known: dict[str, set[str]] = defaultdict(set)  # texts that are not negatives of an anchor
    for anchor, positive in pairs:
        known[anchor] |= {_key(anchor), _key(positive)}
    rows_of: dict[str, list[int]] = {key: [] for keys in known.values() for key in keys}
    for row, passage in enumerate(passages):
        rows_of.get(_key(passage), []).append(row)

    for start in range(0, len(pairs), _QUERIES_AT_A_TIME):
        some = pairs[start : start + _QUERIES_AT_A_TIME]
        queries = (TextOrPair(query_prefix + pair.anchor) for pair in some)
        vectors = np.stack(list(sentence_vectors(queries, search.encoder, is_query=True)))
        left_out = [{row for key in known[pair.anchor] for row in rows_of[key]} for pair in some]
        found = search.nearest_rows(vectors, rule.range_max + max(map(len, left_out)))
        for pair, vector, without, rows, cosines in zip(some, vectors, left_out, *found, strict=True):
            limit = np.inf
            if rule.margin is not None:
                of_positive = search.vectors[row_of[pair.positive]]
                limit = float((exact(of_positive) * exact(vector)).sum()) - rule.margin
            others = [(row, cosine) for row, cosine in zip(rows, cosines, strict=True) if row not in without]
            allowed = [row for row, cosine in others[rule.range_min : rule.range_max] if cosine <= limit]
            yield [passages[row] for row in allowed[: rule.num_negatives]]


def _key(text: str) -> str:
    """Return a key that is equal for texts that differ only in case and whitespace."""
    return " ".join(text.casefold().split())


class _Ids(NamedTuple):
    """The ids of N texts: the index of each file in `names`, int32 [N], and the number in that file, int64 [N]."""

    files: np.ndarray
    numbers: np.ndarray
    names: np.ndarray


class VectorIndex:
    """Unit vectors with the ids of their texts, stored in a folder; uses 12 bytes of memory per vector.

    Attributes:
      vectors: float32 [N, D], of length 1 up to rounding, memory-mapped.
    """

    def __init__(self, folder: str, parts: Sequence[str] | None = None, *, is_approximate: bool = False):
        """Open an index; build it first if it is missing, damaged or was built from other parts.

        Args:
          folder: the folder of the index, which also contains the files of a `SentenceIndex`.
          parts: files of `data.feature_files`, in row order; None to open an existing index.
          is_approximate: whether to search with a `NeighbourGraph`, which is kept in the folder.

        Raises:
          UserError: a part cannot be read, there are no vectors, or the index cannot be read or written.
        """
        if parts is None:
            known = Manifest.read_or_none(os.path.join(folder, _MANIFEST))
            provenance = known.provenance if known and _IDS in known.num_bytes else {}
        else:
            for part in parts:
                files.check_file(part, "parts")
            provenance = {
                "parts": [[os.path.basename(part), files.size(part), files.modified_ns(part)] for part in parts]
            }
        index = SentenceIndex(folder, provenance)
        vectors = index.open()
        if vectors is None:
            if parts is None:
                raise UserError(f"{folder} has no index with text ids; give the parts to build it from")
            _make(index, parts)
            vectors = index.open()
        self.vectors: np.ndarray = vectors
        with np.load(index.path(_IDS), allow_pickle=False) as arrays:
            self._ids = _Ids(**arrays)
        self._nearest_rows = index.graph(vectors).nearest if is_approximate else functools.partial(nearest, vectors)

    def nearest(self, queries: np.ndarray, top_k: int) -> list[list[tuple[TextId, float]]]:
        """Find the texts with the largest cosine similarity to each query.

        Args:
          queries: float [Q, D].
          top_k: number of texts to find.

        Returns:
          For each query, the ids of the texts and their similarities, best first.

        Raises:
          UserError: the queries have another shape or are not finite, or `top_k` is less than 1.
        """
        shape, width = np.shape(queries), self.vectors.shape[1]
        if shape[1:] != (width,) or not np.isfinite(queries).all() or top_k < 1:
            raise UserError(
                f"queries of the shape {list(shape)} and top_k={top_k}: give numbers [Q, {width}] and 1 or more"
            )
        if not len(queries):
            return []
        rows, cosines = self._nearest_rows(normalized(queries).astype(np.float32), top_k)
        return [
            [(self._id(row), float(cosine)) for row, cosine in zip(*best, strict=True)]
            for best in zip(rows, cosines, strict=True)
        ]

    def _id(self, row: int) -> TextId:
        return TextId(str(self._ids.names[self._ids.files[row]]), int(self._ids.numbers[row]))


def _make(index: SentenceIndex, parts: Sequence[str]) -> None:
    """Build the index from the vectors of the parts, block by block, with their ids."""
    blocks = read_parts(parts)
    first = next(blocks, None)
    if first is None:
        raise UserError("the parts have no vectors")
    names: dict[str, int] = {}
    file_rows, numbers = [], []

    def vectors() -> Iterator[np.ndarray]:
        for block in itertools.chain([first], blocks):
            file_rows.append(np.array([names.setdefault(text.file, len(names)) for text in block.ids], np.int32))
            numbers.append(np.array([text.number for text in block.ids], np.int64))
            yield from normalized(block.vectors).astype(np.float32)

    def ids() -> dict[str, np.ndarray]:
        return _Ids(np.concatenate(file_rows), np.concatenate(numbers), np.array(list(names)))._asdict()

    with Progress("indexing", None, "vectors") as progress:
        index.write(vectors(), first.vectors.shape[1], progress.update, {_IDS: ids})
