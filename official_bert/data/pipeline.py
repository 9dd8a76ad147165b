"""Input pipelines from TFRecord files: `training_batches()` and `evaluation_batches()`.

No function here has a Python `if` or loop over tensors, so AutoGraph, which takes about 20 ms per function, is
disabled.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import tensorflow as tf

from official_bert.data.batches import IS_REAL_EXAMPLE, PARSED_TOGETHER, RECORD_INDEX, TokenBudget, fitting
from official_bert.data.record_files import FILES_READ_TOGETHER, SHUFFLE_BUFFER, compression_type
from official_bert.data.schema import RecordSchema
from official_bert.support.errors import UserError
from official_bert.tokenization import Tokenizer, load_tokenizer
from official_bert.tokenization.graph_operations import truncate_and_join

_POOLED_BATCHES = 64  # number of batches whose records are sorted by length together
_POOLED_RECORDS = 8192  # minimum for batches of different sizes
_SEED_RANGE = 2**31 - 1  # TensorFlow takes the seeds of a graph modulo this


@tf.autograph.experimental.do_not_convert
def training_batches(
    paths: Sequence[str],
    schema: RecordSchema,
    *,
    batch_size: int | TokenBudget,
    num_records: int,
    seed: int,
    start_record: int = 0,
    lengths: Sequence[int] | None = None,
    is_repeated_late: bool = False,
) -> tf.data.Dataset:
    """Shuffle and repeat records without end; each epoch contains each record exactly once.

    The order is a function of the seed and the epoch number, so a run can start anywhere: a resumed run sees the same
    batches as an uninterrupted one. A batch may span two epochs. With `lengths`, from `padded_lengths`, which a
    `TokenBudget` needs, batches have similar lengths and are truncated to these. With `is_repeated_late` these batches
    are chosen among at most an epoch, so that they seldom hold a record twice; of small files they otherwise hold
    copies of few records.
    """
    if isinstance(batch_size, TokenBudget):
        batches = _batches_within(batch_size, paths, schema, num_records, seed, start_record, lengths)
        return batches.prefetch(tf.data.AUTOTUNE)
    if lengths:
        num_batches = fitting(_POOLED_BATCHES, batch_size, schema)
        if is_repeated_late:
            num_batches = max(min(num_batches, num_records // batch_size), 1)
        pool_size = num_batches * batch_size
        first_pool, num_used = divmod(start_record, pool_size)
        pools = _training_batches(paths, schema, pool_size, num_records, seed, first_pool * pool_size)

        def split(number, pool):
            extents = _extents(pool["input_mask"])
            batches_of_rows = tf.reshape(tf.argsort(extents, stable=True), [-1, batch_size])
            batches_of_rows = tf.random.experimental.stateless_shuffle(batches_of_rows, seed=[seed, number])
            return _selected(pool, extents, batches_of_rows, schema, lengths)

        return pools.enumerate(first_pool).flat_map(split).skip(num_used // batch_size).prefetch(tf.data.AUTOTUNE)
    return _training_batches(paths, schema, batch_size, num_records, seed, start_record).prefetch(tf.data.AUTOTUNE)


def _batches_within(
    budget: TokenBudget,
    paths: Sequence[str],
    schema: RecordSchema,
    num_records: int,
    seed: int,
    start_record: int,
    lengths: Sequence[int],
) -> tf.data.Dataset:
    pool_size = _pool_size(budget, schema, num_records, lengths)
    first_pool, num_used = divmod(start_record, pool_size)
    pools = _training_batches(paths, schema, pool_size, num_records, seed, first_pool * pool_size)

    def rows_and_sizes(extents, number, num_used):  # a resumed run skips the used batches of its first pool
        batches = budget.split(extents, lengths, _seed_of_pool(seed, number))
        sizes = np.array([len(rows) for rows in batches])
        is_left = np.cumsum(sizes) > num_used
        left = [rows for rows, is_batch_left in zip(batches, is_left, strict=True) if is_batch_left]
        return np.concatenate([np.zeros(0, np.int64), *left]), sizes[is_left]

    def split(number, pool):
        extents = _extents(pool["input_mask"])
        num_used_of_pool = tf.where(number == first_pool, tf.constant(num_used, tf.int64), 0)
        rows, sizes = tf.numpy_function(rows_and_sizes, [extents, number, num_used_of_pool], [tf.int64, tf.int64])
        rows, sizes = tf.ensure_shape(rows, [None]), tf.ensure_shape(sizes, [None])
        batches_of_rows = tf.RaggedTensor.from_row_lengths(rows, sizes)
        return _selected(pool, extents, batches_of_rows, schema, lengths)

    return pools.enumerate(first_pool).flat_map(split)


def _pool_size(budget: TokenBudget, schema: RecordSchema, num_records: int, lengths: Sequence[int]) -> int:
    """Return the number of records sorted by length together; at most an epoch, so that no batch repeats a record."""
    wanted = max(_POOLED_RECORDS, _POOLED_BATCHES * (budget.num_tokens // lengths[-1]))
    num_groups = min(fitting(wanted, 1, schema), num_records) // budget.multiple
    return max(num_groups, 1) * budget.multiple


def _seed_of_pool(seed: int, number: int) -> str:
    return f"{seed} {number}"


class BatchSize(NamedTuple):
    num_examples: int  # examples over all replicas
    num_positions: int  # positions of all examples, padding included
    num_tokens: int  # positions excluding padding


def batch_sizes(
    paths: Sequence[str],
    schema: RecordSchema,
    budget: TokenBudget,
    *,
    num_records: int,
    seed: int,
    lengths: Sequence[int],
) -> Iterator[BatchSize]:
    """Return the batch sizes of `training_batches`, in order and without end; only the masks are read."""
    masks = RecordSchema(*(field for field in schema.fields if field.name == "input_mask"))
    pool_size = _pool_size(budget, schema, num_records, lengths)
    pools = _training_batches(paths, schema, pool_size, num_records, seed, 0, decoded=masks)
    for number, pool in enumerate(pools.prefetch(tf.data.AUTOTUNE)):
        extents = _extents(pool["input_mask"]).numpy()
        num_tokens = tf.reduce_sum(pool["input_mask"], axis=1).numpy()
        for rows in budget.split(extents, lengths, _seed_of_pool(seed, number)):
            (width,) = budget.widths(extents[rows].max(keepdims=True), lengths)
            yield BatchSize(len(rows), len(rows) * int(width), int(num_tokens[rows].sum()))


@tf.autograph.experimental.do_not_convert
def _training_batches(
    paths: Sequence[str],
    schema: RecordSchema,
    batch_size: int,
    num_records: int,
    seed: int,
    start_record: int,
    *,
    decoded: RecordSchema | None = None,
) -> tf.data.Dataset:
    first_epoch, skipped = divmod(start_record, num_records)
    files = list(paths), [compression_type(path) for path in paths]

    def epoch(number):
        # This graph's seed also goes into `shuffle`; the process's seed would change it. TensorFlow cannot combine a
        # seed of 0 with an epoch seed, which is a tensor.
        tf.compat.v1.set_random_seed(seed % _SEED_RANGE or _SEED_RANGE - 1)
        order = tf.random.experimental.stateless_shuffle(tf.range(len(paths)), seed=[seed, number])
        shuffled = tuple(tf.gather(column, order) for column in files)
        records = tf.data.Dataset.from_tensor_slices(shuffled).interleave(
            tf.data.TFRecordDataset,
            cycle_length=min(len(paths), FILES_READ_TOGETHER),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        buffer_size = min(num_records, fitting(SHUFFLE_BUFFER, 1, schema))
        records = records.shuffle(buffer_size, seed=seed + number, reshuffle_each_iteration=False)
        return records.skip(tf.where(number == first_epoch, tf.constant(skipped, tf.int64), 0))

    epochs = tf.data.Dataset.range(first_epoch, tf.int64.max)
    batches = epochs.flat_map(epoch).batch(batch_size, drop_remainder=True)
    return batches.map((decoded or schema).decode, num_parallel_calls=tf.data.AUTOTUNE)


def _selected(
    pool: dict[str, tf.Tensor],
    extents: tf.Tensor,
    batches_of_rows: tf.Tensor | tf.RaggedTensor,
    schema: RecordSchema,
    lengths: Sequence[int],
) -> tf.data.Dataset:

    def select(rows):
        batch = {name: tf.gather(tensor, rows) for name, tensor in pool.items()}
        return _cut(batch, schema, _padded_length(tf.reduce_max(tf.gather(extents, rows)), lengths))

    return tf.data.Dataset.from_tensor_slices(batches_of_rows).map(select)


def _extents(input_mask: tf.Tensor) -> tf.Tensor:
    """Return the positions up to the last real one; int32 [..., S] to int32 [...]."""
    return tf.reduce_max(input_mask * tf.range(1, tf.shape(input_mask)[-1] + 1), axis=-1)


def _padded_length(extent: tf.Tensor, lengths: Sequence[int]) -> tf.Tensor:
    return tf.gather(list(lengths), tf.searchsorted(list(lengths), [extent])[0])


def _cut(record: dict[str, tf.Tensor], schema: RecordSchema, length: tf.Tensor) -> dict[str, tf.Tensor]:
    """Truncate the fields with a value or vector per position."""
    vectors = {field.name: len(field.shape) > 1 for field in schema.fields if field.is_per_position}

    def cut(name, tensor):
        return tensor[..., :length, :] if vectors[name] else tensor[..., :length]

    return {name: cut(name, tensor) if name in vectors else tensor for name, tensor in record.items()}


@tf.autograph.experimental.do_not_convert
def evaluation_batches(
    paths: Sequence[str],
    schema: RecordSchema,
    *,
    batch_size: int,
    max_batches: int | None = None,
    lengths: Sequence[int] | None = None,
    num_replicas: int = 1,
    numbers: range | None = None,
) -> tf.data.Dataset:
    """Read records once, in file order; batches are padded with empty examples, and none is dropped.

    With `lengths` (from `padded_lengths`), batches have similar lengths: a multiple of `batch_size` examples for short
    texts, and the remaining examples of a length in its last batch.

    Adds `is_real_example`, int32 [B], 0 for padding, and `record_index`, int32 [B], among the records read.
    """
    files = list(paths), [compression_type(path) for path in paths]
    records = tf.data.Dataset.from_tensor_slices(files).flat_map(tf.data.TFRecordDataset)
    if numbers is not None:
        records = records.skip(numbers.start).take(len(numbers))
    if max_batches is not None:
        records = records.take(max_batches * batch_size)
    records = (
        records.batch(fitting(PARSED_TOGETHER, 1, schema))
        .map(schema.decode, num_parallel_calls=tf.data.AUTOTUNE)
        .unbatch()
    )

    def number(index, record):
        return {**record, IS_REAL_EXAMPLE: tf.constant(1), RECORD_INDEX: tf.cast(index, tf.int32)}

    records = records.enumerate().map(number)
    if lengths:
        records = records.map(
            lambda record: _cut(record, schema, _padded_length(_extents(record["input_mask"]), lengths))
        )
        batches = records.bucket_by_sequence_length(
            lambda record: tf.shape(record["input_mask"])[0],
            bucket_boundaries=[length + 1 for length in lengths[:-1]],
            bucket_batch_sizes=[batch_size * (lengths[-1] // length) for length in lengths],
        )
        multiple, num_examples = num_replicas, None
    else:
        batches = records.batch(batch_size)
        multiple, num_examples = batch_size, batch_size

    def fill_up(batch):
        num_missing = -tf.shape(batch[IS_REAL_EXAMPLE])[0] % multiple  # up to the next multiple
        return {name: _fill_up(tensor, num_missing, num_examples) for name, tensor in batch.items()}

    return batches.map(fill_up, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _fill_up(tensor: tf.Tensor, num_missing: tf.Tensor, num_examples: int | None) -> tf.Tensor:
    paddings = [[0, num_missing]] + [[0, 0]] * (tensor.shape.rank - 1)
    return tf.ensure_shape(tf.pad(tensor, paddings), [num_examples, *tensor.shape[1:]])


class DatasetTokenizer:
    """In-graph tokenizer for `dataset.map`, with the same ids as the Python tokenizer.

    Examples:
      >>> tokenize = DatasetTokenizer("uncased_L-12_H-768_A-12", max_seq_length=128)
      >>> texts = tf.data.Dataset.from_tensor_slices((["a fine film", "I was bored"], [1, 0]))
      >>> model.fit(texts.batch(32).map(lambda text, label: (tokenize(text), label)))

    Mapping batches is faster than mapping single texts.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | str | os.PathLike[str],
        *,
        max_seq_length: int = 512,
        padding: Literal["longest", "max_length"] = "longest",
    ):
        """Build the lookup tables, which takes a few seconds.

        Args:
          tokenizer: the tokenizer to reproduce, or the folder of a model (see `load_tokenizer`).
          max_seq_length: maximum length of a sequence; longer texts are truncated as the tokenizer does.
          padding: "longest" pads to the longest sequence of the batch, "max_length" to `max_seq_length`.

        Raises:
          UserError: an argument is invalid, or the folder has no tokenizer.
        """
        if isinstance(tokenizer, (str, os.PathLike)):
            tokenizer = load_tokenizer(tokenizer)
        if not isinstance(tokenizer, Tokenizer):
            raise UserError(f"tokenizer is {tokenizer!r:.80}; give a FullTokenizer, or the folder of a model")
        tokenizer([""], max_seq_length=max_seq_length, padding=padding)  # validates these arguments
        self.tokenizer, self.max_seq_length, self.padding = tokenizer, max_seq_length, padding
        self._graph_tokenizer = tokenizer.in_graph()

    @tf.autograph.experimental.do_not_convert
    def __call__(self, texts: tf.Tensor, text_pairs: tf.Tensor | None = None) -> Mapping[str, tf.Tensor]:
        """Convert texts or text pairs to model inputs.

        Args:
          texts: UTF-8 strings of shape [B], or [] for a single text.
          text_pairs: the second texts, strings of the same shape; "" for missing ones.

        Returns:
          input_ids, input_mask and segment_ids, int32 [B, S], as the tokenizer returns them; [`max_seq_length`] for a
          single text.

        Raises:
          UserError: the texts have the wrong type or shape.
        """
        texts, *pairs = (tf.convert_to_tensor(part) for part in (texts, text_pairs) if part is not None)
        for part in (texts, *pairs):
            if part.dtype != tf.string or part.shape.rank not in (0, 1) or part.shape.rank != texts.shape.rank:
                raise UserError(
                    f"DatasetTokenizer reads strings of shape [B] or [], not {part.dtype.name} {part.shape}; if the "
                    f"dataset also has labels, write dataset.map(lambda text, label: (tokenize(text), label))"
                )
        encoded = [self._graph_tokenizer.encode(tf.reshape(part, [-1])) for part in (texts, *pairs)]
        is_single = texts.shape.rank == 0
        inputs = self.join(*encoded, is_padded=is_single or self.padding == "max_length")
        return {name: values[0] for name, values in inputs.items()} if is_single else inputs

    def join(self, *encoded: tf.RaggedTensor, is_padded: bool) -> Mapping[str, tf.Tensor]:
        """Convert the ids of texts, or of first and second texts, to model inputs."""
        inputs = truncate_and_join(*encoded, specials=self.tokenizer.specials, max_seq_length=self.max_seq_length)
        return {name: self._padded(values) for name, values in inputs.items()} if is_padded else inputs

    def _padded(self, values: tf.Tensor) -> tf.Tensor:
        length = self.max_seq_length
        return tf.ensure_shape(tf.pad(values, [[0, 0], [0, length - tf.shape(values)[1]]]), [None, length])
