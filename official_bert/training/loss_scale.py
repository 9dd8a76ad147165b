"""Dynamic loss scaling, which keeps small float16 gradients from underflowing."""

import tensorflow as tf

from official_bert.checkpoints.bundle import LOSS_SCALE

INITIAL_SCALE, MIN_SCALE = 2.0**15, 1.0
STEPS_TO_DOUBLE = 2000  # consecutive finite steps


class LossScale:
    """A loss factor: halved at each step with overflow, doubled after 2000 consecutive steps without.

    Attributes:
      scale: float32 variable, the factor.
      state: the checkpointed variables, by name.
    Source: "Mixed Precision Training", section 3.2.
    """

    def __init__(self):
        """Create the state; call in the strategy's scope."""
        self.scale = _scalar(INITIAL_SCALE, tf.float32)
        self._good_steps = _scalar(0, tf.int64)
        self.state = {f"{LOSS_SCALE}scale": self.scale, f"{LOSS_SCALE}good_steps": self._good_steps}

    def update(self, is_finite: tf.Tensor) -> tf.Tensor:
        """Update the scale after a step; call in replica context.

        Args:
          is_finite: bool scalar, whether the gradients were finite; equal on all replicas.

        Returns:
          bool scalar: True if the step overflowed and can be skipped, because the scale can still decrease.
        """
        scale, good_steps = self.scale.value(), self._good_steps.value() + 1
        is_overflow = ~is_finite & (scale > MIN_SCALE)
        doubles = is_finite & (good_steps >= STEPS_TO_DOUBLE)
        self._good_steps.assign(tf.where(is_finite & ~doubles, good_steps, 0))
        self.scale.assign(tf.where(is_overflow, scale / 2, tf.where(doubles, scale * 2, scale)))
        return is_overflow


def _scalar(value: float, dtype: tf.DType) -> tf.Variable:
    # All replicas compute the same value.
    return tf.Variable(value, dtype=dtype, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
