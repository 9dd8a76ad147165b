"""Tables of text: each reader turns one format into rows of cells, with the line each came from, for messages."""

import csv
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from official_bert.support import files, text_files
from official_bert.support.errors import UserError, listed

_MOST_BLANK_ROWS = 100_000  # between two others, or at the end


class Row(NamedTuple):
    """A row of a file.

    Attributes:
      number: how many rows come before it.
      where: file and line, for messages.
      cells: its columns; none if the row is blank or cannot be read.
      mistake: why it cannot be read.
    """

    number: int
    where: str
    cells: list[str]
    mistake: str | None = None


def read_tsv(path: str) -> Iterator[Row]:
    """Reads columns between tabs; a quote is a character like any other."""
    for number, line in enumerate(_lines(path)):
        yield Row(number, f"{path}, line {number + 1}", line.split("\t") if line else [])


def read_csv(path: str) -> Iterator[Row]:
    """Reads columns between commas; a cell in double quotes may hold commas, line ends and doubled quotes."""
    csv.field_size_limit(2**31 - 1)  # holds for the process; the default refuses texts of 128 KiB
    rows = csv.reader((line + "\n" for line in _lines(path)), strict=True)
    for number in itertools.count():
        where = f"{path}, line {rows.line_num + 1}"
        try:
            cells = next(rows, None)
        except csv.Error as error:
            raise UserError(f"{where}: not CSV ({error}); within a quoted cell, a quote must be doubled") from error
        if cells is None:
            return
        yield Row(number, where, cells)


def read_jsonl(
    path: str,
    *,
    text_keys: Sequence[str],
    label_key: str | None = None,
    label_delimiter: str | None = None,
    id_key: str | None = None,
) -> Iterator[Row]:
    """Reads a JSON object from each line.

    Args:
      path: the file.
      text_keys: keys of the texts: the first columns.
      label_key: key of the label: the next column.
      label_delimiter: joins the names where the label is a list; None if it must not be one.
      id_key: key of an id, which an object may lack: the last column.
    """
    for number, line in enumerate(_lines(path)):
        cells, mistake = [], None
        try:
            cells = json_cells(
                line, text_keys=text_keys, label_key=label_key, label_delimiter=label_delimiter, id_key=id_key
            )
        except UserError as error:
            mistake = str(error)
        yield Row(number, f"{path}, line {number + 1}", cells, mistake)


def read_review_folders(path: str) -> Iterator[Row]:
    """Reads the folders "neg" and "pos" of IMDB, a file a review; columns: name ("neg/0_3"), text, label."""
    reviews = []
    for label in ("neg", "pos"):
        folder = os.path.join(path, label)
        if not files.is_folder(folder):
            raise UserError(f"there is no folder {folder}; {path} must contain the folders neg and pos")
        reviews += [(label, name) for name in files.list_folder(folder) if name.endswith(".txt")]
    for number, (label, name) in enumerate(reviews):
        review = os.path.join(path, label, name)
        yield Row(number, review, [f"{label}/{name.removesuffix('.txt')}", "\n".join(_lines(review)), label])


def read_nsmc(path: str) -> Iterator[Row]:
    """Reads the TSV of NSMC: it has no quoting, but cells that hold a quote were quoted as in CSV, twice over."""
    for row in read_tsv(path):
        yield row._replace(cells=[_unquoted(_unquoted(cell)) for cell in row.cells])


def without_blank_end(rows: Iterable[Row]) -> Iterator[Row]:
    """Leaves out the blank rows after the last one that is not.

    Raises:
      UserError: so many rows in a row are blank that they would fill the memory, as in a small compressed file.
    """
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


def _lines(path: str) -> Iterator[str]:
    """The lines of a text file, without byte-order mark."""
    for number, line in enumerate(text_files.LineReader(path)):
        yield line if number else line.removeprefix("\ufeff")


def json_cells(
    line: str,
    *,
    text_keys: Sequence[str],
    label_key: str | None = None,
    label_delimiter: str | None = None,
    id_key: str | None = None,
) -> list[str]:
    """The cells of a line of JSON lines; the arguments are those of `read_jsonl`.

    Returns:
      The texts, with a `label_key` the label, and with an `id_key` the id or ""; nothing for an empty line.

    Raises:
      UserError: the line cannot be read, or lacks a key; the message does not say where.
    """
    if not line:
        return []
    if line.lstrip().startswith("["):
        raise UserError("a JSON array begins here; write one object per line, without brackets or commas around it")
    try:
        values = json.loads(line)
        if not isinstance(values, dict):
            raise UserError(f"a JSON {type(values).__name__}; write an object with keys on each line")
        keys = [*text_keys] if label_key is None else [*text_keys, label_key]
        missing = [key for key in keys if key not in values]
        if missing:
            raise UserError(f"no key {missing[0]!r}; the keys are {listed(values)}")
        cells = cells_of([values[key] for key in keys], text_keys, label_delimiter)
        if id_key is not None:
            cells.append(id_cell(values.get(id_key)))
        "".join(cells).encode()
    except UserError:
        raise
    except json.JSONDecodeError as error:
        raise UserError(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise UserError(
            f"JSON that cannot be read: {half!a} is half of a character, as where a text was cut within an emoji; "
            "write the whole character, or remove this half"
        ) from error
    except (ValueError, RecursionError) as error:  # a giant number, endless nesting
        raise UserError(f"JSON that cannot be read: {error}") from error
    return cells


def cells_of(values: Sequence[Any], text_keys: Sequence[str], label_delimiter: str | None) -> list[str]:
    """Makes cells of what a row holds: its texts and, if there is one value more, its label.

    Raises:
      UserError: a text is not a string, or the label is neither that nor a number; the message does not say where.
    """
    cells = list(values)
    for key, text in zip(text_keys, cells, strict=False):  # the label comes after the texts
        if not isinstance(text, str):
            raise UserError(f"{key!r} is {text!r}; a text must be a string")
    if len(cells) > len(text_keys):
        cells[-1] = _json_label(cells[-1], label_delimiter)
    return cells


def id_cell(value: Any) -> str:
    """An id as text; "" for none."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _json_label(label: Any, delimiter: str | None) -> str:
    if isinstance(label, str):
        return label
    if isinstance(label, (int, float)):  # true and false too
        return json.dumps(label)
    if not isinstance(label, list) or delimiter is None:
        raise UserError(f"the label is {label!r}; it must be a string or a number, or with several labels a list")
    for name in label:
        if not isinstance(name, str) or delimiter in name:
            raise UserError(f"the label {name!r} in a list must be a string without the delimiter {delimiter!r}")
    return delimiter.join(label)


def _unquoted(cell: str) -> str:
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell
