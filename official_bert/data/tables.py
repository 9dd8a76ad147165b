"""Text tables: readers that convert TSV, CSV, JSON Lines and Parquet to rows of cells, with line numbers."""

import contextlib
import csv
import functools
import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from absl import logging

from official_bert.support import files, text_files
from official_bert.support.errors import UserError, format_names, install_command
from official_bert.support.text_files import is_compressed, text_extension

FORMATS = ("tsv", "csv", "jsonl", "parquet")
KEYED_FORMATS = ("jsonl", "parquet")  # columns are addressed only by name, and only the needed ones are read
ENDINGS = {".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
ID = "id"  # the column of ids, unless another is given
COMMA = ","  # the delimiter of CSV, unless another is given
_MOST_BLANK_ROWS = 100_000  # consecutive, or at the end
PARQUET_MAGIC = b"PAR1"  # at the beginning and end of a file
_BATCH_ROWS = 64  # a text may be as long as a book
_BUFFER_BYTES = 1 << 20  # per column


class Row(NamedTuple):
    number: int  # index of the row, from 0
    where: str  # file and line, for messages
    # its cells by number, or in JSON Lines and Parquet its values by name; empty if the row is blank or unreadable
    cells: list[str] | dict[str, Any]
    mistake: str | None = None  # the reason if it cannot be read


class Columns(NamedTuple):
    """The columns to read from JSON Lines and Parquet; `ALL_COLUMNS` are not checked."""

    texts: Sequence[str] = ()  # columns of strings
    label: str | None = None  # a column of any type; None if not read
    optional: str | None = None  # a column that may be missing, such as one of ids; None if not read
    id: str | None = None  # a column of ids that may not be missing; None if not read

    @property
    def required(self) -> list[str]:
        return [*self.texts, *(name for name in (self.label, self.id) if name is not None)]

    def checked(self, values: dict[str, Any]) -> dict[str, Any]:
        missing = [name for name in self.required if name not in values]
        if missing:
            raise UserError(f"no key {missing[0]!r}; the keys are {format_names(values)}")
        for name in self.texts:
            if not isinstance(values[name], str):
                raise UserError(f"{name!r} is {values[name]!r}; a text must be a string")
        return values


ALL_COLUMNS = Columns()


def json_object(line: str, columns: Columns) -> dict[str, Any]:
    """Parse and check a line of JSON Lines; a blank line has no values."""
    if not line.strip():
        return {}
    if line.lstrip().startswith("["):
        raise UserError("a JSON array begins here; write one object per line, without brackets or commas around it")
    try:
        values = json.loads(line)
        if not isinstance(values, dict):
            raise UserError(f"a JSON {type(values).__name__}; write an object with keys on each line")
        used = [values.get(name) for name in (*columns.required, columns.optional)] if columns.texts else values
        if "\\u" in line:  # the only way to write half of a character
            json.dumps(used, ensure_ascii=False).encode()
    except UserError:
        raise
    except json.JSONDecodeError as error:
        raise UserError(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    except UnicodeEncodeError as error:
        raise UserError(
            f"JSON that cannot be read: {error.object[error.start]!a} is half of a surrogate pair, as in a cut emoji; "
            "write the whole character, or remove this half"
        ) from error
    except (ValueError, RecursionError) as error:  # a huge number, or very deep nesting
        raise UserError(f"JSON that cannot be read: {error}") from error
    return columns.checked(values)


def format_of(path: str) -> str | None:
    """Return the format of a file from its extension (ignoring a compression suffix); None if it is unknown."""
    return ENDINGS.get(text_extension(path))


def find_table(path: str) -> str:
    table_format = known_format(path)
    if not files.exists(path):
        raise UserError(f"{path}: there is no file; check the path")
    return table_format


def known_format(path: str) -> str:
    table_format = format_of(path)
    if table_format is None:
        raise UserError(f"{path}: the file name must end in one of {', '.join(ENDINGS)}")
    return table_format


def check_table(path: str, table_format: str | None, columns: Columns) -> None:
    if table_format == "parquet":
        with open_parquet(path) as table:
            table.check_columns(columns)
    else:
        is_compressed(path)  # raises if it cannot be decompressed


def read_table(
    path: str, table_format: str, columns: Columns = ALL_COLUMNS, delimiter: str = COMMA, *, has_header: bool = True
) -> Iterator[Row]:
    """Read a user's table without blank rows at its end: TSV and CSV with their header, `KEYED_FORMATS` with `columns`.

    Rows of TSV and CSV that are wider than the header or, without one, of another width than the first row are
    mistakes: a text that contains the separator would be cut. Empty cells at the end, as Excel writes them, are not.
    """
    if table_format == "csv":
        return _even_rows(read_csv(path, delimiter), has_header)
    if delimiter != COMMA:
        raise UserError(f"delimiter={delimiter} is for CSV; {path} is read as {table_format}")
    if table_format == "tsv":
        return _even_rows(read_tsv(path), has_header)
    return without_trailing_blank_rows((read_jsonl if table_format == "jsonl" else read_parquet)(path, columns))


def _even_rows(rows: Iterator[Row], has_header: bool) -> Iterator[Row]:
    first, has_warned = [], False
    for row in without_trailing_blank_rows(map(_without_blank_cells, rows)):
        cells, first = row.cells, first or row.cells
        while has_header and _is_blank(first[-1:]) and first:  # unnamed columns
            first = first[:-1]
        is_short = 0 < len(cells) < len(first) and not _is_blank(first[len(cells) :])
        if not _is_blank(cells[len(first) :]) or (is_short and not has_header):
            whose = "header" if has_header else "first row"
            row = row._replace(
                mistake=f"{len(cells)} columns, but the {whose} has {len(first)}; does a text contain the separator? "
                f"In CSV, quote such texts. The row begins {cells[0][:40]!r}"
            )
        elif is_short and not has_warned:
            has_warned = True
            _log_once(
                logging.WARNING,
                f"{row.where}: {len(cells)} columns, but the header has {len(first)}; is a row split at a line break? "
                "Missing cells are taken as empty, also in later rows",
            )
        yield row._replace(cells=cells[: len(first)])


def _without_blank_cells(row: Row) -> Row:
    return row._replace(cells=[]) if len(row.cells) > 1 and _is_blank(row.cells) else row


def _is_blank(cells: Sequence[str]) -> bool:
    return not "".join(cells).strip()


def read_objects(
    path: str,
    table_format: str,
    columns: Sequence[str],
    *,
    optional: Sequence[str] = (),
    has_header: bool = True,
    delimiter: str = COMMA,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place of each row and its values by name; of TSV and CSV only the given columns."""
    places, is_empty = None, True
    for row in read_table(path, table_format, delimiter=delimiter, has_header=has_header):
        values = row.cells
        if row.mistake:
            raise UserError(f"{row.where}: {row.mistake}")
        if not values:
            continue
        if isinstance(values, list):
            if places is None:
                places = dict(zip(columns, locate_columns(columns, row if has_header else None), strict=True))
                if has_header:
                    places |= {name: values.index(name) for name in optional if values.count(name) == 1}
                    continue
            values = {name: values[place] for name, place in places.items() if place < len(values)}
        is_empty = False
        yield row.where, values
    if is_empty:
        raise UserError(f"{path} has no examples")


def locate_columns(columns: Sequence[str], header: Row | None) -> list[int]:
    """Return the numbers of columns given by name or number, and log the header."""
    numbers = [numbered_column(column, header) for column in columns]
    if header is not None:
        log_header(header, is_doubtful=any(map(str.isdecimal, columns)))
    return numbers


def numbered_column(column: str | int, header: Row | None) -> int:
    if str(column).isdecimal():
        if header is not None and int(column) >= len(header.cells):
            names = format_names(header.cells) + separator_hint(header.cells)
            raise UserError(f"{header.where}: no column {column}, counted from 0; the columns are {names}")
        return int(column)
    if header is None:
        raise UserError(f"column {column!r}: without a header, give its number, counted from 0")
    return column_number(column, header.where, header.cells)


def id_column(name: str | int, header: Row | None, *, is_required: bool) -> int | None:
    try:
        return numbered_column(name, header)
    except UserError:
        if is_required:
            raise
        return None


def id_of(cells: list[str] | dict[str, Any], place: str | int) -> str | None:
    """Return a row's id as text; None if its object has none."""
    if isinstance(cells, list):
        return "".join(cells[place : place + 1])
    value = cells.get(place)
    return value if value is None or isinstance(value, str) else json.dumps(value, default=str)


def log_header(header: Row, *, is_doubtful: bool) -> None:
    message = f"{header.where} is taken as the header: {format_names(cell[:80] for cell in header.cells)}"
    if is_doubtful:
        message += "; if it is an example, give has_header=False or add a header to the file"
    _log_once(logging.WARNING if is_doubtful else logging.INFO, message)


@functools.cache
def _log_once(level: int, message: str) -> None:
    logging.log(level, "%s", message)


def column_number(name: str, where: str, columns: Sequence[str]) -> int:
    count = columns.count(name)
    if not count:
        names = format_names(columns) + separator_hint(columns)
        raise UserError(f"{where}: no column {name!r}; the columns are {names}")
    if count > 1:
        raise UserError(f"{where}: {count} columns are named {name!r}; rename all but one of them")
    return columns.index(name)


def parse_score(cell: str, where: str, hint: str = "", max_score: float = math.inf) -> float:
    try:
        score = float(cell)
    except ValueError as error:
        raise UserError(f"{where}: the score {cell!r} is not a number{hint}") from error
    if not math.isfinite(score):
        raise UserError(f"{where}: the score {cell!r} is not finite")
    if score > max_score:
        raise UserError(f"{where}: the score {cell!r} is above max_score={max_score:g}; give the highest possible one")
    return score


def separator_hint(columns: Sequence[str]) -> str:
    """Return a hint if the header appears to use another separator; "" otherwise."""
    for separator, plural in ((";", "semicolons"), ("\t", "tabs"), (",", "commas")):
        if len(columns) == 1 and separator in columns[0]:
            return (
                f"; are they separated by {plural}? A .csv file has commas between columns, or what delimiter says "
                "(delimiter=';'); a .tsv or .txt file has tabs"
            )
    return ""


def read_tsv(path: str) -> Iterator[Row]:
    """Read tab-separated columns, without quoting."""
    for number, line in enumerate(text_files.LineReader(path)):
        yield Row(number, f"{path}, line {number + 1}", line.split("\t") if line else [])


def read_csv(path: str, delimiter: str = COMMA) -> Iterator[Row]:
    """Read comma-separated columns; quoted cells may contain commas, line breaks and doubled quotes."""
    csv.field_size_limit(2**31 - 1)  # process-wide; the default limit rejects texts of 128 KiB
    rows = csv.reader((line + "\n" for line in text_files.LineReader(path)), strict=True, delimiter=delimiter)
    for number in itertools.count():
        where = f"{path}, line {rows.line_num + 1}"
        try:
            cells = next(rows, None)
        except csv.Error as error:
            raise UserError(f"{where}: not CSV ({error}); within a quoted cell, a quote must be doubled") from error
        if cells is None:
            return
        yield Row(number, where, cells)


def read_jsonl(path: str, columns: Columns) -> Iterator[Row]:
    for number, line in enumerate(text_files.LineReader(path)):
        yield _row(number, f"{path}, line {number + 1}", json_object, line, columns)


def read_parquet(path: str, columns: Columns) -> Iterator[Row]:
    with open_parquet(path) as table:
        table.check_columns(columns)
        names = columns.required + [columns.optional] * (table.column_names.count(columns.optional) == 1)
        names = names or table.column_names
        for number, values in table.rows(names):
            yield _row(number, f"{path}, row {number}", columns.checked, dict(zip(names, values, strict=True)))


def read_json_array(path: str, columns: Columns, convert: Callable[[dict], dict] = dict) -> Iterator[Row]:
    """Read a JSON array of objects; values of an object in them are columns such as `labels.real-label`."""
    entries = text_files.read_json_list(path, "table", max_bytes=None)
    text_files.check_json(entries, list[dict[str, Any]], path)
    for number, entry in enumerate(entries):
        parts = ((name, part) for name, part in entry.items() if isinstance(part, dict))
        nested = {f"{name}.{key}": value for name, part in parts for key, value in part.items()}
        read = (lambda values: convert(columns.checked(values)), {**entry, **nested})
        yield _row(number, f"{path}, example {number}", *read)


def _row(number: int, where: str, read: Callable[..., dict[str, Any]], *arguments: Any) -> Row:
    try:
        return Row(number, where, read(*arguments))
    except UserError as error:
        return Row(number, where, {}, str(error))


def read_review_folders(path: str) -> Iterator[Row]:
    """Read IMDB's folders "neg" and "pos", one file per review; columns: name ("neg/0_3"), text, label."""
    reviews = []
    for label in ("neg", "pos"):
        folder = os.path.join(path, label)
        if not files.is_folder(folder):
            raise UserError(f"there is no folder {folder}; {path} must contain the folders neg and pos")
        reviews += [(label, name) for name in files.list_folder(folder) if name.endswith(".txt")]
    for number, (label, name) in enumerate(reviews):
        review = os.path.join(path, label, name)
        text = "\n".join(text_files.LineReader(review))
        yield Row(number, review, [f"{label}/{name.removesuffix('.txt')}", text, label])


def read_nsmc(path: str) -> Iterator[Row]:
    """Read the TSV files of NSMC: cells that contain a quote are quoted as in CSV, twice."""
    for row in read_tsv(path):
        yield row._replace(cells=[_unquoted(_unquoted(cell)) for cell in row.cells])


def without_trailing_blank_rows(rows: Iterable[Row]) -> Iterator[Row]:
    blank: list[Row] = []
    for row in rows:
        if row.cells or row.mistake:
            yield from blank
            blank.clear()
            yield row
        elif len(blank) == _MOST_BLANK_ROWS:
            raise UserError(f"{row.where}: {_MOST_BLANK_ROWS:,} blank rows come before it; remove them from the file")
        else:
            blank.append(row)


def _unquoted(cell: str) -> str:
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


class ParquetReader:
    """Rows of a file, or of some of its row groups."""

    def __init__(self, path: str, file: Any):
        self.path = path
        self._file = file
        metadata = file.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        self.group_rows = [group.num_rows for group in groups]  # number of rows per row group
        self.group_bytes = [group.total_byte_size for group in groups]  # uncompressed size of each row group in bytes

    @property
    def num_rows(self) -> int:
        return sum(self.group_rows)

    @property
    def column_names(self) -> list[str]:
        return self._file.schema_arrow.names

    def check_columns(self, columns: Columns) -> None:
        """Raise unless the file has all these columns and its text columns contain strings."""
        import pyarrow as pa

        schema = self._file.schema_arrow
        for name in columns.required:
            column_number(name, self.path, schema.names)
        for name in columns.texts:
            kind = schema.field(name).type
            if pa.types.is_dictionary(kind):
                kind = kind.value_type
            if str(kind) not in ("string", "large_string", "string_view"):
                raise UserError(f"{self.path}: the column {name!r} holds {kind}; a text must be a string")

    def rows(self, columns: Sequence[str], groups: range | None = None) -> Iterator[tuple[int, tuple]]:
        groups = range(len(self.group_rows)) if groups is None else groups
        number = sum(self.group_rows[: groups.start])
        with _explained(self.path, f"after row {number}"):
            batches = self._file.iter_batches(
                batch_size=_BATCH_ROWS, row_groups=list(groups), columns=list(dict.fromkeys(columns)), use_threads=False
            )
        while True:
            with _explained(self.path, f"at or after row {number}"):
                batch = next(batches, None)
                values = [] if batch is None else [batch.column(name).to_pylist() for name in columns]
            if batch is None:
                return
            for row in zip(*values, strict=True):
                yield number, row
                number += 1


@contextlib.contextmanager
def open_parquet(path: str) -> Iterator[ParquetReader]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise UserError(
            f"{path} is Parquet, which is read with an optional package; install it: {install_command('parquet')}"
        ) from error
    if is_compressed(path):
        raise UserError(f"{path} is a compressed Parquet file; unpack it (its columns may be compressed instead)")
    with files.open_file(path, "rb") as source:
        with _explained(path, "at its end, which contains the schema"):
            if files.is_remote(path):  # remote files lack some methods of Python files
                source = pa.BufferReader(source.read())
            # `pre_buffer` reads whole row groups at once, which may be as large as the file.
            file = pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        yield ParquetReader(path, file)


@contextlib.contextmanager
def _explained(path: str, where: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except UserError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # a disk error
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path} is not Parquet, or damaged {where}: {text}") from error
