"""Reads text and JSON files; what is wrong in one is a `UserError` that names the file and the line."""

import codecs
import contextlib
import json
import math
from collections.abc import Iterator
from typing import IO, Any

from official_bert.support.errors import UserError
from official_bert.support.files import explained_errors, open_file

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = "\ufeff"  # with which some editors begin a file


class LineReader:
    r"""The lines of a UTF-8 text file, as the reference reads them.

    A line ends at `\n` alone (U+2028, form feed and the like are part of it) and loses every `\r`. The `\n` is removed.
    Iterating raises UserError if the file is missing, unreadable or not UTF-8; the message gives the line.

    Attributes:
      bytes_read: bytes of the lines given out so far.
    """

    def __init__(self, path: str, source: IO[bytes] | None = None):
        """Reads the file at `path`, or an open one; then `path` is its name in messages."""
        self.path = path
        self._source = source
        self.bytes_read = 0

    def __iter__(self) -> Iterator[str]:
        is_open = self._source is not None
        with (
            explained_errors("read", self.path),
            contextlib.nullcontext(self._source) if is_open else open_file(self.path, "rb") as source,
        ):
            for number, line in enumerate(source, start=1):
                self.bytes_read += len(line)
                yield _decode(line, self.path, number).removesuffix("\n").replace("\r", "")


def read_text(path: str, what: str = "") -> str:
    """Reads a UTF-8 text file as it is, line ends included; only a byte-order mark at its start is left out.

    Args:
      path: the file.
      what: what it should be, for messages: "model config".

    Raises:
      UserError: the file is missing, unreadable or not UTF-8; the message gives the line.
    """
    with open_file(path, "rb", what) as source:
        text = "".join(_decode(line, path, number) for number, line in enumerate(source, start=1))
    return text.removeprefix(_BYTE_ORDER_MARK)


def _decode(line: bytes, path: str, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        if number == 1 and line.startswith(_GZIP_MAGIC):
            raise UserError(f"{path} is compressed; unpack it first (gunzip)") from error
        if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise UserError(
                f"{path} is UTF-16; convert it to UTF-8: iconv -f UTF-16 -t UTF-8 {path} > NEW_FILE"
            ) from error
        raise UserError(
            f"{path}, line {number}: byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line is "
            "not UTF-8; convert the file to UTF-8 (for example with iconv)"
        ) from error


def read_json(path: str, what: str, *, finite: bool = True) -> dict[str, Any]:
    """Reads a JSON file that holds an object.

    Args:
      path: the file.
      what: what it should be, for messages: "model config".
      finite: refuses NaN and Infinity, which Python writes and JSON does not know, and numbers beyond a float's range.

    Returns:
      Its keys and values.

    Raises:
      UserError: the file is missing, not JSON, or holds something else; the message names it.
    """
    values = _json_values(path, what, finite)
    if not isinstance(values, dict):
        raise UserError(f"{path} contains a JSON {type(values).__name__}; the {what} must be an object with keys")
    return values


def read_json_list(path: str, what: str, *, finite: bool = True) -> list[Any]:
    """Reads a JSON file that holds a list; arguments and errors are those of `read_json`."""
    values = _json_values(path, what, finite)
    if not isinstance(values, list):
        raise UserError(f"{path} contains a JSON {type(values).__name__}; the {what} must be a list")
    return values


def _json_values(path: str, what: str, finite: bool) -> Any:
    text = read_text(path, what)
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite) if finite else json.loads(text)
    except ValueError as error:  # a JSONDecodeError's text holds line and column
        raise UserError(f"{path} is not JSON: {error}") from error
    except RecursionError as error:
        raise UserError(f"{path} is JSON that is nested too deeply to be read") from error


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:40]} is not a finite number")
    return number
