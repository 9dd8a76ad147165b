"""Vectors and their texts in the format of TensorBoard's Embedding Projector: a folder of three files."""

import os
from collections.abc import Iterable, Mapping

import numpy as np

from official_bert.support import writing

_CONFIG, _VECTORS, _METADATA = "projector_config.pbtxt", "vectors.tsv", "metadata.tsv"
_ROWS_AT_ONCE = 4096


def projector_files(folder: str) -> list[str]:
    """Return the paths that `write_projector_files` writes to."""
    return [os.path.join(folder, name) for name in (_VECTORS, _METADATA, _CONFIG)]


def write_projector_files(
    folder: str, name: str, vectors: np.ndarray, metadata: Mapping[str, Iterable[str | int]]
) -> None:
    """Write vectors and their metadata; all files appear at once.

    Args:
      vectors: float32 [N, D]; may be memory-mapped.
    """
    writing.make_folders(folder)
    with writing.atomic_writes(projector_files(folder)) as (vectors_sink, metadata_sink, config_sink):
        for start in range(0, len(vectors), _ROWS_AT_ONCE):
            np.savetxt(vectors_sink, vectors[start : start + _ROWS_AT_ONCE], fmt="%.6g", delimiter="\t")
        for row in (metadata, *zip(*metadata.values(), strict=True)):
            metadata_sink.write("\t".join(map(str, row)) + "\n")
        shape = "\n".join(f"  tensor_shape: {size}" for size in vectors.shape)
        config_sink.write(
            f'embeddings {{\n  tensor_name: "{name}"\n{shape}\n  tensor_path: "{_VECTORS}"\n'
            f'  metadata_path: "{_METADATA}"\n}}\n'
        )
