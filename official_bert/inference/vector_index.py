"""`VectorIndex`: an index of precomputed vectors, such as those that `beam_predict` writes."""

import os
import zipfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

from official_bert.data.feature_files import TextId, VectorBlock, read_parts
from official_bert.inference.sentence_index import SentenceIndex
from official_bert.metrics.retrieval import nearest, normalized
from official_bert.support import files, writing
from official_bert.support.console import Progress
from official_bert.support.errors import UserError

_IDS = "ids.npz"


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
        provenance = None
        if parts is not None:
            provenance = {
                "parts": [[os.path.basename(part), files.size(part), files.modified_ns(part)] for part in parts]
            }
        index = SentenceIndex(folder, provenance)
        path = os.path.join(folder, _IDS)
        vectors = index.open()
        ids = None if vectors is None else _read_ids(path, len(vectors))
        if ids is None:
            if parts is None:
                raise UserError(f"{folder} has no index with text ids; give the parts to build it from")
            _make(index, parts, path)
            vectors = index.open()
            ids = _read_ids(path, len(vectors))
        self.vectors: np.ndarray = vectors
        self._ids = ids
        self._graph = index.graph(vectors) if is_approximate else None

    def nearest(self, queries: np.ndarray, top_k: int) -> list[list[tuple[TextId, float]]]:
        """Find the texts with the largest cosine similarity to each query.

        Args:
          queries: float [Q, D].
          top_k: number of texts to find.

        Returns:
          For each query, the ids of the texts and their similarities, best first.
        """
        unit = normalized(queries).astype(np.float32)
        rows, cosines = self._graph.nearest(unit, top_k) if self._graph else nearest(self.vectors, unit, top_k)
        return [
            [(self._id(row), float(cosine)) for row, cosine in zip(*best, strict=True)]
            for best in zip(rows, cosines, strict=True)
        ]

    def _id(self, row: int) -> TextId:
        return TextId(str(self._ids.names[self._ids.files[row]]), int(self._ids.numbers[row]))


def _read_ids(path: str, number: int) -> _Ids | None:
    """Read the ids of `number` texts; return None if the file is missing or damaged, and log the damage."""
    if not files.exists(path):
        return None
    try:
        with np.load(path, allow_pickle=False) as arrays:
            ids = _Ids(**arrays)
        if len(ids.files) == len(ids.numbers) == number:
            return ids
        reason = f"{len(ids.files)} ids for {number} vectors"
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as error:
        reason = error
    logging.info("%s is damaged: %s", path, reason)
    return None


def _make(index: SentenceIndex, parts: Sequence[str], path: str) -> None:
    """Build the index from the vectors of the parts, block by block, and write their ids to a file."""
    blocks = read_parts(parts)
    first = next(blocks, None)
    if first is None:
        raise UserError("the parts have no vectors")
    names: dict[str, int] = {}
    file_rows, numbers = [], []

    def vectors() -> Iterator[np.ndarray]:
        block: VectorBlock | None = first
        while block is not None:
            file_rows.append(np.array([names.setdefault(text.file, len(names)) for text in block.ids], np.int32))
            numbers.append(np.array([text.number for text in block.ids], np.int64))
            yield from normalized(block.vectors).astype(np.float32)
            block = next(blocks, None)
        ids = _Ids(np.concatenate(file_rows), np.concatenate(numbers), np.array(list(names)))
        with writing.atomic_write(path, "wb") as sink:
            np.savez(sink, **ids._asdict())

    with Progress("indexing", None, "vectors") as progress:
        index.write(vectors(), first.vectors.shape[1], None, progress.update, more_files=[_IDS])
