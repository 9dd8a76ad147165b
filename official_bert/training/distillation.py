"""Knowledge distillation: a task whose model also learns the outputs of a larger model, the teacher."""

from collections.abc import Mapping
from typing import Protocol

import keras
import tensorflow as tf

from official_bert.data.schema import Field
from official_bert.training.task import Task, WeightedSum

TEACHER_LOGITS = "teacher_logits"


class DistillableTask(Task, Protocol):
    """A task whose logits a student can learn."""

    teacher_field: Field
    """What a record holds of the teacher: the logits of one example, under the name `TEACHER_LOGITS`."""

    def logits(self, outputs: Mapping[str, tf.Tensor] | tf.Tensor) -> tf.Tensor:
        """What is stored of the outputs of a teacher: float32 [B, *shape of `teacher_field`]."""

    def soft_target_loss(
        self,
        outputs: Mapping[str, tf.Tensor] | tf.Tensor,
        teacher_logits: tf.Tensor,
        batch: Mapping[str, tf.Tensor],
        temperature: float,
    ) -> WeightedSum:
        """How far the outputs of a student are from a teacher's logits; 0 if they are the same."""


class DistilledTask:
    """A task learned from its labels and from what a teacher says of the same examples.

    Attributes:
      schema: the records of the task, with the teacher's logits.
    Source: Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network" (2015), section 2.
    """

    def __init__(self, task: DistillableTask, *, soft_target_weight: float, temperature: float):
        """Adds a loss to a task.

        Args:
          task: the task.
          soft_target_weight: weight of the teacher's logits, from 0 to 1; the labels have the rest.
          temperature: what the logits of both are divided by; the higher, the more the order of unlikely labels counts.
        """
        self._task = task
        self._soft_target_weight, self._temperature = soft_target_weight, temperature
        self.schema = task.schema.with_fields(task.teacher_field)

    def build_model(self) -> keras.Model:
        """Creates the student, variables included."""
        return self._task.build_model()

    def losses(self, outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, WeightedSum]:
        """The losses of the task and `soft_target`, each times its weight."""
        soft_target = self._task.soft_target_loss(outputs, batch[TEACHER_LOGITS], batch, self._temperature)
        losses = {
            name: weighted(loss, 1 - self._soft_target_weight)
            for name, loss in self._task.losses(outputs, batch).items()
        }
        return {**losses, "soft_target": weighted(soft_target, self._soft_target_weight)}

    def predictions(self, outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Those of the task, which need no teacher."""
        return self._task.predictions(outputs, batch)


def weighted(loss: WeightedSum, weight: float) -> WeightedSum:
    """A loss whose mean is multiplied by a weight."""
    return loss._replace(total=loss.total * weight)


def soft_cross_entropy(
    logits: tf.Tensor, teacher_logits: tf.Tensor, temperature: float, *, axis: int = -1
) -> tf.Tensor:
    """The Kullback-Leibler divergence of a student's distributions from a teacher's, times the squared temperature.

    Its gradients are those of the cross entropy with soft targets; the factor keeps them as large at any temperature.

    Args:
      logits: float [...], the student's.
      teacher_logits: float [...], of the same shape.
      temperature: what both are divided by.
      axis: of the classes.

    Returns:
      float32, the shape without that axis.
    """
    student = tf.nn.log_softmax(tf.cast(logits, tf.float32) / temperature, axis=axis)
    teacher = tf.nn.log_softmax(tf.cast(teacher_logits, tf.float32) / temperature, axis=axis)
    return tf.reduce_sum(tf.exp(teacher) * (teacher - student), axis=axis) * temperature**2


def soft_binary_cross_entropy(logits: tf.Tensor, teacher_logits: tf.Tensor, temperature: float) -> tf.Tensor:
    """As `soft_cross_entropy`, for independent labels: the mean over the last axis."""
    pairs = [tf.stack([values, tf.zeros_like(values)], axis=-1) for values in (logits, teacher_logits)]
    return tf.reduce_mean(soft_cross_entropy(*pairs, temperature), axis=-1)
