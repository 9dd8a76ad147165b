"""Learning rates over the steps of a run."""

import tensorflow as tf


def linear_warmup_then_decay(step, *, peak: float, num_train_steps: int, num_warmup_steps: int) -> tf.Tensor:
    """The reference's schedule: up in a line, then down in a line that began at step 0.

    For example with 100 steps, 10 of them warm-up, and a peak of 1.0: step 0 gives 0, step 5 gives 0.5, step 10 gives
    0.9 (not 1.0: the decay counts the warm-up too), step 100 gives 0.

    Args:
      step: int scalar, steps already taken.
      peak: the rate that warm-up heads for.
      num_train_steps: the step at which the rate is 0.
      num_warmup_steps: length of the warm-up; 0 for none.

    Returns:
      float32 scalar.
    """
    step = tf.cast(step, tf.float32)
    decayed = peak * (1.0 - tf.minimum(step, float(num_train_steps)) / num_train_steps)
    if not num_warmup_steps:
        return decayed
    return tf.where(step < num_warmup_steps, peak * step / num_warmup_steps, decayed)
