"""Reads text and JSON files; errors are `UserError`s that give the file and the line.

Files compressed with gzip, bzip2, xz or Zstandard, recognized by their first bytes, are read decompressed.
"""

import codecs
import contextlib
import functools
import gzip
import importlib
import io
import itertools
import json
import math
import os
import re
import types
import typing
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import IO, Any, TypeVar

from official_bert.support import files
from official_bert.support.errors import UserError, install_command, pluralize
from official_bert.support.files import reporting_file_errors

_BYTE_ORDER_MARK = "\ufeff"  # some editors write it at the start of a file
_BLOCK_BYTES = 1 << 20
_COMPRESSED_BLOCK_BYTES = 1 << 17
_MAGIC_BYTES = 10
_FORMATS = {
    "gzip": rb"\x1f\x8b",
    "bzip2": rb"BZh[1-9](1AY&SY|\x17rE8P\x90)",
    "xz": rb"\xfd7zXZ\x00",
    "zstd": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",  # the second is a skippable frame, which pzstd writes first
}
_MODULES = {"gzip": "zlib", "bzip2": "bz2", "xz": "lzma", "zstd": "backports.zstd"}
_ENDINGS = re.compile(r"\.(gz|gzip|bz2|xz|zst|zstd)$", re.IGNORECASE)
_MAX_WINDOW_LOG = 31  # the window of zstd --long=31, used by some published corpora
# Limits for files that are read at once and are normally small: a thousand times the usual size.
MAX_SETTINGS_BYTES = 16 << 20
MAX_VOCAB_BYTES = 128 << 20
_MAX_PARTS = 8 << 20  # lines, lists, objects and values, each of which takes more memory than its bytes
INVALID_TEXT = ("refuse", "replace", "skip")  # what a reader does with lines that are not UTF-8
_MOST_SHOWN = 10  # numbers of lines that are not UTF-8
_MOST_STRAY_RETURNS = 3  # in a line that ends in `\n`; the reference drops them
_MOST_DIGITS = 20  # of a whole number, as in -2**63
_NO_LIMIT = str(int(1e30))  # `transformers` writes it as `model_max_length` of a tokenizer without one
_UNIONS = (typing.Union, types.UnionType)
_NAMES_OF_TYPES = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list", dict: "an object",
    None: "null", type(None): "null",
}  # fmt: skip
Schema = TypeVar("Schema")


class _Members:
    """The decompressed contents of a bzip2, xz or zstd file, of which several may follow each other.

    The readers of the standard library take a damaged member for the end of the text.
    """

    def __init__(self, source: IO[bytes], new_member: Callable[[], Any], padding: bytes):
        self._source, self._new_member, self._padding = source, new_member, padding
        self._member: Any = None

    def read1(self, max_length: int) -> bytes:
        data = b""
        while not data:
            if self._member is None or self._member.eof:
                block = self._start_of_member()
                if not block:
                    return b""
                self._member = self._new_member()
            else:
                block = self._source.read(_COMPRESSED_BLOCK_BYTES) if self._member.needs_input else b""
                if self._member.needs_input and not block:
                    raise EOFError("it ends within a member")
            data = self._member.decompress(block, max_length)
        return data

    def _start_of_member(self) -> bytes:
        block = self._member.unused_data.lstrip(self._padding) if self._member else b""
        while not block and (stored := self._source.read(_COMPRESSED_BLOCK_BYTES)):
            block = stored.lstrip(self._padding)
        return block


class _DecompressedStream(io.RawIOBase):
    """The decompressed contents of a file; errors name the file and the line."""

    def __init__(self, source: IO[bytes], path: str, compression: str):
        self._source, self._path, self._compression = source, path, compression
        self._reader, self._errors = _reader(source, path, compression)
        self._num_lines = 0
        self.bytes_read = 0  # bytes of the compressed file that were consumed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._reader.read1(len(buffer))
        except self._errors as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # a disk error
            raise UserError(
                f"{self._path}: the {self._compression} file is damaged or incomplete after line {self._num_lines} of "
                f"its text ({error}); copy or download it again"
            ) from error
        buffer[: len(data)] = data
        self._num_lines += data.count(b"\n")
        if self._source.seekable():
            self.bytes_read = self._source.tell()
        return len(data)


