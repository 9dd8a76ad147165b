"""Lists the tensors of a `pytorch_model.bin` without PyTorch and without running any code in the file.

Such a file is a pickle, a program that may call any function by name. Here only the operations, names and values that
tensors need exist, and the values map to plain ones of this module.
"""

import functools
import io
import math
import operator
import pickle
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable
from typing import IO, Any, NamedTuple

import ml_dtypes
import numpy as np

from official_bert.checkpoints.bundle import MAX_ARRAYS, MAX_DECLARED_BYTES, check_stored
from official_bert.support import files
from official_bert.support.errors import UserError

_MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of a file of PyTorch before 1.6; later ones are zip files
_MAX_ARGUMENTS = 8
# The operations that weights need; none takes more memory than its own bytes.
_OPERATIONS = (
    pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.INT,
    pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG, pickle.LONG1, pickle.BINFLOAT, pickle.UNICODE,
    pickle.BINUNICODE, pickle.SHORT_BINUNICODE, pickle.STRING, pickle.BINSTRING, pickle.SHORT_BINSTRING,
    pickle.EMPTY_TUPLE, pickle.EMPTY_LIST, pickle.EMPTY_DICT, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3,
    pickle.APPEND, pickle.APPENDS, pickle.SETITEM, pickle.SETITEMS, pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.REDUCE,
    pickle.BUILD, pickle.BINPERSID, pickle.PUT, pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE, pickle.GET,
    pickle.BINGET, pickle.LONG_BINGET,
)  # fmt: skip
_DTYPES = {
    "torch DoubleStorage": np.dtype(np.float64),
    "torch FloatStorage": np.dtype(np.float32),
    "torch HalfStorage": np.dtype(np.float16),
    "torch BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "torch LongStorage": np.dtype(np.int64),
    "torch IntStorage": np.dtype(np.int32),
    "torch ShortStorage": np.dtype(np.int16),
    "torch CharStorage": np.dtype(np.int8),
    "torch ByteStorage": np.dtype(np.uint8),
    "torch BoolStorage": np.dtype(np.bool_),
}


class _PickleError(ValueError):
    """The file is damaged or requests what weights do not need; the message continues the file's name."""


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


def list_tensors(path: str, source: IO[bytes], num_bytes: int) -> list[tuple[Any, ...]]:
    """List the tensors that `torch.save` wrote: name, dtype, shape, and a function that reads the elements."""
    try:
        open_kind = _open_zip if zipfile.is_zipfile(source) else _open_legacy
        source.seek(0)
        tensors, read_storage = open_kind(path, source, num_bytes)
        if not isinstance(tensors, dict) or not tensors:
            raise _PickleError("does not contain a dict of tensors")
        read_storage = functools.lru_cache(maxsize=1)(read_storage)  # tensors that are parts of one storage
        return [_declared(name, tensor, read_storage) for name, tensor in tensors.items()]
    except UserError:
        raise
    except _PickleError as error:
        raise UserError(f"{path} {error}") from error
    except Exception as error:  # any kind: the file determines the operations
        reason = str(error) or type(error).__name__
        raise UserError(f"{path} is damaged, truncated or not a PyTorch file: {reason:.200}") from error


