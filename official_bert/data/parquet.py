"""Read columns of Parquet files in bounded memory. Needs pyarrow, an optional package."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from official_bert.support import files
from official_bert.support.compression import is_compressed
from official_bert.support.errors import UserError, format_names, install_command

MAGIC = b"PAR1"  # at the beginning and end of a file
_BATCH_ROWS = 64  # a text may be as long as a book
_BUFFER_BYTES = 1 << 20  # per column


class ParquetReader:
    """Rows of a file, or of some of its row groups."""

    def __init__(self, path: str, file: Any):
        """Set the open file; see `open_parquet`."""
        self.path = path  # the file
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

    def check_columns(self, text_columns: Sequence[str], label_column: str | None = None) -> None:
        """Raise unless the file has all these columns and its text columns contain strings."""
        import pyarrow as pa

        schema = self._file.schema_arrow
        for name in [*text_columns, *([] if label_column is None else [label_column])]:
            count = schema.names.count(name)
            if not count:
                raise UserError(f"{self.path}: no column {name!r}; the columns are {format_names(schema.names)}")
            if count > 1:
                raise UserError(f"{self.path}: {count} columns are named {name!r}; rename all but one of them")
        for name in text_columns:
            kind = schema.field(name).type
            if pa.types.is_dictionary(kind):
                kind = kind.value_type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise UserError(f"{self.path}: the column {name!r} holds {kind}; a text must be a string")

    def rows(self, columns: Sequence[str], groups: range | None = None) -> Iterator[tuple[int, tuple]]:
        """Read some columns."""
        groups = range(len(self.group_rows)) if groups is None else groups
        number = sum(self.group_rows[: groups.start])
        with _explained(self.path, f"after row {number}"):
            batches = self._file.iter_batches(
                batch_size=_BATCH_ROWS, row_groups=list(groups), columns=list(dict.fromkeys(columns)), use_threads=False
            )
        while True:
            with _explained(self.path, f"at or after row {number}"):
                batch = next(batches, None)
            if batch is None:
                return
            values = [self._values(batch.column(name), name, number) for name in columns]
            for row in zip(*values, strict=True):
                yield number, row
                number += 1

    def _values(self, column: Any, name: str, first_row: int) -> list[Any]:
        try:
            return column.to_pylist()
        except UnicodeDecodeError:
            for number, value in enumerate(column, start=first_row):
                try:
                    value.as_py()
                except UnicodeDecodeError as error:
                    raise UserError(f"{self.path}, row {number}: {name!r} is not UTF-8 ({error})") from error
            raise


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
    """Convert pyarrow's errors about a file to messages that name it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # a disk error
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path} is not Parquet, or damaged {where}: {text}") from error
