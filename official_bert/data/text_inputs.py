"""Texts and pairs of texts from a file or a pipe of any length, one after the other.

Either lines, as the reference's feature extraction reads them, or a column of a table: TSV, CSV, JSON lines or Parquet.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from official_bert.data.parquet import open_parquet, read_parquet
from official_bert.data.tables import Row, read_csv, read_jsonl, read_tsv, without_blank_end
from official_bert.support import files
from official_bert.support.compression import is_compressed, text_ending
from official_bert.support.errors import UserError, listed
from official_bert.support.text_files import LineReader

STANDARD_STREAM = "-"  # as the name of an input or an output
LINES = "lines"
_STANDARD_INPUT = "/dev/stdin"
_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")
_TABLES = {"tsv": read_tsv, "csv": read_csv, "jsonl": read_jsonl, "parquet": read_parquet}
_WITH_KEYS = ("jsonl", "parquet")  # their columns have names alone, and only the needed ones are read
_ENDINGS = {
    ".tsv": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
_BLOCK_BYTES = 1 << 20


class TextOrPair(NamedTuple):
    """A text, or a pair of texts.

    Attributes:
      text_a: the text, or the first of the pair.
      text_b: the second of the pair; None if there is none.
    """

    text_a: str
    text_b: str | None = None


class TextSource(NamedTuple):
    """The source of texts.

    Attributes:
      path: a file, or "-" for standard input.
      text_columns: of a table, the columns of the text or of the two texts of a pair: names, or digits for a number
        from 0; in JSON lines keys, in Parquet names. None reads lines.
      table_format: "tsv" (no quoting), "csv", "jsonl" or "parquet"; None for what the file's name ends in.
      has_header: the first row of TSV and CSV names the columns.
      parameter: what the user calls the path, for messages.
    """

    path: str
    text_columns: Sequence[str] | None = None
    table_format: str | None = None
    has_header: bool = True
    parameter: str = "input_file"

    @property
    def is_stream(self) -> bool:
        """True if it is a pipe, say, which can be read but once and has no known length."""
        return self.path == STANDARD_STREAM or files.is_own_descriptor(self.path)

    @property
    def readable_path(self) -> str:
        """The name to open."""
        return _STANDARD_INPUT if self.path == STANDARD_STREAM else self.path

    def check(self) -> None:
        """Raises if there is no such file, or its format is not known.

        Raises:
          UserError: see above.
        """
        if not self.is_stream and not files.exists(self.path):
            raise UserError(f"{self.parameter}: there is no {self.path}; check the path")
        if self._format() == "parquet":
            if self.is_stream:
                raise UserError(f"{self.parameter}: Parquet cannot be read from a pipe; give a file")
            with open_parquet(self.path) as table:
                table.check_columns(self.text_columns)
        elif not self.is_stream:
            is_compressed(self.path)  # raises if it cannot be unpacked

    def __iter__(self) -> Iterator[TextOrPair]:
        """Reads the texts; a blank line or row is an empty text.

        Raises:
          UserError: the file is empty, is not UTF-8, or a row lacks a column; the message gives the line.
        """
        table_format = self._format()
        texts = self._lines() if table_format == LINES else self._cells(table_format)
        is_empty = True
        for text in texts:
            yield text
            is_empty = False
        if is_empty:
            raise UserError(f"{self.readable_path} is empty; give a text a line")

    def count(self) -> int | None:
        """About how many texts there are: the file's lines or rows; None if that is not known before they are read."""
        if self.is_stream or files.is_remote(self.path):
            return None
        if self._format() == "parquet":
            with open_parquet(self.path) as table:
                return table.num_rows
        if is_compressed(self.path):
            return None
        num_lines, block = 0, b""
        with files.open_file(self.path, "rb") as source:
            while next_block := source.read(_BLOCK_BYTES):
                block = next_block
                num_lines += block.count(b"\n")
        num_lines += not block.endswith(b"\n")
        return num_lines - (self._format() in ("tsv", "csv") and self.has_header)

    def _format(self) -> str:
        if self.text_columns is None:
            return LINES
        if self.table_format is not None:
            return self.table_format
        ending = text_ending(self.path)
        if ending not in _ENDINGS:
            raise UserError(
                f"{self.parameter}={self.path}: the name must end in one of {', '.join(_ENDINGS)}, which tells the "
                f"format; or give input_format, one of {', '.join(_TABLES)}"
            )
        return _ENDINGS[ending]

    def _lines(self) -> Iterator[TextOrPair]:
        for line in LineReader(self.readable_path):
            line = line.strip()
            match = _PAIR.match(line)
            yield TextOrPair(match[1], match[2]) if match else TextOrPair(line)

    def _cells(self, table_format: str) -> Iterator[TextOrPair]:
        read = _TABLES[table_format]
        if table_format in _WITH_KEYS:
            read = functools.partial(read, text_keys=self.text_columns)
        rows = without_blank_end(read(self.readable_path))
        if table_format in _WITH_KEYS:
            numbers = range(len(self.text_columns))
        elif self.has_header:
            header = next(rows, None)
            if header is None:
                return
            numbers = [_number(column, header) for column in self.text_columns]
        else:
            numbers = [_number(column, None) for column in self.text_columns]
        for row in rows:
            yield TextOrPair(*_texts(row, numbers))


def _number(column: str, header: Row | None) -> int:
    """The number of a column that is given by name or number."""
    if column.isdecimal():
        return int(column)
    if header is None:
        raise UserError(f"column {column!r}: without a header, give its number, counted from 0")
    if column not in header.cells:
        raise UserError(f"{header.where}: no column {column!r}; the columns are {listed(header.cells)}")
    return header.cells.index(column)


def _texts(row: Row, numbers: Sequence[int]) -> list[str]:
    if row.mistake:
        raise UserError(f"{row.where}: {row.mistake}")
    if not row.cells:
        return [""]
    if max(numbers) >= len(row.cells):
        raise UserError(f"{row.where}: there is no column {max(numbers)} (counted from 0), only {len(row.cells)}")
    return [row.cells[number].strip() for number in numbers]
