"""Distributed optimizer steps in TensorFlow: sum the replicas' gradients and update every copy of a variable.

Both our training step and Keras's `fit` with `AdamWeightDecay` call `take_step`.
"""

from collections.abc import Sequence
from typing import TypeVar

import keras
import tensorflow as tf

_Tensors = TypeVar("_Tensors")


def num_replicas() -> int:
    return tf.distribute.get_strategy().num_replicas_in_sync


def own_index() -> tf.Tensor | int:
    """Return the index of this replica among those of the current strategy; call this in replica context."""
    return tf.distribute.get_replica_context().replica_id_in_sync_group


def dense(gradients: Sequence[tf.Tensor | tf.IndexedSlices | None]) -> list[tf.Tensor | None]:
    """Sum duplicate rows of sparse gradients, so that each word contributes once to the norm."""
    return [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]


def sum_over_replicas(tensors: _Tensors) -> _Tensors:
    """Sum a structure of tensors over all replicas; call this in replica context."""
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tensors)


def gather_over_replicas(values: tf.Tensor) -> tf.Tensor:
    """Concatenate a tensor of each replica, [b, ...], to [B, ...], in replica context, with gradients."""
    if num_replicas() == 1:
        return values
    own_rows = tf.shape(values)[0]
    start = own_index() * own_rows
    rows_after = num_replicas() * own_rows - start - own_rows
    # A sum, as `all_gather` fails on workers with a single device.
    return sum_over_replicas(tf.pad(values, [[start, rows_after], *[[0, 0]] * (values.shape.rank - 1)]))


def take_step(
    optimizer: keras.optimizers.Optimizer,
    variables: Sequence[keras.Variable],
    gradients: Sequence[tf.Tensor | tf.IndexedSlices | None],
    *,
    gradient_scale: tf.Tensor | None = None,
) -> tf.Tensor:
    """Apply gradients like Keras's `apply`, in replica context, but clip them after summing over the replicas.

    They are divided by `gradient_scale`, a float32 scalar, the loss scale. If it is given and the gradients are not
    finite, the step is counted but changes neither variables nor slots.
    """
    used = [index for index, gradient in enumerate(gradients) if gradient is not None]
    summed = sum_over_replicas(dense([gradients[index] for index in used]))
    if gradient_scale is not None:
        summed = [gradient / gradient_scale for gradient in summed]
    norm = tf.linalg.global_norm(summed)
    if optimizer.global_clipnorm is not None:
        summed, _ = tf.clip_by_global_norm(summed, optimizer.global_clipnorm, use_norm=norm)
    is_taken = None if gradient_scale is None else tf.math.is_finite(norm)
    _update([variables[index] for index in used], summed, optimizer.learning_rate, optimizer.update_step, is_taken)
    optimizer.iterations.assign_add(1)
    return norm


def _update(variables, gradients, learning_rate, update_step, is_taken) -> None:
    """Update every copy of every variable if `is_taken`; Keras's method would sum the gradients again."""

    def update_everywhere(strategy, gradients, learning_rate, is_taken):
        for variable, gradient in zip(variables, gradients, strict=True):
            arguments = (gradient, learning_rate, is_taken)
            strategy.extended.update(variable.value, update_if_taken, args=arguments, group=False)

    def update_if_taken(variable, gradient, learning_rate, is_taken):
        if is_taken is None:
            update_copy(variable, gradient, learning_rate)
        else:
            tf.cond(is_taken, lambda: update_copy(variable, gradient, learning_rate), lambda: None)

    def update_copy(variable, gradient, learning_rate):
        update_step(gradient, variable, learning_rate)

    tf.distribute.get_replica_context().merge_call(update_everywhere, args=(gradients, learning_rate, is_taken))
