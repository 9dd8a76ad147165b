"""Reads TensorFlow's checkpoints without TensorFlow: `TensorBundle`, the arrays of a V2 bundle by name.

`PREFIX.index` is a table of sorted keys in blocks, as LevelDB writes them: a BundleHeaderProto under the empty key, and
a BundleEntryProto under the name of each array. `PREFIX.data-00000-of-00001` and further shards have the arrays' bytes.
All bytes have checksums, which are checked.
"""

import itertools
import math
import struct
import sys
from collections.abc import Iterator
from operator import index
from typing import Any, NamedTuple

import google_crc32c
import ml_dtypes
import numpy as np

from official_bert.support import files
from official_bert.support.wire import masked, read_fields, read_varint

_MAX_BYTES = 2 << 20  # of the index, and of all keys together; 50 KiB are usual
_MAGIC = bytes.fromhex("57fb808b247547db")
_FOOTER_BYTES = 48  # the places of two blocks, padded with zeros, and the magic number
_TRAILER = struct.Struct("<BI")  # after a block: its compression, and a checksum
_UINT32 = struct.Struct("<I")
_MALFORMED = (IndexError, KeyError, TypeError, UnicodeDecodeError, struct.error)
_DTYPES = {
    1: np.float32, 2: np.float64, 3: np.int32, 4: np.uint8, 5: np.int16, 6: np.int8, 7: object, 8: np.complex64,
    9: np.int64, 10: bool, 14: ml_dtypes.bfloat16, 17: np.uint16, 18: np.complex128, 19: np.float16, 22: np.uint32,
    23: np.uint64,
}  # fmt: skip
_OTHER_DTYPE = "V1"  # quantized numbers, for example


class ArrayEntry(NamedTuple):
    """Type and place of the bytes of an array."""

    dtype: np.dtype
    shape: tuple[int, ...]
    shard: int
    offset: int
    num_bytes: int
    checksum: int
    # of a partitioned variable, whose parts have entries of their own: start and length of each part on each axis
    parts: list[list[tuple[int, int]]]


class TensorBundle:
    """The arrays of a checkpoint. For damaged files, its methods raise ValueError or OSError."""

    def __init__(self, prefix: str):
        """Read the index."""
        self._prefix, path = prefix, f"{prefix}.index"
        if (num_bytes := files.size(path)) > _MAX_BYTES:
            raise ValueError(f"{path} has {num_bytes:,} bytes; the limit is {_MAX_BYTES:,}: it describes no BERT")
        try:
            entries = dict(_table(files.read_part(path, 0, num_bytes)))
            header = read_fields(entries.pop(b""))
            self._num_shards, self._is_swapped = index(_last(header[1])), _last(header[2]) != (sys.byteorder == "big")
            self._entries = {key: _entry(value) for key, value in entries.items()}
            self.entries = {key.decode(): entry for key, entry in self._entries.items() if key[0]}  # not those of parts
        except _MALFORMED as error:
            raise ValueError(f"{path} is damaged") from error
        self.num_bytes = sum(files.size(self._shard(number)) for number in range(self._num_shards))
        declared = sum(entry.num_bytes for entry in self._entries.values())
        if declared > self.num_bytes:
            raise ValueError(f"{path} declares {declared:,} bytes, but there are {self.num_bytes:,}; is one truncated?")

    def read(self, name: str) -> Any:
        """Read an array as it is stored, strings as `bytes`."""
        whole = self.entries[name]
        return (self._joined(name, whole) if whole.parts else self._read(whole))[()]

    def _shard(self, number: int) -> str:
        return f"{self._prefix}.data-{number:05d}-of-{self._num_shards:05d}"

    def _read(self, entry: ArrayEntry) -> np.ndarray:
        path, count = self._shard(entry.shard), math.prod(entry.shape)
        if entry.dtype != object and entry.num_bytes != count * entry.dtype.itemsize:
            raise ValueError(f"it declares {entry.num_bytes:,} bytes for {count:,} numbers of the type {entry.dtype}")
        content = files.read_part(path, entry.offset, entry.num_bytes)
        if entry.dtype == object:
            values, checksum = _strings(content, count)
        else:
            values, checksum = np.frombuffer(content, entry.dtype), google_crc32c.value(content)
            values = values.byteswap() if self._is_swapped else values
        if masked(checksum) != entry.checksum:
            raise ValueError(f"{path} is damaged: its bytes from {entry.offset:,} do not match their checksum")
        return values.reshape(entry.shape)

    def _joined(self, name: str, whole: ArrayEntry) -> np.ndarray:
        """Join the parts of a partitioned variable, of which each number is in one."""
        mistake, placed = ValueError(f"the parts of {name} do not make it up"), []
        for extents in whole.parts:
            if len(extents) != len(whole.shape):
                raise mistake
            axes = list(zip(extents, whole.shape, strict=True))
            place = tuple(slice(start, start + length if length >= 0 else size) for (start, length), size in axes)
            shape = tuple(axis.stop - axis.start for axis in place)
            are_inside = all(0 <= axis.start <= axis.stop <= size for axis, (_, size) in zip(place, axes, strict=True))
            part = self._entries.get(_key_of_part(name, extents))
            if not are_inside or part is None or (part.dtype, part.shape) != (whole.dtype, shape):
                raise mistake
            placed.append((place, part))
        if sum(math.prod(part.shape) for _, part in placed) != math.prod(whole.shape):
            raise mistake
        joined, is_set = np.empty(whole.shape, whole.dtype), np.zeros(whole.shape, bool)
        for place, part in placed:
            joined[place], is_set[place] = self._read(part), True
        if not is_set.all():
            raise mistake
        return joined


