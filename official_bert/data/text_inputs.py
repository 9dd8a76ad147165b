"""Stream texts and text pairs from a file or pipe of any length.

Inputs are lines, as in the reference's feature extraction, or columns of a table: TSV, CSV, JSON Lines or Parquet.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from official_bert.data.table_writers import STANDARD_STREAM
from official_bert.data.tables import (
    COMMA,
    ENDINGS,
    FORMATS,
    ID,
    KEYED_FORMATS,
    Columns,
    Row,
    check_table,
    format_of,
    id_column,
    id_of,
    locate_columns,
    open_parquet,
    parse_score,
    read_table,
    read_tsv,
)
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.support.text_files import LineReader, is_compressed

LINES = "lines"
_STANDARD_INPUT = "/dev/stdin"
_SEPARATOR = " ||| "
_BLOCK_BYTES = 1 << 20


class TextOrPair(NamedTuple):
    text_a: str
    text_b: str | None = None  # None for a single text


class Example(NamedTuple):
    where: str  # its place, for messages
    id: str | None  # the value of its id column; None if there is none
    texts: list[Any]  # the cells of its columns, or the parts of its line


class TextSource(NamedTuple):
    path: str  # a file, or "-" for standard input
    # columns of the texts: names, or in TSV and CSV digits for a number from 0; None reads lines
    text_columns: Sequence[str] | None = None
    table_format: str | None = None  # one of `FORMATS`; None to detect it from the file extension
    has_header: bool = True  # whether the first row of TSV and CSV names the columns
    delimiter: str = COMMA  # between the columns of CSV
    parameter: str = "input_file"  # the user's name of the path, for messages
    id_column: str = ID  # name or number of the column with ids
    needs_id: bool = False  # whether a table without this column is an error

    @property
    def is_stream(self) -> bool:
        """True for a pipe or the like, which can be read only once and has no known length."""
        return self.path == STANDARD_STREAM or files.is_own_descriptor(self.path)

    @property
    def readable_path(self) -> str:
        return _STANDARD_INPUT if self.path == STANDARD_STREAM else self.path

    def check(self) -> None:
        if not self.is_stream and not files.exists(self.path):
            raise UserError(f"{self.parameter}: there is no {self.path}; check the path")
        table_format = self._format()
        if not self.is_stream:
            check_table(self.path, table_format, Columns(self.text_columns or ()))
        elif table_format == "parquet":
            raise UserError(f"{self.parameter}: Parquet cannot be read from a pipe; give a file")

    def __iter__(self) -> Iterator[TextOrPair]:
        """Read the texts; a blank line or row is an empty text."""
        is_empty = True
        for example in self.examples(max_splits=1):
            yield TextOrPair(*(text.strip() for text in example.texts))
            is_empty = False
        if is_empty:
            raise UserError(f"{self.readable_path} is empty; give one text per line")

    def count(self) -> int | None:
        """Estimate the number of texts from the file's lines or rows; None if unknown before reading."""
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
        table_format = LINES if self.text_columns is None else self.table_format or format_of(self.path)
        if table_format is None:
            raise UserError(
                f"{self.parameter}={self.path}: the file name must end in one of {', '.join(ENDINGS)}; "
                f"otherwise give input_format, one of {', '.join(FORMATS)}"
            )
        return table_format

    def examples(self, *, max_splits: int = -1, last_is_text: bool = True) -> Iterator[Example]:
        """Read the texts and ids; a line has so many ` ||| ` between texts, and the last column may hold no text."""
        table_format = self._format()
        if table_format == LINES:
            for number, line in enumerate(LineReader(self.readable_path), start=1):
                where = f"{self.readable_path}, line {number}"
                if number == 1 and line.startswith('{"'):
                    logging.warning("%s looks like JSON, but is read as a text; see the flags for tables", where)
                yield Example(where, None, line.strip().rsplit(_SEPARATOR, max_splits))
            return
        texts, label = (self.text_columns, None) if last_is_text else (self.text_columns[:-1], self.text_columns[-1])
        columns = Columns(texts, label, self.id_column, self.id_column if self.needs_id else None)
        rows = read_table(self.readable_path, table_format, columns, self.delimiter, has_header=self.has_header)
        places, id_place = self.text_columns, self.id_column
        if table_format not in KEYED_FORMATS:
            header = next(rows, None) if self.has_header else None
            if self.has_header and header is None:
                return
            places = locate_columns(self.text_columns, header)
            id_place = id_column(self.id_column, header, is_required=self.needs_id)
        needed = [*places, id_place] if self.needs_id else places
        for row in rows:
            texts = _texts(row, needed)[: len(places)]
            yield Example(row.where, None if id_place is None else id_of(row.cells, id_place), texts)


def _texts(row: Row, places: Sequence[str | int]) -> list[Any]:
    if row.mistake:
        raise UserError(f"{row.where}: {row.mistake}")
    if not row.cells:
        return [""] * len(places)
    if isinstance(row.cells, list) and max(places) >= len(row.cells):
        raise UserError(f"{row.where}: there is no column {max(places)} (counted from 0), only {len(row.cells)}")
    return [row.cells[place] for place in places]


def ids_path(path: str) -> str:
    """Return the file with the ids of the texts of an array: `part.ids.jsonl` for `part.npy`."""
    return f"{path.removesuffix('.npy')}.ids.jsonl"


class ScoredPair(NamedTuple):
    score: float  # higher for more similar sentences
    texts: tuple[TextOrPair, TextOrPair]  # the two sentences


_OF_SCORES = ("score", "sentence1", "sentence2")


def read_scored_pairs(path: str) -> list[ScoredPair]:
    """Read tab-separated lines of a score and two sentences; blank lines are skipped.

    If the first line has these columns, as in the STS benchmark of GLUE, it names the columns, and others are not read.
    """
    pairs, num_columns, places = [], len(_OF_SCORES), range(len(_OF_SCORES))
    for row in read_tsv(path):
        if not "".join(row.cells).strip():
            continue
        if row.number == 0 and set(_OF_SCORES) <= set(row.cells):
            num_columns, places = len(row.cells), [row.cells.index(name) for name in _OF_SCORES]
            continue
        if len(row.cells) != num_columns:
            expected = "a score and two sentences" if num_columns == len(_OF_SCORES) else f"{num_columns}, as line 1"
            raise UserError(f"{row.where}: {len(row.cells)} columns; give {expected}, separated by tabs")
        score, *texts = (row.cells[place] for place in places)
        hint = f"; a header has the names {', '.join(_OF_SCORES)}" if row.number == 0 else ""
        pairs.append(ScoredPair(parse_score(score, row.where, hint), tuple(TextOrPair(text.strip()) for text in texts)))
    if len({pair.score for pair in pairs}) < 2:
        raise UserError(f"{path}: all {len(pairs)} pairs have the same score, so the correlation is undefined")
    return pairs
