"""Write tables row by row, in the format of the file's name: TSV, CSV, JSON Lines or Parquet."""

import contextlib
import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from official_bert.data.tables import COMMA, ENDINGS
from official_bert.support import writing
from official_bert.support.console import tsv_line
from official_bert.support.errors import UserError, require
from official_bert.support.text_files import text_extension

STANDARD_STREAM = "-"  # name for standard input or output
_PARQUET_TYPES = {int: "int64", float: "float64"}
_PARQUET_ROWS = 4096  # kept in memory before they are written
Write = Callable[[Sequence[str], Sequence[Any]], None]  # takes the columns, which all rows share, and a row's values


def written_format(path: str, given: str | None) -> str:
    """Return the format of a file to write: that of its name, the given one, or TSV for other names."""
    ending = os.path.splitext(path)[1].lower()
    if text_extension(path) != ending:
        raise UserError(f"output_file={path}: compressed files are not written; leave out {ending}")
    named = None if ending == ".txt" else ENDINGS.get(ending)  # the name of any text
    if named and named != (given or named):
        raise UserError(f"output_format={given} contradicts the name of output_file={path}; change one of them")
    chosen = given or named or "tsv"
    if chosen == "parquet":
        require("pyarrow", extra="parquet")
        if path == STANDARD_STREAM:
            raise UserError("output_format=parquet needs output_file, since it is written to no pipe")
    return chosen


@contextlib.contextmanager
def table_writer(path: str, table_format: str, delimiter: str = COMMA) -> Iterator[Write]:
    """Open a table; it gets its name when the block ends without an error. None is an empty cell."""
    is_parquet = table_format == "parquet"
    with contextlib.ExitStack() as stack:
        sink = sys.stdout
        if path != STANDARD_STREAM:
            sink = stack.enter_context(writing.atomic_write(path, "wb" if is_parquet else "w"))
        yield stack.enter_context(_parquet_rows(sink)) if is_parquet else _text_rows(sink, table_format, delimiter)


def _text_rows(sink: IO[str], table_format: str, delimiter: str) -> Write:
    rows = csv.writer(sink, delimiter=delimiter)  # its quotes and line ends are those of RFC 4180
    has_header = False

    def write(columns: Sequence[str], values: Sequence[Any]) -> None:
        nonlocal has_header
        if table_format == "jsonl":
            sink.write(json.dumps(dict(zip(columns, values, strict=True)), ensure_ascii=False) + "\n")
            return
        for cells in [values] if has_header else [columns, values]:
            cells = ["" if cell is None else str(cell) for cell in cells]
            if table_format == "csv":
                rows.writerow(cells)
            else:
                sink.write(tsv_line(cells))
        has_header = True

    return write


@contextlib.contextmanager
def _parquet_rows(sink: IO[bytes]) -> Iterator[Write]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kept: list[Sequence[Any]] = []
    names, writer = [], None

    def write(columns: Sequence[str], values: Sequence[Any]) -> None:
        names[:] = columns
        kept.append(values)
        if len(kept) >= _PARQUET_ROWS and (writer or None not in values):  # the types of all columns are known
            flush()

    def flush() -> None:
        nonlocal writer
        columns = list(zip(*kept, strict=True))
        if writer is None:
            firsts = (next((value for value in column if value is not None), "") for column in columns)
            types = [_PARQUET_TYPES.get(type(first), "string") for first in firsts]
            schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in zip(names, types, strict=True)])
            writer = pq.ParquetWriter(sink, schema)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, writer.schema.types, strict=True)]
        writer.write_table(pa.Table.from_arrays(arrays, schema=writer.schema))
        kept.clear()

    yield write
    if kept:
        flush()
    if writer is not None:
        writer.close()