def _open_zip(path: str, source: IO[bytes], num_bytes: int) -> tuple[Any, Callable[[_Storage], bytes]]:
    """Return the contents of the pickle, and a function that reads a storage."""
    archive = zipfile.ZipFile(source)
    members = {member.filename: member for member in archive.infolist()[: MAX_ARRAYS + 100]}
    pickles = [name for name in members if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise _PickleError("is a zip file without PyTorch's data.pkl")
    folder = pickles[0].removesuffix("data.pkl")
    order = members.get(f"{folder}byteorder")
    check_stored(path, members.values(), num_bytes)
    if order is not None and order.file_size < 16 and archive.read(order).strip() != b"little":
        raise _PickleError("was written on a big-endian machine; save it again with PyTorch on a little-endian one")
    if members[pickles[0]].file_size > MAX_DECLARED_BYTES:
        raise _PickleError("has a pickle that is too large for weights")

    def read_storage(storage: _Storage) -> bytes:
        member = members.get(f"{folder}data/{storage.key}")
        if member is None:
            raise UserError(f"{path} lacks the storage {storage.key!r:.80}; is it truncated?")
        start = member.header_offset + 30
        start += sum(struct.unpack("<2H", files.read_part(path, start - 4, 4)))  # lengths of name and extra field
        content = files.read_part(path, start, storage.size * storage.dtype.itemsize)
        if zlib.crc32(content) != member.CRC:
            raise UserError(f"{path} is damaged: the storage {storage.key!r:.80} differs from its checksum")
        return content

    return _unpickle(io.BytesIO(archive.read(pickles[0]))), read_storage


def _open_legacy(path: str, source: IO[bytes], num_bytes: int) -> tuple[Any, Callable[[_Storage], bytes]]:
    """Like `_open_zip`, for files from before PyTorch 1.6: pickles, followed by the storages."""
    stream = io.BytesIO(source.read(MAX_DECLARED_BYTES))
    if stream.getvalue().startswith(b"PK"):
        raise _PickleError("is a zip file that is damaged or truncated; get it again")
    magic, _, _ = (_unpickle(stream) for _ in ("magic number", "version", "properties of the machine"))
    if magic != _MAGIC:
        raise _PickleError("is not a PyTorch file")
    tensors, keys, starts = _unpickle(stream), _unpickle(stream), {}
    storages = {tensor.storage.key: tensor.storage for tensor in tensors.values() if isinstance(tensor, _Tensor)}
    position = stream.tell()
    for key in keys:
        starts[key] = position + 8  # after the number of elements
        position = starts[key] + storages[key].size * storages[key].dtype.itemsize
    if lacking := sorted(storages.keys() - starts.keys()):
        raise _PickleError(f"lacks the storage {lacking[0]!r:.80}; is it truncated?")
    if position > num_bytes:
        raise _PickleError(f"has {num_bytes:,} bytes instead of {position:,}; is it truncated?")
    return tensors, lambda item: files.read_part(path, starts[item.key], item.size * item.dtype.itemsize)


class _Operations(dict[int, Callable[[Any], None]]):
    def __missing__(self, code: int) -> None:
        name = pickletools.code2op[chr(code)].name
        raise _PickleError(f"has the pickle operation {name}, which weights do not need")


class _Unpickler(pickle._Unpickler):  # the one in Python, whose operations can be chosen and whose memo is a dict
    """Runs a pickle in time and memory that are proportional to its length."""

    dispatch = _Operations({code[0]: pickle._Unpickler.dispatch[code[0]] for code in _OPERATIONS})

    def find_class(self, module: str, name: str) -> Any:
        if f"{module} {name}" not in _NAMES:
            raise _PickleError(
                f"asks for {f'{module}.{name}':.200}, which weights do not need; it was not run, and the file may be "
                "malicious: get the model's model.safetensors, or the file from its author"
            )
        return _NAMES[f"{module} {name}"]

    def persistent_load(self, pid: Any) -> _Storage:
        return _storage(*_only(tuple, pid)[:6])

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _only(dict, self.stack[-1])[_only(str, key)] = value  # hashing another key may take forever

    def _set_items(self) -> None:
        items = self.pop_mark()
        _set_items(_only(dict, self.stack[-1]), zip(items[::2], items[1::2], strict=True))

    def _reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if len(arguments) > _MAX_ARGUMENTS or not callable(function):
            raise _PickleError("calls what is not a function of tensors")
        self.stack.append(function(*arguments))

    def _build(self) -> None:
        self.stack.pop()  # attributes of the dict of tensors, which PyTorch adds
        _only(dict, self.stack[-1])

    dispatch |= {
        pickle.SETITEM[0]: _set_item,
        pickle.SETITEMS[0]: _set_items,
        pickle.REDUCE[0]: _reduce,
        pickle.BUILD[0]: _build,
    }


def _unpickle(stream: IO[bytes]) -> Any:
    return _Unpickler(stream, encoding="latin1").load()


def _only(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise _PickleError(f"has {_shown(value)} where weights have a {kind.__name__}")
    return value


def _storage(kind: Any, dtype: Any, key: Any, _: Any, size: Any, view: Any = None) -> _Storage:
    if kind != "storage" or not isinstance(dtype, np.dtype) or not isinstance(key, str):
        raise _PickleError(f"names {_shown(kind)} instead of a storage")
    if view is not None:
        raise _PickleError(f"contains the storage {key!r:.80} as a view of another one; save it again with PyTorch")
    return _Storage(dtype, key, operator.index(size))


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise _PickleError("has a tensor without a storage")
    if max(len(shape), len(strides)) > _MAX_ARGUMENTS:
        raise _PickleError(f"has a tensor of {len(shape)} dimensions, which is too many")
    shape, strides = (tuple(map(operator.index, numbers)) for numbers in (shape, strides))
    return _Tensor(storage, operator.index(offset), shape, strides)


def _ordered_dict(items: Any = ()) -> dict[str, Any]:
    made = {}
    if items:  # as Python 2 writes it; the list is emptied, so that it cannot become many dicts
        _set_items(made, _only(list, items))
        items.clear()
    return made


def _set_items(made: dict[str, Any], items: Iterable[Any]) -> None:
    for key, value in items:
        made[_only(str, key)] = value


_NAMES = {
    **_DTYPES,
    "torch._utils _rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils _rebuild_parameter": lambda tensor, *_: tensor,
    "collections OrderedDict": _ordered_dict,
}


def _shown(value: Any) -> str:
    return f"{value!r:.80}" if isinstance(value, str) else f"a {type(value).__name__}"  # its repr may be endless


def _declared(name: str, tensor: Any, read_storage: Callable[[_Storage], bytes]) -> tuple[Any, ...]:
    if not isinstance(tensor, _Tensor):
        raise _PickleError(f"has no tensor named {_shown(name)}; only dicts of tensors can be read")
    storage, offset, shape, strides = tensor
    count = math.prod(shape)
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if min((offset, *shape, *strides)) < 0 or count > storage.size or (count and last >= storage.size):
        raise _PickleError(f"has a tensor {name!r:.80} of shape {list(shape)!s:.80}, which does not fit its storage")

    def read() -> np.ndarray:
        numbers = np.frombuffer(read_storage(storage), storage.dtype)[offset:]
        steps = [stride * storage.dtype.itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(numbers, shape, steps, writeable=False)

    return name, storage.dtype, shape, read
