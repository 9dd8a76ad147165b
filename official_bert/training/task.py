"""The interface of a task for the Trainer."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import keras
import tensorflow as tf

from official_bert.data.schema import RecordSchema


class WeightedSum(NamedTuple):
    """The numerator and denominator of a mean, so that batches and replicas add up exactly.

    Attributes:
      total: float scalar, sum of loss times weight.
      weight: float scalar, sum of the weights; it may depend on the batch, not on the outputs.
    """

    total: tf.Tensor
    weight: tf.Tensor


class Task(Protocol):
    """A model with its records, losses and predictions."""

    schema: RecordSchema
    """The features of a record that are stored on disk and passed to the step."""

    def build_model(self) -> keras.Model:
        """Create the model, variables included; inputs and output are dicts of named tensors."""

    def losses(self, outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, WeightedSum]:
        """Return the losses of a batch by name; training minimizes the sum of their means."""

    def predictions(self, outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return the outputs that evaluation needs for each example: name to tensor [B, ...]."""
