"""Reads the tensors of a `pytorch_model.bin` without PyTorch and without running any code in the file.

Such a file is a pickle, a program that may call any function by name. Here only the names of tensors and their storages
are known, and they map to immutable values of this module.
"""

import collections
import functools
import io
import math
import operator
import pickle
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from official_bert.checkpoints.pickle_scan import MAX_BYTES, PickleError, check_pickle

_MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of a file of PyTorch before 1.6; later ones are zip files
_MAX_RANK = 8
_DTYPES = {
    "DoubleStorage": np.dtype(np.float64),
    "FloatStorage": np.dtype(np.float32),
    "HalfStorage": np.dtype(np.float16),
    "BFloat16Storage": np.dtype(tf.bfloat16.as_numpy_dtype),
    "LongStorage": np.dtype(np.int64),
    "IntStorage": np.dtype(np.int32),
    "ShortStorage": np.dtype(np.int16),
    "CharStorage": np.dtype(np.int8),
    "ByteStorage": np.dtype(np.uint8),
    "BoolStorage": np.dtype(np.bool_),
}


class _Storage(NamedTuple):
    """The numbers behind tensors, identified by a key in the pickle."""

    dtype: np.dtype
    key: str
    size: int


class _Tensor(NamedTuple):
    """A view of a storage, in elements, not bytes."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Function(NamedTuple):
    """A function that a pickle may call; a tuple, so that its attributes cannot be set."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def read_tensors(data: bytes) -> dict[str, np.ndarray]:
    """Read a dict of tensors written by `torch.save`.

    Args:
      data: the contents of the file.

    Returns:
      Name to array, most of them views of `data`.

    Raises:
      PickleError: it is damaged, or contains or requests something else.
    """
    try:
        is_zip = data[:4] == b"PK\x03\x04"
        tensors, storage_bytes = _open_zip(data) if is_zip else _open_legacy(data)
        if not isinstance(tensors, dict) or not tensors:
            raise PickleError("does not contain a dict of tensors")
        return {name: _array(name, tensor, storage_bytes) for name, tensor in tensors.items()}
    except PickleError:
        raise
    except Exception as error:  # any kind: the file determines the operations
        raise PickleError(
            f"is damaged, truncated or not a PyTorch file: {str(error) or type(error).__name__}"
        ) from error


