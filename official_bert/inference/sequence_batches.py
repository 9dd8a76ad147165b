"""Applies a function to many sequences in batches of similar lengths, keeping the order of results."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from official_bert.config.tensor_names import ENCODER_INPUTS
from official_bert.tokenization.batch import pad
from official_bert.tokenization.joining import JoinedSequence

_TYPICAL_LENGTH = 64  # wordpieces

# R: replicas, each of which computes a batch of the same shape.


class SequenceFunction:
    """A compiled function of batches, called with sequences of any lengths."""

    def __init__(
        self,
        compute: Callable[[dict[str, tf.Tensor]], tf.Tensor],
        *,
        strategy: tf.distribute.Strategy | None = None,
        fixed_shape: tuple[int, int] | None = None,
    ):
        """Compile the function.

        Args:
          compute: maps the encoder's inputs, int32 [B, S], to a tensor [B, ...].
          strategy: the devices to compute on; None for TensorFlow's default.
          fixed_shape: B and S of all batches, for devices that compile for a shape; None to fit the sequences.
        """
        self._strategy = strategy or tf.distribute.get_strategy()
        self._fixed_shape = fixed_shape
        shape = (self._strategy.num_replicas_in_sync, *(fixed_shape or (None, None)))
        signature = [dict.fromkeys(ENCODER_INPUTS, tf.TensorSpec(shape, tf.int32))]

        def compute_replica(batches):
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return compute({name: ids[replica] for name, ids in batches.items()})

        def compute_all(batches):
            results = self._strategy.run(lambda: compute_replica(batches))
            return self._strategy.experimental_local_results(results)

        self._function = tf.function(compute_all, input_signature=signature, autograph=False)

    def __call__(self, sequences: Sequence[JoinedSequence], batch_size: int) -> list[np.ndarray]:
        """Apply the function to sequences.

        Args:
          sequences: sequences of any lengths.
          batch_size: number of sequences of 64 wordpieces per device and batch; more if shorter, fewer if longer.

        Returns:
          The result for each sequence, in order; results per position include padding.
        """
        # Batch sequences of similar length, to minimize padding.
        order = sorted(range(len(sequences)), key=lambda index: len(sequences[index].input_ids))
        if self._fixed_shape:
            batches = _parts(order, self._fixed_shape[0])
        else:
            batches = _batches(order, sequences, batch_size * _TYPICAL_LENGTH)
        results: list[np.ndarray] = [np.zeros(0)] * len(sequences)
        for group in _parts(batches, self._strategy.num_replicas_in_sync):
            computed = self._function(self._stacked(group, sequences))
            for batch, rows in zip(group, computed, strict=False):
                for index, row in zip(batch, rows.numpy(), strict=False):
                    results[index] = row
        return results

    def _stacked(self, group: Sequence[Sequence[int]], sequences: Sequence[JoinedSequence]) -> dict[str, np.ndarray]:
        """Return the inputs of all replicas, int32 [R, B, S], filled up with the first sequence."""
        size, length = self._fixed_shape or (max(map(len, group)), None)
        num_rows = size * self._strategy.num_replicas_in_sync
        rows = [index for batch in group for index in (*batch, *[batch[0]] * (size - len(batch)))]
        rows += rows[:1] * (num_rows - len(rows))
        batch = pad([sequences[index] for index in rows], length)
        return {name: ids.reshape([-1, size, ids.shape[1]]) for name, ids in batch.items()}


def _parts(items: list, size: int) -> list[list]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _batches(order: Sequence[int], sequences: Sequence[JoinedSequence], max_tokens: int) -> list[list[int]]:
    """Cut sequences sorted by length into batches of at most `max_tokens`, including padding."""
    batches: list[list[int]] = []
    for index in order:
        if not batches or (len(batches[-1]) + 1) * len(sequences[index].input_ids) > max_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches
