"""Reads files compressed with gzip, bzip2, xz or Zstandard, recognized by their first bytes.

Concatenated members, as from `cat a.gz b.gz`, are read as one file. Unlike the readers of the standard library, this
one treats trailing garbage as damage in every format, and counts consumed bytes for progress and lines for messages.
"""

import contextlib
import functools
import importlib
import io
import os
import re
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

from official_bert.support.errors import UserError, install_command
from official_bert.support.files import open_file

_BLOCK_BYTES = 1 << 17
_MAGIC_BYTES = 10  # none of which is a line feed
_MAX_WINDOW_LOG = 31  # the window of zstd --long=31, used by some published corpora
_ENDINGS = re.compile(r"\.(gz|gzip|bz2|xz|zst|zstd)$", re.IGNORECASE)


class _Format(NamedTuple):
    """A compression format."""

    name: str  # for messages
    magic: re.Pattern[bytes]  # first bytes of a file
    module: str  # module that unpacks it
    is_padded: bool = False  # whether zero bytes may follow a member


_FORMATS = (
    _Format("gzip", re.compile(rb"\x1f\x8b"), "zlib", is_padded=True),
    _Format("bzip2", re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), "bz2"),
    _Format("xz", re.compile(rb"\xfd7zXZ\x00"), "lzma", is_padded=True),
    # The second is a skippable frame, which pzstd writes first.
    _Format("zstd", re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), "backports.zstd"),
)


class _GzipMember:
    """Unpacks one member of a gzip file, with the methods of `bz2.BZ2Decompressor`."""

    def __init__(self):
        self._inflate = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)

    @property
    def needs_input(self) -> bool:
        return not self._inflate.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data


class DecompressedStream(io.RawIOBase):
    """The decompressed contents of a file."""

    def __init__(self, source: IO[bytes], path: str, file_format: _Format):
        """Wrap an open file; `path` is its name in messages."""
        self._source = source
        self._path = path
        self._format = file_format
        self._new_member, self._error = _unpacker(file_format, path)
        self._member: Any = None  # None between two members
        self._unused = b""
        self._num_lines = 0
        self.bytes_read = 0  # bytes of the compressed file that were consumed

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` as far as possible and return the number of bytes; 0 at the end."""
        data = self._next(len(buffer))
        buffer[: len(data)] = data
        self._num_lines += data.count(b"\n")
        return len(data)

    def _next(self, max_length: int) -> bytes:
        while True:
            block = b""
            if self._member is None:
                block = self._start_of_member()
                if not block:
                    return b""
                self._member = self._new_member()
            elif self._member.needs_input:
                block = self._read_block()
                if not block:
                    raise UserError(
                        f"{self._path}: the {self._format.name} file ends too early, after line {self._num_lines} of "
                        "its text; it is incomplete, copy or download it again"
                    )
            try:
                data = self._member.decompress(block, max_length)
            except self._error as error:
                raise UserError(
                    f"{self._path}: the {self._format.name} file is damaged after line {self._num_lines} of its text "
                    f"({error}); copy or download it again"
                ) from error
            if self._member.eof:
                self._unused, self._member = self._member.unused_data, None
            if data:
                return data

    def _start_of_member(self) -> bytes:
        """Return the next bytes that are not padding; none at the end of the file."""
        block, self._unused = self._unused or self._read_block(), b""
        while block and self._format.is_padded and not (block := block.lstrip(b"\0")):
            block = self._read_block()
        return block

    def _read_block(self) -> bytes:
        block = self._source.read(_BLOCK_BYTES)
        self.bytes_read += len(block)
        return block


class _Rejoined(io.RawIOBase):
    """A pipe whose first bytes were already read to recognize its format."""

    def __init__(self, head: bytes, source: IO[bytes]):
        self._head = head
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] or self._source.read1(len(buffer))
        self._head = self._head[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def decompressed(source: IO[bytes], path: str) -> IO[bytes]:
    """Return the contents of an open file, unpacked if it is compressed.

    Returns:
      `source` itself if it is not compressed (unless it is a pipe that was read from); otherwise a buffered reader
      whose `raw` is a `DecompressedStream`.
    """
    if source.seekable():
        start = source.tell()
        head = source.read(_MAGIC_BYTES)
        source.seek(start)
    else:
        head = source.peek(_MAGIC_BYTES)[:_MAGIC_BYTES]
        if len(head) < _MAGIC_BYTES and b"\n" not in head:  # the writer is slow, or the pipe has ended
            head = source.readline(_MAGIC_BYTES)
            source = io.BufferedReader(_Rejoined(head, source))
    file_format = _format_of(head)
    if file_format is None:
        return source
    return io.BufferedReader(DecompressedStream(source, path, file_format), _BLOCK_BYTES)


@contextlib.contextmanager
def open_decompressed(path: str, what: str = "") -> Iterator[IO[bytes]]:
    """Open a file to read its bytes, unpacked if it is compressed."""
    with open_file(path, "rb", what) as source:
        yield decompressed(source, path)


def is_compressed(path: str) -> bool:
    """Return True if a file is compressed, judging by its first bytes."""
    with open_file(path, "rb") as source:
        file_format = _format_of(source.read(_MAGIC_BYTES))
    if file_format is None:
        return False
    _unpacker(file_format, path)
    return True


def text_extension(path: str) -> str:
    """Return the lowercase extension of a file without that of its compression: ".jsonl" for "dump.JSONL.gz"."""
    return os.path.splitext(_ENDINGS.sub("", path))[1].lower()


def _format_of(head: bytes) -> _Format | None:
    return next((file_format for file_format in _FORMATS if file_format.magic.match(head)), None)


def _unpacker(file_format: _Format, path: str) -> tuple[Callable[[], Any], type[Exception]]:
    """Return the decompressor of one member, and the exception that it raises."""
    try:
        module = importlib.import_module(file_format.module)
    except ImportError as error:
        if file_format.name == "zstd":
            raise UserError(
                f"{path} is compressed with zstd, which needs an optional package; install it: "
                f"{install_command('zstd')}"
            ) from error
        raise UserError(
            f"{path} is compressed with {file_format.name}, but this Python was built without its module "
            f"{file_format.module}; unpack the file, or use another Python"
        ) from error
    if file_format.name == "gzip":
        return _GzipMember, zlib.error
    if file_format.name == "bzip2":
        return module.BZ2Decompressor, OSError
    if file_format.name == "xz":
        return functools.partial(module.LZMADecompressor, format=module.FORMAT_XZ), module.LZMAError
    options = {module.DecompressionParameter.window_log_max: _MAX_WINDOW_LOG}
    return functools.partial(module.ZstdDecompressor, options=options), module.ZstdError
