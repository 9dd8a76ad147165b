"""The interface of a task for the Trainer."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import keras
import tensorflow as tf

from official_bert.data.schema import RecordSchema


class WeightedSum(NamedTuple):
    """Numerator and denominator of a mean, so that batches and replicas can be summed exactly.

    Attributes:
      total: float scalar, sum of loss times weight.
      weight: float scalar, sum of the weights; may depend on the batch, not on the outputs.
    """

    total: tf.Tensor
    weight: tf.Tensor


class Task(Protocol):
    """A model with its losses and predictions.

    A task may set `compares_examples` to True if its losses compare the examples of a batch, so that those of the parts
    of a batch do not add up to that of the whole.
    """

    def build_model(self) -> keras.Model:
        """Create the model and its variables; inputs and outputs are dicts of tensors."""

    def losses(self, outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, WeightedSum]:
        """Return the losses of a batch by name; training minimizes the sum of their means."""

    def predictions(self, outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return the per-example outputs for evaluation: name to tensor [B, ...]."""


class RecordTask(Task, Protocol):
    """A task that reads records."""

    schema: RecordSchema
    """The record schema on disk, also passed to the step."""


def compares_examples(task: Task) -> bool:
    """Return the attribute of a task; see `Task`."""
    return getattr(task, "compares_examples", False)
