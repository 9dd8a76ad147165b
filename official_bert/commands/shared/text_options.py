"""Flags for the texts that a command reads, and for the table that it writes."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from official_bert.data.tables import FORMATS
from official_bert.options.option import GIVEN, Options, option, options
from official_bert.support import writing
from official_bert.support.errors import UserError

if TYPE_CHECKING:
    from official_bert.data.text_inputs import TextSource

_TABLE = {"text_column": GIVEN}  # required by some flags


@options(group="input")
class TextFileOptions(Options):
    """Flags of the commands that read texts or pairs of texts from lines or a table."""

    input_file: str | None = option(
        None,
        "Text file, one text per line, or `text ||| text` for a pair; - for standard input.",
        required=True,
        is_path=True,
    )
    text_column: str | None = option(
        None, "Read a table: name or number (from 0) of the text column; in JSON Lines and Parquet its name."
    )
    text_b_column: str | None = option(
        None, "With --text_column: column of the second text, for pairs.", only_with=_TABLE
    )
    input_format: str | None = option(
        None,
        "With --text_column: format of the table; by default that of the file name's extension.",
        choices=FORMATS,
        only_with=_TABLE,
    )
    has_header: bool = option(
        True, "With --text_column: the first row of TSV and CSV names the columns.", only_with=_TABLE
    )

    @property
    def source(self) -> "TextSource":
        """The texts."""
        from official_bert.data.text_inputs import TextSource

        columns = [column for column in (self.text_column, self.text_b_column) if column is not None] or None
        return TextSource(self.input_file, columns, self.input_format, self.has_header)


@options(group="output")
class OutputTableOptions(Options):
    """Flags of the commands that write a table."""

    output_file: str | None = option(None, "File to write.", group="output", required=True, is_path=True)
    output_format: str = option(
        "tsv",
        "tsv: a table with a header; jsonl: one JSON object per row.",
        group="output",
        choices=("tsv", "jsonl"),
    )


def write_rows(
    config: OutputTableOptions, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, if_empty: str
) -> int:
    """Write a table; an error leaves no partial file.

    Args:
      config: the output flags.
      columns: the names of the columns.
      rows: the cells of each row; in TSV, whitespace within a cell becomes a single space.
      if_empty: the error message if there are no rows.

    Returns:
      The number of rows.

    Raises:
      UserError: there are no rows, or the file cannot be written.
    """
    number = 0
    with writing.atomic_write(config.output_file) as sink:
        if config.output_format == "tsv":
            sink.write("\t".join(columns) + "\n")
        for row in rows:
            number += 1
            if config.output_format == "tsv":
                sink.write("\t".join(" ".join(str(cell).split()) for cell in row) + "\n")
            else:
                sink.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")
        if not number:
            raise UserError(if_empty)
    return number
