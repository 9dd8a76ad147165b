"""Batches of records without TensorFlow: their lengths, and in NumPy; those of `tf.data` are in `data.pipeline`."""

import contextlib
import dataclasses
import itertools
import random
import sys
from collections.abc import Iterator, Sequence

import numpy as np

from official_bert.data.record_files import FILES_READ_TOGETHER, MAX_BYTES, SHUFFLE_BUFFER, check_records, read_records
from official_bert.data.schema import RecordSchema
from official_bert.support.errors import UserError

PARSED_TOGETHER = 256  # records parsed at a time
_SHORTEST = 8  # positions; the smallest length that batches are cut to
IS_REAL_EXAMPLE = "is_real_example"
RECORD_INDEX = "record_index"


def padded_lengths(max_length: int, unit: int | None = None) -> list[int]:
    """Return a short list of padded lengths for batches of similar texts, so that few shapes are compiled."""
    length = step = unit or _SHORTEST
    lengths = []
    while length < max_length:
        lengths.append(length)
        if length == 16 * step:  # end of an octave
            step *= 2
        length += step
    return [*lengths, max_length]


@dataclasses.dataclass(frozen=True)
class TokenBudget:
    num_tokens: int  # maximum number of positions per batch, padding included, over all replicas
    multiple: int = 1  # batch sizes are multiples of this, so that replicas and their parts can share a batch

    def minimum(self, longest: int) -> int:
        return longest * self.multiple

    def split(self, extents: np.ndarray, lengths: Sequence[int], seed: str) -> list[np.ndarray]:
        """Split a pool of examples into batches of similar lengths, in random order.

        The longest come first. Each batch takes as many of the next examples as fit, and the last two share the
        remainder. For example, extents 5 8 2 7 1 1 3 (positions up to the last real one), lengths 4 and 8 and a budget
        of 16 tokens give the batches 8 7, 5 3 and 2 1 1; with another example of length 4, 8 7, 5 4 and 3 2 1 1.
        """
        order = np.argsort(-extents, kind="stable")
        widths = self.widths(extents[order], lengths)
        if self.num_tokens < self.minimum(widths[0]):
            raise ValueError(f"{self} is less than the {self.minimum(widths[0])} tokens that the longest examples need")
        ends = [0]
        while ends[-1] < len(order):
            num_fitting = self._rounded(self.num_tokens // widths[ends[-1]])
            ends.append(min(ends[-1] + num_fitting, len(order)))
        if len(ends) > 2:
            ends[-2] = min(ends[-2], ends[-3] + self._rounded((ends[-1] - ends[-3]) // 2))
        batches = np.split(order, ends[1:-1])
        random.Random(seed).shuffle(batches)
        return batches

    @staticmethod
    def widths(extents: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
        """Return the first of the lengths that holds each extent; int [B]."""
        return np.asarray(lengths)[np.searchsorted(lengths, extents)]

    def _rounded(self, number: int) -> int:
        """Return the largest batch size, up to a limit."""
        return int(number) // self.multiple * self.multiple


def fitting(number: int, num_records: int, schema: RecordSchema) -> int:
    """Return a number of groups of records, reduced if they need too much memory; at least one."""
    return max(min(number, MAX_BYTES // (num_records * schema.num_bytes)), 1)


def numpy_batches(
    paths: Sequence[str], schema: RecordSchema, *, batch_size: int, num_records: int, seed: int, start_record: int = 0
) -> Iterator[dict[str, np.ndarray]]:
    """Shuffle and repeat records without end, as `pipeline.training_batches`, but in another order.

    The commands use that one with every backend. The order is a function of the seed and the epoch number, so a run
    resumed at `start_record` sees the same batches as an uninterrupted one.
    """
    first_epoch, num_used = divmod(start_record, num_records)
    epochs = (_epoch(paths, schema, f"{seed} {number}") for number in itertools.count(first_epoch))
    records = itertools.islice(itertools.chain.from_iterable(epochs), num_used, None)
    while True:
        yield _decoded(list(itertools.islice(records, batch_size)), schema, paths)


def numpy_evaluation_batches(
    paths: Sequence[str],
    schema: RecordSchema,
    *,
    batch_size: int,
    lengths: Sequence[int] | None = None,
    num_replicas: int = 1,
    numbers: range | None = None,
) -> Iterator[dict[str, np.ndarray]]:
    """Read records once into the batches of `pipeline.evaluation_batches`; see there for the arguments."""
    records = itertools.chain.from_iterable(map(read_records, paths))
    if numbers is not None:
        records = itertools.islice(records, numbers.start, numbers.stop)
    multiple = num_replicas if lengths else batch_size
    longest = lengths[-1] if lengths else 0
    waiting: dict[int, list[dict[str, np.ndarray]]] = {length: [] for length in lengths or [longest]}
    cut = [field.name for field in schema.fields if field.is_per_position and lengths]
    indices = itertools.count()

    def stacked(rows: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        missing = (0, -len(rows) % multiple)
        return {name: np.pad(values, [missing, *[(0, 0)] * (values.ndim - 1)]) for name, values in columns.items()}

    while serialized := list(itertools.islice(records, fitting(PARSED_TOGETHER, 1, schema))):
        columns = _decoded(serialized, schema, paths)
        if lengths:
            mask = columns["input_mask"]  # [B, S]
            extents = (mask * np.arange(1, mask.shape[-1] + 1)).max(axis=-1)
        for row in range(len(serialized)):
            length = int(TokenBudget.widths(extents[row], lengths)) if lengths else longest
            record = {name: values[row] for name, values in columns.items()}
            record |= {name: record[name][:length] for name in cut}
            record |= {IS_REAL_EXAMPLE: np.int32(1), RECORD_INDEX: np.int32(next(indices))}
            waiting[length].append(record)
            if len(waiting[length]) == batch_size * (longest // length if lengths else 1):
                yield stacked(waiting[length])
                waiting[length] = []
    yield from (stacked(rows) for rows in waiting.values() if rows)


def _decoded(serialized: Sequence[bytes], schema: RecordSchema, paths: Sequence[str]) -> dict[str, np.ndarray]:
    try:
        return schema.decode_numpy(serialized)
    except UserError:
        for path in paths:  # to name the file and the record
            check_records(read_records(path), schema, path)
        raise


def _epoch(paths: Sequence[str], schema: RecordSchema, seed: str) -> Iterator[bytes]:
    """Read several files at a time, in random order, and exchange each record with one in a buffer."""
    rng, buffer = random.Random(seed), []
    buffer_size = max(min(SHUFFLE_BUFFER, MAX_BYTES // schema.num_bytes), 1)
    order = rng.sample(paths, len(paths))
    for start in range(0, len(order), FILES_READ_TOGETHER):
        readers = map(read_records, order[start : start + FILES_READ_TOGETHER])
        for record in itertools.chain.from_iterable(itertools.zip_longest(*readers)):
            if record is None:  # the end of a file that is shorter than others
                continue
            if len(buffer) < buffer_size:
                buffer.append(record)
            else:
                place = rng.randrange(buffer_size)
                yield buffer[place]
                buffer[place] = record
    rng.shuffle(buffer)
    yield from buffer


@contextlib.contextmanager
def reporting_damaged_records(paths: Sequence[str], schema: RecordSchema | None = None) -> Iterator[None]:
    """Convert TensorFlow's errors about unreadable records to messages with file and record number."""
    try:
        yield
    except Exception as error:
        tf = sys.modules.get("tensorflow")
        if tf is None or not isinstance(error, tf.errors.OpError):
            raise
        for path in paths:
            if isinstance(error, (tf.errors.DataLossError, tf.errors.InvalidArgumentError)):
                check_records(read_records(path), schema, path)
        for path in paths:
            lines = [line for line in error.message.splitlines() if path in line]
            if lines:  # a missing or unreachable file; around the reason TensorFlow names its own
                reason = lines[-1].rpartition(path)[2].partition(" [Op:")[0].strip("; ")
                raise UserError(f"cannot read {path}: {reason or error.message}") from error
        raise
