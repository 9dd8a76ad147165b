"""Layout of the examples of a data set: file, columns and header."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from absl import logging

from official_bert.data.tables import (
    Row,
    column_number,
    log_header,
    read_tsv,
    separator_hint,
    without_trailing_blank_rows,
)
from official_bert.support import files
from official_bert.support.errors import UserError, format_names

ID_COLUMN = "id"
Column = int | str  # a 0-based number (negative: from the end), or a name in the header
_T = TypeVar("_T")


class TextExample(NamedTuple):
    """One or two texts to classify.

    Attributes:
      guid: the example's id, as in the reference: "train-1".
      text_a: the first text.
      text_b: the second text of a pair.
      label: the label as written in the file, without surrounding white space; None if the file has none.
      where: file and line, for error messages.
      id: value of the `id` column of a custom data set; None if the file has none.
    """

    guid: str
    text_a: str
    text_b: str | None
    label: str | None
    where: str
    id: str | None = None


@dataclasses.dataclass(frozen=True)
class Split:
    """A split of a data set: its file and that file's layout.

    Attributes:
      names: candidate names of the file or folder in the data folder; the first that exists is read.
      text_a: column of the first text.
      text_b: column of the second text; None for single texts.
      label: column of the label; None if the split has no labels.
      read: function that reads the rows of the file.
      has_header: the first row names the columns.
      guid_prefix: prefix of the guids; by default the split's name.
      guid_column: column with the rest of the guid; by default the row number.
      is_header_counted: count the header as row 0, as the reference's guids do; otherwise the first example is row 0.
      id_column: column of the ids to keep; optional in each row and, if given by name, in the header.
      language: read only rows with this value in their first column.
      renamed_labels: maps labels in the file to the labels to use.
      skip_short_rows: skip rows with missing columns, with a warning.
      most_columns: maximum number of columns per row; with a header, its width; None for no limit.
    """

    names: tuple[str, ...]
    text_a: Column
    text_b: Column | None = None
    label: Column | None = None
    read: Callable[[str], Iterator[Row]] = read_tsv
    has_header: bool = True
    guid_prefix: str | None = None
    guid_column: Column | None = None
    is_header_counted: bool = True
    id_column: Column | None = None
    language: str | None = None
    renamed_labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    skip_short_rows: bool = False
    most_columns: int | None = None

    def find(self, data_dir: str | None) -> str:
        """Return the path of the file."""
        paths = [os.path.join(data_dir, name) if data_dir else name for name in self.names]
        for path in paths:
            if files.exists(path):
                return path
        raise UserError(f"there is no {' and no '.join(paths)}; check the path")

    def examples(self, path: str, guid_prefix: str) -> list[TextExample]:
        """Read the examples of a file.

        Raises:
          UserError: the file cannot be read; the message names the first bad row and gives their number.
        """
        rows = without_trailing_blank_rows(self.read(path))
        layout = self
        if self.has_header:
            header = next(rows, None)
            if header is None:
                raise UserError(f"{path} is empty")
            layout = self._numbered(header)
        examples = collect(functools.partial(layout._example, guid_prefix), layout._selected(rows, path))
        if not examples:
            language = f" with {self.language!r} in the first column" if self.language else ""
            raise UserError(f"{path} has no examples{language}")
        if self.has_header:
            # A user gives columns; most published files have them by number.
            is_given = self.most_columns and any(isinstance(column, int) for column in self._columns.values())
            labels = set() if layout.label is None else {cell.strip() for cell in header.cells[layout.label :][:1]}
            log_header(header, is_doubtful=is_given or any(example.label in labels for example in examples))
        return examples

    @property
    def _columns(self) -> dict[str, Column]:
        columns = {name: getattr(self, name) for name in ("text_a", "text_b", "label", "guid_column")}
        return {name: column for name, column in columns.items() if column is not None}

    @functools.cached_property
    def _width(self) -> int:
        """Return the minimum number of columns per row; all columns must be numbers."""
        return max(column + 1 if column >= 0 else -column for column in self._columns.values())

    def _numbered(self, header: Row) -> "Split":
        """Return this layout with column names replaced by numbers."""
        numbers = {"most_columns": len(header.cells)} if self.most_columns else {}
        for field, column in self._columns.items():
            if isinstance(column, str):
                column = column_number(column, header)
            elif self.most_columns and column >= len(header.cells):
                raise UserError(
                    f"{header.where}: no column {column}, counted from 0; the columns are {format_names(header.cells)}"
                    + separator_hint(header.cells)
                )
            numbers[field] = column
        if isinstance(self.id_column, str):
            others = {numbers[field] for field in self._columns}
            found = [number for number, name in enumerate(header.cells) if name == self.id_column]
            numbers["id_column"] = found[0] if len(found) == 1 and found[0] not in others else None
        return dataclasses.replace(self, **numbers)

    def _selected(self, rows: Iterable[Row], path: str) -> Iterator[Row]:
        num_short = 0
        for row in rows:
            if self.skip_short_rows and len(row.cells) < self._width:
                num_short += 1
            elif self.language is None or row.cells[:1] == [self.language]:
                yield row
        if num_short:
            logging.warning("%s: skipped %d rows with fewer than %d columns", path, num_short, self._width)

    def _example(self, guid_prefix: str, row: Row) -> TextExample:
        cells = row.cells
        if row.mistake:
            raise UserError(f"{row.where}: {row.mistake}")
        if self.most_columns and len(cells) > self.most_columns:
            raise UserError(
                f"{row.where}: {len(cells)} columns, but the header has {self.most_columns}; does a text contain the "
                f"separator? The row begins {cells[0][:40]!r}"
            )
        if not cells:
            raise UserError(f"{row.where}: a blank line; remove it")
        if len(cells) < self._width:
            raise UserError(
                f"{row.where}: {len(cells)} columns, but {self._width} are required; the row begins {cells[0][:40]!r}"
            )
        label = None if self.label is None else cells[self.label].strip()
        number = row.number - int(self.has_header and not self.is_header_counted)
        return TextExample(
            f"{guid_prefix}-{number if self.guid_column is None else cells[self.guid_column]}",
            cells[self.text_a],
            None if self.text_b is None else cells[self.text_b],
            self.renamed_labels.get(label, label),
            row.where,
            None if self.id_column is None else "".join(cells[self.id_column : self.id_column + 1]),
        )


def split_suffix(split: str) -> str:
    """Return the suffix for files and scores of a second split: "_mismatched" for MNLI, otherwise ""."""
    return "_mismatched" if split.endswith("_mismatched") else ""


def collect(convert: Callable[[Any], _T], items: Iterable[Any]) -> list[_T]:
    """Convert all items; if some fail, raise the first UserError with the number of failures."""
    converted, errors = [], []
    for item in items:
        try:
            converted.append(convert(item))
        except UserError as error:
            errors.append(str(error))
    if errors:
        raise UserError(errors[0] + (f" ({len(errors):,} bad rows in all)" if len(errors) > 1 else ""))
    return converted
