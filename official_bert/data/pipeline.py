"""From TFRecord files to batches: `training_batches()` and `evaluation_batches()`."""

from collections.abc import Sequence

import tensorflow as tf

from official_bert.data.schema import RecordSchema

_SHUFFLE_BUFFER = 10_000  # records; some 10 MB
_FILES_READ_TOGETHER = 16

IS_REAL_EXAMPLE = "is_real_example"


def training_batches(
    paths: Sequence[str], schema: RecordSchema, *, batch_size: int, num_records: int, seed: int, start_record: int = 0
) -> tf.data.Dataset:
    """Shuffles and repeats records without end; each epoch holds each record exactly once.

    The order is a function of the seed and the epoch's number, so a run can begin anywhere: the batches of a resumed
    run are those that the uninterrupted run would have seen.

    Args:
      paths: TFRecord files.
      schema: what a record holds.
      batch_size: examples in a batch, over all replicas; a batch may span two epochs.
      num_records: records in all files together.
      seed: seed of the order.
      start_record: how many records have been used already, over all epochs.

    Returns:
      A dataset of dicts, name to tensor [batch_size, ...].
    """
    first_epoch, skipped = divmod(start_record, num_records)

    def epoch(number):
        order = tf.random.experimental.stateless_shuffle(list(paths), seed=[seed, number])
        records = tf.data.Dataset.from_tensor_slices(order).interleave(
            tf.data.TFRecordDataset,
            cycle_length=min(len(paths), _FILES_READ_TOGETHER),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        buffer_size = min(num_records, _SHUFFLE_BUFFER)
        records = records.shuffle(buffer_size, seed=seed + number, reshuffle_each_iteration=False)
        return records.skip(tf.where(number == first_epoch, tf.constant(skipped, tf.int64), 0))

    epochs = tf.data.Dataset.range(first_epoch, tf.int64.max)
    batches = epochs.flat_map(epoch).batch(batch_size, drop_remainder=True)
    return batches.map(schema.decode, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def evaluation_batches(
    paths: Sequence[str], schema: RecordSchema, *, batch_size: int, max_batches: int | None = None
) -> tf.data.Dataset:
    """Reads records once, in the order of the files; the last batch is filled up, nothing is dropped.

    Args:
      paths: TFRecord files.
      schema: what a record holds.
      batch_size: examples in a batch, over all replicas.
      max_batches: stop after so many batches; None reads everything.

    Returns:
      A dataset of dicts, name to tensor [batch_size, ...], with `is_real_example` int32 [batch_size], 0 for what fills
      up the last batch.
    """
    batches = tf.data.TFRecordDataset(list(paths)).batch(batch_size)
    if max_batches is not None:
        batches = batches.take(max_batches)

    def decode_and_fill(serialized):
        batch = schema.decode(serialized)
        num_real = tf.shape(serialized)[0]
        batch[IS_REAL_EXAMPLE] = tf.ones([num_real], tf.int32)
        return {name: _fill_up(tensor, batch_size, batch_size - num_real) for name, tensor in batch.items()}

    return batches.map(decode_and_fill, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _fill_up(tensor: tf.Tensor, batch_size: int, num_missing: tf.Tensor) -> tf.Tensor:
    paddings = [[0, num_missing]] + [[0, 0]] * (tensor.shape.rank - 1)
    return tf.ensure_shape(tf.pad(tensor, paddings), [batch_size, *tensor.shape[1:]])