def _reader(source: IO[bytes], path: str, compression: str) -> tuple[Any, tuple[type[Exception], ...]]:
    """Return a reader of the decompressed contents, and the exceptions that it raises for damaged files."""
    try:
        module = importlib.import_module(_MODULES[compression])
    except ImportError as error:
        advice = f"install it: {install_command('zstd')}" if compression == "zstd" else "use another Python"
        raise UserError(f"{path} needs the Python module {_MODULES[compression]}; {advice}") from error
    if compression == "gzip":
        return gzip.GzipFile(fileobj=source), (EOFError, OSError, zlib.error)
    if compression == "bzip2":
        return _Members(source, module.BZ2Decompressor, b""), (EOFError, OSError)
    if compression == "xz":
        new_member = functools.partial(module.LZMADecompressor, format=module.FORMAT_XZ)
        return _Members(source, new_member, b"\0"), (EOFError, module.LZMAError)
    options = {module.DecompressionParameter.window_log_max: _MAX_WINDOW_LOG}
    new_member = functools.partial(module.ZstdDecompressor, options=options)
    return _Members(source, new_member, b""), (EOFError, module.ZstdError)


def _decompressed(source: IO[bytes], path: str) -> IO[bytes]:
    """Return the contents of an open file, which is compressed if its first bytes say so."""
    if source.seekable():
        start = source.tell()
        head = source.read(_MAGIC_BYTES)
        source.seek(start)
    else:
        head = source.peek(_MAGIC_BYTES)
    compression = next((name for name, magic in _FORMATS.items() if re.match(magic, head)), None)
    if compression is None:
        return source
    return io.BufferedReader(_DecompressedStream(source, path, compression), _COMPRESSED_BLOCK_BYTES)


@contextlib.contextmanager
def open_decompressed(path: str, what: str = "") -> Iterator[IO[bytes]]:
    with files.open_file(path, "rb", what) as source:
        yield _decompressed(source, path)


def is_compressed(path: str) -> bool:
    """Return True if a file is compressed; raise if it cannot be decompressed here."""
    with files.open_file(path, "rb") as source:
        return _decompressed(source, path) is not source


def text_extension(path: str) -> str:
    """Return the lowercase extension of a file without that of its compression: ".jsonl" for "dump.JSONL.gz"."""
    return os.path.splitext(_ENDINGS.sub("", path))[1].lower()


class LineReader:
    r"""The lines of a UTF-8 text file, as the reference reads them.

    Only `\n` ends a line (U+2028, form feed and so on are part of it). It is removed, as is every `\r`, and a
    byte-order mark at the start of the file.
    """

    def __init__(self, path: str, source: IO[bytes] | None = None, *, start: int = 0, invalid_text: str | None = None):
        """Read the file at `path`, or an open one, from the first line that begins at a byte or later."""
        self.path = path
        self._invalid_text = invalid_text
        self.num_invalid = 0  # lines that are not UTF-8, whose bytes are replaced, or that are left out
        self._source = source
        self._start = start  # 0 for a compressed file
        self.line_start = start  # start of the last line returned, in bytes of text
        self.position = start  # start of the line after the last one returned, in bytes of text
        self._decompressed: _DecompressedStream | None = None

    @property
    def bytes_read(self) -> int:
        """Number of bytes read since `start`, as stored on disk."""
        return self._decompressed.bytes_read if self._decompressed else self.position - self._start

    def __iter__(self) -> Iterator[str]:
        opened = contextlib.nullcontext(self._source) if self._source else files.open_file(self.path, "rb")
        with reporting_file_errors("read", self.path), opened as stored:
            source = _decompressed(stored, self.path)
            self._decompressed = None if source is stored else source.raw
            if self._start:
                source.seek(self._start - 1)
                self.position = self._start - 1 + len(source.readline())
            for number, line in enumerate(source, start=1):
                self.line_start, self.position = self.position, self.position + len(line)
                if line == b"\n":  # a small compressed file may contain very many
                    yield ""
                    continue
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError as error:
                    self.num_invalid += 1
                    if self._invalid_text == "skip":
                        continue
                    if self._invalid_text != "replace":
                        if self._start:
                            number = line_number(self.path, self.position - len(line))
                        rest = source if self._source is None else ()  # a pipe may never end
                        refusal = _not_utf8(self.path, number, line, error.start, rest)
                        if self._invalid_text is not None:  # it was a choice
                            refusal = UserError(f"{refusal}; or give invalid_text=replace or skip")
                        raise refusal from error
                    text = line.decode("utf-8", errors="replace")
                num_returns = line.rstrip(b"\r\n").count(b"\r") if number == 1 and not self._start else 0
                if num_returns > (_MOST_STRAY_RETURNS if line.endswith(b"\n") else 0):
                    raise UserError(
                        f"{self.path}, line 1: the line contains carriage returns; convert the file to Unix line "
                        "endings, for example with tr '\\r' '\\n'"
                    )
                if not self.line_start:
                    text = text.removeprefix(_BYTE_ORDER_MARK)
                yield text.removesuffix("\n").replace("\r", "")