def _open_zip(data: bytes) -> tuple[Any, Callable[[_Storage], memoryview]]:
    """Return the contents of the pickle, and a function that returns the bytes of a storage."""
    archive = zipfile.ZipFile(io.BytesIO(data))
    members = {member.filename: member for member in archive.infolist()}
    pickles = [name for name in members if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise PickleError("is a zip file without PyTorch's data.pkl")
    folder = pickles[0].removesuffix("data.pkl")
    order = members.get(f"{folder}byteorder")
    if order is not None and order.file_size < 16 and archive.read(order).strip() != b"little":
        raise PickleError("was written on a big-endian machine; save it again with PyTorch on a little-endian one")
    if members[pickles[0]].file_size > MAX_BYTES:
        raise PickleError("has a pickle of more than 64 MiB")

    @functools.cache
    def storage_bytes(storage: _Storage) -> memoryview:
        member = members.get(f"{folder}data/{storage.key}")
        if member is None:
            raise PickleError(f"lacks the storage {storage.key!r:.80}; is it truncated?")
        header = member.header_offset
        name_length, extra_length = np.frombuffer(data, "<u2", 2, header + 26).tolist()
        start = header + 30 + name_length + extra_length
        content = memoryview(data)[start : start + member.file_size]
        if zlib.crc32(content) != member.CRC:
            raise PickleError(f"is damaged: the storage {storage.key!r:.80} differs from its checksum")
        return content

    return _unpickle(io.BytesIO(archive.read(pickles[0]))), storage_bytes


def _open_legacy(data: bytes) -> tuple[Any, Callable[[_Storage], memoryview]]:
    """Like `_open_zip`, for files from before PyTorch 1.6: pickles, followed by the storages."""
    stream = io.BytesIO(data)
    magic, _, _ = (_unpickle(stream) for _ in ("magic number", "version", "properties of the machine"))
    if magic != _MAGIC:
        raise PickleError("is not a PyTorch file")
    storages: dict[str, _Storage] = {}
    tensors, keys, contents = _unpickle(stream, storages), _unpickle(stream), {}
    position = stream.tell()
    for key in keys:
        start = position + 8  # after the number of elements
        position = start + storages[key].size * storages[key].dtype.itemsize
        contents[key] = memoryview(data)[start:position]
    return tensors, lambda storage: contents[storage.key]


def _unpickle(stream: io.BytesIO, storages: dict[str, _Storage] | None = None) -> Any:
    """Load one pickle; add the storages that it references to `storages`."""
    check_pickle(stream)
    return _Unpickler(stream, {} if storages is None else storages).load()


class _Unpickler(pickle.Unpickler):
    """An unpickler that accepts only the names of tensors and their storages."""

    def __init__(self, stream: io.BytesIO, storages: dict[str, _Storage]):
        super().__init__(stream, encoding="utf-8")
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        """Return the value for a name."""
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Function(_rebuild_tensor)
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return _Function(_rebuild_parameter)
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch" and name in _DTYPES:
            return name
        raise PickleError(
            f"asks for {module}.{name}, which weights do not need; it was not run, and the file may be malicious: get "
            "the model's model.safetensors, or the file from its author"
        )

    def persistent_load(self, pid: Any) -> _Storage:
        """Return the storage that a pickle references."""
        kind, dtype, key, _, size = pid[:5]
        if kind != "storage" or dtype not in _DTYPES or not isinstance(key, str):
            raise PickleError(f"names {_shown(kind)} instead of a storage")
        if len(pid) > 5 and pid[5] is not None:
            raise PickleError(f"contains the storage {key!r:.80} as a view of another one; save it again with PyTorch")
        return self._storages.setdefault(key, _Storage(_DTYPES[dtype], key, operator.index(size)))


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise PickleError("has a tensor without a storage")
    if len(shape) > _MAX_RANK or len(strides) > _MAX_RANK:
        raise PickleError(f"has a tensor of {len(shape)} dimensions, which is too many")
    return _Tensor(
        storage, operator.index(offset), tuple(map(operator.index, shape)), tuple(map(operator.index, strides))
    )


def _rebuild_parameter(tensor: Any, *_: Any) -> _Tensor:
    if not isinstance(tensor, _Tensor):
        raise PickleError("has a parameter without a tensor")
    return tensor


def _shown(value: Any) -> str:
    return f"{value!r:.80}" if isinstance(value, str) else f"a {type(value).__name__}"  # its repr may be endless


def _array(name: Any, tensor: Any, storage_bytes: Callable[[_Storage], memoryview]) -> np.ndarray:
    """Return the elements of a tensor, after checking that they lie within its storage."""
    if not isinstance(tensor, _Tensor) or not isinstance(name, str):
        raise PickleError(f"has no tensor named {_shown(name)}; only dicts of tensors can be read")
    storage, offset, shape, strides = tensor
    count = math.prod(shape)
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min((offset, *shape, *strides)) < 0 or count > storage.size:
        raise PickleError(f"has a tensor {name!r:.80} of shape {list(shape)!s:.80}, which does not fit its storage")
    content = storage_bytes(storage)
    if len(content) != storage.size * storage.dtype.itemsize or (count and last >= storage.size):
        raise PickleError(
            f"has {len(content)} bytes for the tensor {name!r:.80} of shape {list(shape)!s:.80}; is it truncated?"
        )
    numbers = np.frombuffer(content, storage.dtype)[offset:]
    steps = [stride * storage.dtype.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(numbers, shape, steps, writeable=False)
