"""Dynamic loss scaling, without which small gradients are 0 in float16."""

import tensorflow as tf

from official_bert.checkpoints.bundle import LOSS_SCALE

INITIAL_SCALE, MIN_SCALE = 2.0**15, 1.0
STEPS_TO_DOUBLE = 2000  # good ones, one after another


class LossScale:
    """A factor for the loss: halved at each step whose gradients overflow, doubled after 2000 steps without one.

    Attributes:
      scale: float32 variable, the factor.
      state: name to variable of what a checkpoint keeps.
    Source: "Mixed Precision Training", section 3.2.
    """

    def __init__(self):
        """Create the state; called in the scope of the strategy."""
        self.scale = _scalar(INITIAL_SCALE, tf.float32)
        self._good_steps = _scalar(0, tf.int64)
        self.state = {f"{LOSS_SCALE}scale": self.scale, f"{LOSS_SCALE}good_steps": self._good_steps}

    def update(self, is_finite: tf.Tensor) -> tf.Tensor:
        """Learn whether the gradients of a step were finite; called in replica context.

        Args:
          is_finite: bool scalar, equal on all replicas.

        Returns:
          bool scalar: whether the step overflowed, and may be passed over since a smaller scale is still to be tried.
        """
        scale, good_steps = self.scale.value(), self._good_steps.value() + 1
        is_overflow = ~is_finite & (scale > MIN_SCALE)
        doubles = is_finite & (good_steps >= STEPS_TO_DOUBLE)
        self._good_steps.assign(tf.where(is_finite & ~doubles, good_steps, 0))
        self.scale.assign(tf.where(is_overflow, scale / 2, tf.where(doubles, scale * 2, scale)))
        return is_overflow


def _scalar(value: float, dtype: tf.DType) -> tf.Variable:
    # All replicas compute the same.
    return tf.Variable(value, dtype=dtype, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
