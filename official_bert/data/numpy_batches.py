"""`numpy_batches`: training batches of TFRecord files without TensorFlow, for programs with Keras on JAX."""

import itertools
import random
from collections.abc import Iterator, Sequence

import numpy as np

from official_bert.data.record_files import check_records, read_records
from official_bert.data.schema import RecordSchema
from official_bert.support.errors import UserError

_SHUFFLE_BUFFER = 10_000  # records; some 10 MB
_MAX_BYTES = 2**29  # limit for the records in the buffer; relevant for per-position vectors
_FILES_READ_TOGETHER = 16


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
        serialized = list(itertools.islice(records, batch_size))
        try:
            batch = schema.decode_numpy(serialized)
        except UserError:
            for path in paths:  # to name the file and the record
                check_records(read_records(path), schema, path)
            raise
        yield batch


def _epoch(paths: Sequence[str], schema: RecordSchema, seed: str) -> Iterator[bytes]:
    """Read several files at a time, in random order, and exchange each record with one in a buffer."""
    rng, buffer = random.Random(seed), []
    buffer_size = max(min(_SHUFFLE_BUFFER, _MAX_BYTES // schema.num_bytes), 1)
    order = rng.sample(paths, len(paths))
    for start in range(0, len(order), _FILES_READ_TOGETHER):
        readers = map(read_records, order[start : start + _FILES_READ_TOGETHER])
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
