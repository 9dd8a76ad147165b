"""Lists the arrays of an HDF5 file, without running any code, and translates names of Keras 2 to PyTorch's.

`bert/tf_bert_for_pre_training/bert/encoder/layer_._0/output/dense/kernel:0` of a `tf_model.h5`, which lacks the first
two names if the model is split into several files, is `bert.encoder.layer.0.output.dense.weight`, transposed.
"""

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator
from typing import IO, Any

import h5py
import numpy as np

from official_bert.checkpoints.bundle import MAX_DECLARED_BYTES, StoredArray, check_declared
from official_bert.support import files
from official_bert.support.errors import UserError

WEIGHTS_FILE = "tf_model.h5"
_VARIABLE_SUFFIX = ":0"
_MAX_LINKS = 1 << 15  # groups and datasets, with the optimizer's
_KINDS = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}


def list_tensors(path: str, source: IO[bytes], num_bytes: int) -> list[tuple[Any, ...]]:
    """List the weights of a `tf_model.h5`, each once: name, dtype, shape, and a function that reads the numbers."""
    is_whole, found = os.path.basename(path) == WEIGHTS_FILE, {}
    for place, dataset in list_datasets(path, source, num_bytes).items():
        # Before the name are those of a layer and of the model. A head that uses the embeddings holds them again.
        name = re.sub("^[^/]+/[^/]+/(?=.)", "", place) if is_whole else place
        kept = found.setdefault(name, array := StoredArray(path, place, *dataset))
        if kept is not array and (kept.shape != array.shape or not np.array_equal(kept, array)):
            raise UserError(f"{path}: {place} differs from another {name}; is it a mixture of two models?")
    return [(name, array.dtype, array.shape, array.read) for name, array in found.items()]


def in_pytorch(array: StoredArray) -> tuple[str, StoredArray]:
    """Return the name and layout of an array in PyTorch, which differ from those of a Keras variable."""
    name = array.name.removesuffix(_VARIABLE_SUFFIX)
    if name == array.name:
        return name, array
    *layers, kind = re.sub("[^/]+___", "", name).replace("_._", "/").split("/")
    return ".".join((*layers, _KINDS.get(kind, kind))), array.T if kind == "kernel" else array


@contextlib.contextmanager
def _opened(path: str, source: IO[bytes]) -> Iterator[h5py.File]:
    try:
        with h5py.File(source, "r") as file:
            yield file
    except UserError:
        raise
    except Exception as error:  # any kind: h5py has no class for damaged files
        raise UserError(f"{path} is damaged, truncated or not a Keras weights file: {error!s:.200}") from error


def list_datasets(
    path: str, source: IO[bytes], num_bytes: int
) -> dict[str, tuple[np.dtype, tuple[int, ...], Callable[[], np.ndarray]]]:
    """Return the dtype and the shape of each dataset but the optimizer's, and a function that reads it.

    Datasets whose size is not known before reading are refused: those in chunks, which may be compressed, those outside
    of the file, and those with elements of variable length.
    """
    links, found, sizes, num_named = [], {}, {}, 0

    def add(place: str, link: Any) -> bool | None:
        nonlocal num_named
        links.append((place, link))
        num_named += len(place)
        return len(links) > _MAX_LINKS or num_named > MAX_DECLARED_BYTES or None  # True ends the visit

    with _opened(path, source) as file:
        file.visititems_links(add)  # an error in `add` would be lost in HDF5
        for place, link in links:
            if len(links) > _MAX_LINKS or num_named > MAX_DECLARED_BYTES or not isinstance(link, h5py.HardLink):
                raise UserError(f"{path}: {place:.80} is one of too many links or leads elsewhere, as in no Keras file")
            item = file[place]
            if not isinstance(item, h5py.Dataset) or place.startswith("optimizer/"):
                continue
            if item.dtype.hasobject or item.shape is None:
                raise UserError(f"{path}: {place:.80} has elements of variable length, as in no Keras file")
            if item.chunks or item.external or item.is_virtual or item.id.get_storage_size() < item.nbytes:
                raise UserError(f"{path}: the data of {place:.80} is compressed or not in this file; save it again")
            found[place] = (item.dtype, item.shape, functools.partial(_read_dataset, path, place))
            sizes[place] = (item.shape, item.dtype.itemsize)
    check_declared(path, sizes, num_bytes)
    return found


def _read_dataset(path: str, place: str) -> np.ndarray:
    with files.open_file(path, "rb") as source, _opened(path, source) as file:
        return file[place][()]