def line_number(path: str, position: int) -> int:
    """Return the number, from 1, of the line that begins at a byte of a file's text."""
    number = 1
    with open_decompressed(path) as source:
        while position > 0 and (block := source.read(min(position, _BLOCK_BYTES))):
            number += block.count(b"\n")
            position -= len(block)
    return number


def read_limited(path: str, what: str, max_bytes: int | None) -> bytes:
    """Read a file, compressed or not, never holding more than a limit in memory."""
    with open_decompressed(path, what) as source:
        content = source.read() if max_bytes is None else source.read(max_bytes + 1)
    if max_bytes is not None and len(content) > max_bytes:
        size = f"{files.size(path) / 2**20:,.1f} MiB on the disk" if files.exists(path) else "more"
        raise UserError(
            f"{path} is too large for a {what}: {size}, the limit is {max_bytes >> 20} MiB; give the right file"
        )
    if max_bytes is not None and sum(map(content.count, (b"\n", b",", b"[", b"{"))) > _MAX_PARTS:
        raise UserError(
            f"{path} is too large for a {what}: it has more than {_MAX_PARTS:,} lines or values; give the right file"
        )
    return content


def read_text(path: str, what: str = "", max_bytes: int | None = None) -> str:
    """Read a UTF-8 text file unchanged, including line ends; only an initial byte-order mark is removed."""
    content = read_limited(path, what, max_bytes)
    try:
        return content.decode("utf-8").removeprefix(_BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        start = content.rfind(b"\n", 0, error.start) + 1
        number = content.count(b"\n", 0, start) + 1
        raise _not_utf8(path, number, content[start : error.start + 2], error.start - start) from error


def _not_utf8(path: str, number: int, line: bytes, place: int, rest: Iterable[bytes] = ()) -> UserError:
    encoding = "ENCODING"
    what = f"{path}, line {number}: byte 0x{line[place]:02x} at byte {place + 1} of the line is not UTF-8"
    others = (other for other, line in enumerate(rest, start=number + 1) if not _is_utf8(line))
    if shown := list(map(str, itertools.islice(others, _MOST_SHOWN))):
        num_more = sum(1 for _ in others)
        what += (
            f", and {pluralize(len(shown) + num_more, 'line')} after it ({', '.join(shown)}{', ...' * bool(num_more)})"
        )
    if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding, what = "UTF-16", f"{path} is UTF-16"
    return UserError(
        f"{what}; save it as UTF-8 (in Excel: CSV UTF-8) or convert it: iconv -f {encoding} -t UTF-8 {path} > NEW_FILE"
    )


def _is_utf8(line: bytes) -> bool:
    try:
        return line.isascii() or bool(line.decode())
    except UnicodeDecodeError:
        return False


def read_json(
    path: str, what: str, *, finite: bool = True, max_bytes: int | None = MAX_SETTINGS_BYTES
) -> dict[str, Any]:
    values = parse_json(read_text(path, what, max_bytes), path, finite=finite)
    if not isinstance(values, dict):
        raise UserError(f"{path} contains a JSON {type(values).__name__}; the {what} must be an object with keys")
    return values


def read_json_as(path: str, what: str, schema: type[Schema], *, max_bytes: int = MAX_SETTINGS_BYTES) -> Schema:
    """Read a JSON object written by another program; `schema` is a `TypedDict` of the keys that are used."""
    values = read_json(path, what, max_bytes=max_bytes)
    check_json(values, schema, path)
    return values


def check_declared(
    declared: Mapping[str, Any], known: Mapping[str, Collection | None], path: str, place: str = ""
) -> None:
    """Raise UserError for a setting that is not known, unless it is unset, or has none of the known values.

    The values of `known` are the known values of its keys, or None for any value.
    """
    for name, value in declared.items():
        values = known.get(name, ())
        is_unset = bool(known) and name not in known and value in (None, False, {}, [])
        if not (is_unset or values is None or any(type(value) is type(right) and value == right for right in values)):
            name = f"{place}.{name}" if place else name
            raise UserError(f"{path}: {name} is {value!r:.80}, which is not supported for this kind of model")


_type_hints = functools.cache(typing.get_type_hints)  # takes most of the time of a check


def check_json(value: Any, schema: Any, path: str, key: str = "") -> None:
    """Raise UserError unless a JSON value, whose place is `key` (as in `model.merges[2]`), has the types of a schema.

    Types are `str`, `int`, `float`, `bool`, `None`, `Any`, `Literal`, `list[...]`, `dict[str, ...]`, TypedDicts, and
    unions of these.
    """
    if not _fits(value, schema):
        what = f"{path}: {key} is {value!r:.80}" if key else f"{path} is {value!r:.80}"
        raise UserError(f"{what}; it must be {_described(schema)}")
    if typing.is_typeddict(schema):
        prefix, types = f"{key}." if key else "", _type_hints(schema)
        missing = sorted(schema.__required_keys__ - value.keys())
        if missing:
            raise UserError(f"{path} has no {prefix}{missing[0]}")
        for name in types.keys() & value.keys():
            check_json(value[name], types[name], path, prefix + name)
    elif typing.get_origin(schema) in _UNIONS:
        check_json(value, next(kind for kind in typing.get_args(schema) if _fits(value, kind)), path, key)
    elif typing.get_origin(schema) is list:
        for index, item in enumerate(value):
            check_json(item, typing.get_args(schema)[0], path, f"{key}[{index}]")
    elif typing.get_origin(schema) is dict:
        kind = typing.get_args(schema)[1]
        for name, item in value.items():
            if type(item) is not kind:  # most are, and there may be very many
                check_json(item, kind, path, f"{key}[{name!r:.80}]")


def _fits(value: Any, schema: Any) -> bool:
    """Return True if a value has a type, regardless of the values in it."""
    origin = typing.get_origin(schema)
    if origin in _UNIONS:
        return any(_fits(value, kind) for kind in typing.get_args(schema))
    if origin is typing.Literal:
        return value in typing.get_args(schema)
    if schema is Any:
        return True
    if schema is float:
        return type(value) in (int, float)
    kind = dict if typing.is_typeddict(schema) else origin or schema
    return type(value) is (type(None) if kind is None else kind)  # True is no int


def _described(schema: Any) -> str:
    origin = typing.get_origin(schema)
    if origin in _UNIONS:
        return " or ".join(_described(kind) for kind in typing.get_args(schema))
    if origin is typing.Literal:
        return " or ".join(map(json.dumps, typing.get_args(schema)))
    return "an object" if typing.is_typeddict(schema) else _NAMES_OF_TYPES[origin or schema]


def read_json_list(path: str, what: str, *, max_bytes: int | None = MAX_SETTINGS_BYTES) -> list[Any]:
    values = parse_json(read_text(path, what, max_bytes), path)
    if not isinstance(values, list):
        raise UserError(f"{path} contains a JSON {type(values).__name__}; the {what} must be a list")
    return values


def parse_json(text: str, path: str, *, finite: bool = True) -> Any:
    try:
        hooks = {"parse_constant": _finite, "parse_float": _finite} if finite else {}
        values = json.loads(text, parse_int=_bounded, **hooks)
        if "\\u" in text:  # the only way to write a lone surrogate, which no other file can hold
            json.dumps(values, ensure_ascii=False).encode()
        return values
    except UnicodeEncodeError as error:
        code = f"\\u{ord(error.object[error.start]):04x}"
        raise UserError(f"{path} contains {code}, which is half of a character; write the whole character") from error
    except ValueError as error:  # the text of a JSONDecodeError has line and column
        raise UserError(f"{path} is not JSON: {error}") from error
    except RecursionError as error:
        raise UserError(f"{path} is nested too deeply to be read as JSON") from error


def _bounded(digits: str) -> float:
    if digits == _NO_LIMIT:
        return 1e30
    if len(digits) > _MOST_DIGITS or not -(2**63) <= int(digits) < 2**63:
        raise ValueError(f"{digits[:40]} ({len(digits):,} digits) is out of range")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:40]} is not a finite number")
    return number
