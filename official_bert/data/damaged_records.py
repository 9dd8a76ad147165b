"""Error messages for unreadable records, with file and record number."""

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from official_bert.data import tfrecord
from official_bert.data.records import check_records, manifest_path
from official_bert.data.schema import RecordSchema
from official_bert.support.errors import UserError
from official_bert.support.manifest import Manifest


@contextlib.contextmanager
def reporting_damaged_records(paths: Sequence[str], schema: RecordSchema | None = None) -> Iterator[None]:
    """Convert TensorFlow's errors about unreadable records to messages with file and record number.

    Args:
      paths: the files read inside the block.
      schema: used to find complete records that do not match it.

    Raises:
      UserError: a record is corrupt, truncated or does not match the schema; or a file cannot be read.
    """
    try:
        yield
    except tf.errors.OpError as error:
        for path in paths:
            if isinstance(error, (tf.errors.DataLossError, tf.errors.InvalidArgumentError)):
                _check(path, schema, error)
        for path in paths:
            lines = [line for line in error.message.splitlines() if path in line]
            if lines:  # a missing or unreachable file; around the reason TensorFlow names its own
                reason = lines[-1].rpartition(path)[2].partition(" [Op:")[0].strip("; ")
                raise UserError(f"cannot read {path}: {reason or error.message}") from error
        raise


def _check(path: str, schema: RecordSchema | None, cause: Exception) -> None:
    try:
        check_records(tfrecord.read_records(path), schema, path)
    except tfrecord.DamagedRecordError as error:
        if Manifest.read_or_none(manifest_path(path)):
            raise UserError(f"{error.what}; delete it; it will be created again") from cause
        raise error from cause
