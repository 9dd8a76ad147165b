"""Files of arrays that are too large for memory: written once, block by block, then read in any order.

A file consists of its blocks' bytes, a JSON table of them, the CRC-32C of both, and the table's length. It gets its
name only when complete.
"""

import contextlib
import json
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from typing import IO, Any

import google_crc32c
import numpy as np

from official_bert.support import writing
from official_bert.support.errors import UserError

_FOOTER = struct.Struct("<IQ8s")  # checksum, length of the table, magic
_MAGIC = b"blocks 2"
_READ_BYTES = 1 << 20


class BlockWriter:
    """Writer of the blocks of a file.

    Attributes:
      metadata: JSON values to store with the blocks.
    """

    def __init__(self, sink: IO[bytes]):
        self._sink = sink
        self._checksum = 0
        self._blocks: dict[str, tuple[str, int, int]] = {}
        self.metadata: dict[str, Any] = {}

    def append(self, name: str, array: Any) -> None:
        """Append an array to the current block, or start a new block with this name."""
        array = np.ascontiguousarray(array)
        start = self._sink.tell()
        if name not in self._blocks:
            start += self._write(bytes(-start % 8))  # aligned for `BlockFile.mapped`
            self._blocks[name] = (array.dtype.str, start, start)
        dtype, first, end = self._blocks[name]
        if end != start or dtype != array.dtype.str:
            raise ValueError(f"block {name!r} is no longer the last one, or of another type")
        self._write(array.tobytes())
        self._blocks[name] = (dtype, first, self._sink.tell())

    def close(self) -> None:
        """Write the table."""
        table = json.dumps({"blocks": self._blocks, "metadata": self.metadata}).encode()
        self._write(table)
        self._sink.write(_FOOTER.pack(self._checksum, len(table), _MAGIC))

    def _write(self, data: bytes) -> int:
        self._checksum = google_crc32c.extend(self._checksum, data)
        return self._sink.write(data)


@contextlib.contextmanager
def block_writer(path: str) -> Iterator[BlockWriter]:
    """Open a local block file for writing; it gets its name when the `with` block ends without an error."""
    with writing.atomic_write(path, "wb") as sink:
        writer = BlockWriter(sink)
        yield writer
        writer.close()


def is_intact(path: str) -> bool:
    """Read a whole local file; return True if it is a complete block file with a correct checksum."""
    with open(path, "rb") as source:
        left = os.fstat(source.fileno()).st_size - _FOOTER.size
        checksum = 0
        while left > 0 and (data := source.read(min(left, _READ_BYTES))):
            checksum = google_crc32c.extend(checksum, data)
            left -= len(data)
        footer = source.read()
    if left or len(footer) != _FOOTER.size:
        return False
    expected, _, magic = _FOOTER.unpack(footer)
    return magic == _MAGIC and expected == checksum


class BlockFile:
    """Reader of the blocks of a file; a context manager.

    Attributes:
      metadata: the JSON values stored with the blocks.
    """

    def __init__(self, path: str):
        """Open a local file.

        Raises:
          UserError: it is not a complete block file.
        """
        self._file = open(path, "rb")  # noqa: SIM115  closed by __exit__
        try:
            self.metadata, self._blocks = self._read_table(path)
        except BaseException:
            self._file.close()
            raise

    def _read_table(self, path: str) -> tuple[dict[str, Any], Mapping[str, tuple[np.dtype, int, int]]]:
        size = os.fstat(self._file.fileno()).st_size
        try:
            _, length, magic = _FOOTER.unpack(self._pread(size - _FOOTER.size, _FOOTER.size))
            if magic != _MAGIC:
                raise ValueError
            table = json.loads(self._pread(size - _FOOTER.size - length, length))
        except (OSError, ValueError, RecursionError, struct.error) as error:
            raise UserError(f"{path} is damaged; delete it and run the command again") from error
        blocks = {name: (np.dtype(dtype), start, stop) for name, (dtype, start, stop) in table["blocks"].items()}
        return table["metadata"], blocks

    def __enter__(self) -> "BlockFile":
        return self

    def __exit__(self, *_) -> None:
        self._file.close()

    def _pread(self, position: int, length: int) -> bytes:
        return os.pread(self._file.fileno(), length, position)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Read elements `start` to `stop` of a block; a block that was never written is empty."""
        if name not in self._blocks:
            return np.empty(0)
        dtype, first, end = self._blocks[name]
        first += start * dtype.itemsize
        length = end - first if stop is None else (stop - start) * dtype.itemsize
        return np.frombuffer(self._pread(first, length), dtype)

    @contextlib.contextmanager
    def mapped(self, name: str) -> Iterator[np.ndarray]:
        """Memory-map a block, for random access to a few of its elements."""
        if name not in self._blocks:
            yield np.empty(0)
            return
        dtype, start, stop = self._blocks[name]
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            array = np.frombuffer(view, dtype, (stop - start) // dtype.itemsize, start)
            yield array
            del array  # otherwise the view cannot be closed