def _table(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table, in order."""
    footer, num_key_bytes, last = content[-_FOOTER_BYTES:], 0, None
    if len(footer) < _FOOTER_BYTES or not footer.endswith(_MAGIC):
        raise ValueError("it has no index of a checkpoint in TensorFlow's V2 format")
    *of_metadata, position = _place(footer, 0)
    *of_index, position = _place(footer, position)
    _block(content, *of_metadata)  # it is empty, but has a checksum
    if footer[position : -len(_MAGIC)].strip(b"\0"):
        raise IndexError("the padding is not 0")
    for end_key, place in _rows(_block(content, *of_index)):
        offset, size, _ = _place(place, 0)
        num_key_bytes += len(end_key)
        for key, value in _rows(_block(content, offset, size)):
            num_key_bytes += len(key)
            if num_key_bytes > _MAX_BYTES or (last is not None and key <= last):
                raise IndexError("keys are too long, or out of order")
            last = key
            yield key, value


def _place(content: bytes, position: int) -> tuple[int, int, int]:
    """Return offset and size of a block, and the position after both."""
    offset, position = read_varint(content, position)
    return offset, *read_varint(content, position)


def _block(content: bytes, offset: int, size: int) -> bytes:
    block = content[offset : offset + size]
    compression, checksum = _TRAILER.unpack(content[offset + size :][: _TRAILER.size])
    if masked(google_crc32c.extend(google_crc32c.value(block), bytes([compression]))) != checksum:
        raise ValueError("its index does not match its checksum; it is damaged")
    if compression:
        raise ValueError("its index is compressed, as TensorFlow never writes it; save it with TensorFlow again")
    return block


def _rows(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of a block, whose keys leave out what they share with the one before."""
    (num_restarts,) = _UINT32.unpack(block[-_UINT32.size :])
    end, position, key = len(block) - _UINT32.size * (num_restarts + 1), 0, b""
    while position < end:
        num_shared, position = read_varint(block, position)
        num_own, position = read_varint(block, position)
        size, position = read_varint(block, position)
        middle = position + num_own
        if num_shared > len(key) or middle + size > end:
            raise IndexError("a row is cut off")
        key = key[:num_shared] + block[position:middle]
        yield key, block[middle : middle + size]
        position = middle + size


def _entry(content: bytes) -> ArrayEntry:
    found = read_fields(content)
    shape = [_last(read_fields(axis)[1]) for axis in read_fields(_last(found[2], b""))[2]]
    parts = [
        [(index(_last(extent[1])), index(_last(extent[2], -1))) for extent in map(read_fields, read_fields(part)[1])]
        for part in found[7]
    ]
    dtype = np.dtype(_DTYPES.get(_last(found[1]), _OTHER_DTYPE))
    numbers = (index(_last(found[number])) for number in (3, 4, 5, 6))
    return ArrayEntry(dtype, tuple(map(index, shape)), *numbers, parts)


def _last(values: list[Any], default: Any = 0) -> Any:
    """Return the value of a field that is not repeated."""
    return values[-1] if values else default


def _strings(content: bytes, count: int) -> tuple[np.ndarray, int]:
    """Return the strings in the bytes of an array, and the checksum of all: of lengths, their checksum and strings."""
    position, checksum, ends = 0, 0, [0]
    try:
        for _ in range(count):
            length, position = read_varint(content, position)
            checksum = google_crc32c.extend(checksum, length.to_bytes(4 if length < 1 << 32 else 8, "little"))
            ends.append(ends[-1] + length)
        if _UINT32.unpack_from(content, position)[0] != masked(checksum):
            raise IndexError("the lengths do not match their checksum")
    except _MALFORMED as error:
        raise ValueError("the lengths of strings are damaged") from error
    checksum = google_crc32c.extend(checksum, content[position:])
    text = content[position + _UINT32.size :]
    values = np.empty(count, object)
    values[:] = [text[start:end] for start, end in itertools.pairwise(ends)]
    return values, checksum


def _key_of_part(name: str, extents: list[tuple[int, int]]) -> bytes:
    """Return the key of a part: 0, the name and the extents in the order-preserving code of TensorFlow."""
    escaped = name.encode().replace(b"\0", b"\0\xff")
    numbers = b"".join(_ordered(number) for extent in extents for number in extent)
    return b"\0" + escaped + b"\0\1" + bytes([1, len(extents)]) + numbers


def _ordered(number: int) -> bytes:
    """Encode an integer so that codes sort as the numbers do: n bytes begin with n bits that differ from its sign."""
    size = (number if number >= 0 else ~number).bit_length() // 7 + 1
    code = (number & ((1 << 8 * size) - 1)) ^ (((1 << size) - 1) << 7 * size)
    return code.to_bytes(size, "big")
