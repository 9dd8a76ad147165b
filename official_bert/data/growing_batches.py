"""Batches that double in size until they reach the final one."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # flags need SMALLEST without waiting for TensorFlow
    import tensorflow as tf

NUM_STAGES = 3
SMALLEST = 2**NUM_STAGES  # ratio of the final to the first batch size


def growing_batches(
    make_batches: Callable[[int, int], "tf.data.Dataset"], *, batch_size: int, num_steps: int, start_record: int
) -> "tf.data.Dataset":
    """Concatenate batches of 1/8, 1/4 and 1/2 of the final size, a third of the steps each, and the rest."""
    dataset, stage_start = None, 0
    for stage in range(NUM_STAGES + 1):
        size = batch_size >> (NUM_STAGES - stage)
        num_stage_steps = num_steps * (stage + 1) // NUM_STAGES - num_steps * stage // NUM_STAGES
        stage_end = stage_start + num_stage_steps * size
        is_final = stage == NUM_STAGES
        if is_final or start_record < stage_end:
            first = max(start_record, stage_start)
            batches = make_batches(size, first)
            batches = batches if is_final else batches.take((stage_end - first) // size)
            dataset = batches if dataset is None else dataset.concatenate(batches)
        stage_start = stage_end
    return dataset
