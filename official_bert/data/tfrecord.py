"""The TFRecord format without TensorFlow, which takes seconds and hundreds of megabytes to import.

A record on disk is its length (uint64), the length's checksum, its bytes, and their checksum. A file may be compressed
with gzip as a whole, which is detected from its first bytes.
"""

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, Literal

from google_crc32c import value as crc32c

from official_bert.support import files
from official_bert.support.errors import UserError

GZIP = "gzip"
FRAME_BYTES = 16  # per record on disk, in addition to its data

_LENGTH = struct.Struct("<Q")
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_LEVEL = 6
_BLOCK_BYTES = 1 << 20


def _masked_checksum(data: bytes) -> int:
    """Return a CRC-32C, rotated and shifted so that checksums of data that contains checksums remain good."""
    checksum = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


class _HeaderTable(dict):
    """Cache of headers; the lengths of pretraining records differ by few bytes."""

    def __missing__(self, length: int) -> bytes:
        packed = _LENGTH.pack(length)
        header = self[length] = packed + _CHECKSUM.pack(_masked_checksum(packed))
        return header


_HEADERS = _HeaderTable()


def frame(record: bytes) -> bytes:
    """Return a record in on-disk format."""
    return b"".join((_HEADERS[len(record)], record, _CHECKSUM.pack(_masked_checksum(record))))


def compressed_sink(sink: IO[bytes]) -> gzip.GzipFile:
    """Compress a file's output deterministically; close it before the file."""
    return gzip.GzipFile(filename="", fileobj=sink, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0)


def compressed(data: bytes) -> bytes:
    """Compress bytes; compressed pieces can be concatenated."""
    return gzip.compress(data, _GZIP_LEVEL, mtime=0)


def compression_type(path: str) -> Literal["", "GZIP"]:
    """Return the compression of a TFRecord file, as named in `tf.data.TFRecordDataset`.

    Raises:
      UserError: the file cannot be read.
    """
    with files.open_file(path, "rb") as source:
        start = source.read(_HEADER.size)
    if not start.startswith(_GZIP_MAGIC) or _is_header(start):  # a record length may look like gzip
        return ""
    return "GZIP"


def _is_header(data: bytes) -> bool:
    if len(data) < _HEADER.size:
        return False
    _, checksum = _HEADER.unpack(data)
    return checksum == _masked_checksum(data[: _LENGTH.size])


def read_records(path: str) -> Iterator[bytes]:
    """Read the records of a TFRecord file and check every checksum.

    Raises:
      UserError: the file cannot be read or is empty, or a record is corrupt or truncated; the message gives its number
        from 0.
    """
    is_compressed = compression_type(path) == "GZIP"
    with files.open_file(path, "rb") as source:
        stream = gzip.GzipFile(fileobj=source) if is_compressed else source
        number = 0
        try:
            while (record := _read_record(stream.read)) is not None:
                yield record
                number += 1
        except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DamagedRecordError(path, number) from error
    if not number:
        raise empty(path)


class DamagedRecordError(UserError):
    """A record cannot be read.

    Attributes:
      what: the message without advice.
    """

    def __init__(self, path: str, number: int):
        """Create the message for a record number, counted from 0."""
        self.what = f"{path}: record {number} (counted from 0) is damaged or truncated"
        super().__init__(f"{self.what}; is it a complete TFRecord file? Create it again")


def empty(path: str) -> UserError:
    """Return the error for a file without records."""
    return UserError(f"{path} is empty; was it written completely?")


def length_on_disk(data: Any, position: int) -> int:
    """Return the on-disk size of the record at a position, from its length field; 0 if truncated."""
    if position + _HEADER.size > len(data):
        return 0
    return _LENGTH.unpack_from(data, position)[0] + FRAME_BYTES


def _read_record(read: Callable[[int], bytes]) -> bytes | None:
    """Read the next record; None at the end. Raises ValueError if it is truncated."""
    header = read(_HEADER.size)
    if not header:
        return None
    if not _is_header(header):
        raise ValueError("header")
    (length,) = _LENGTH.unpack_from(header)
    data = read(length + _CHECKSUM.size)
    record = data[:length]
    if len(data) < length + _CHECKSUM.size or _CHECKSUM.unpack_from(data, length)[0] != _masked_checksum(record):
        raise ValueError("record")
    return record
