"""Prediction of all records of a file by a trainer."""

import numpy as np
import tensorflow as tf

from official_bert.data.damaged_records import reporting_damaged_records
from official_bert.data.pipeline import evaluation_batches
from official_bert.data.records import RecordFile
from official_bert.training.loop import Trainer


def predictions(
    trainer: Trainer, file: RecordFile, num_records: int, *, batch_size: int, label: str
) -> dict[str, np.ndarray]:
    """Return the task's predictions for every record of a file.

    Args:
      trainer: provides the model.
      file: the record file.
      num_records: number of records.
      batch_size: examples per batch, over all replicas.
      label: description for progress.

    Returns:
      Name to array, one row per record, in file order.
    """
    with reporting_damaged_records([file.path], file.schema):
        return trainer.predict(batches_of(trainer, file, batch_size), num_records=num_records, label=label)


def batches_of(trainer: Trainer, file: RecordFile, batch_size: int, numbers: range | None = None) -> tf.data.Dataset:
    """Return all records of a file, or those with the given numbers, once, in batches for a trainer's replicas."""
    trainer.cluster.wait()  # until the chief has written the file
    return evaluation_batches(
        [file.path],
        file.schema,
        batch_size=batch_size,
        lengths=file.lengths,
        num_replicas=trainer.num_replicas,
        numbers=numbers,
    )
