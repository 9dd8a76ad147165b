"""The reference's Adam as a Keras optimizer, with the same updates in `compile` and in our training loop."""

from typing import Any

import keras
from keras import ops

from official_bert.optimization.moments import MomentOptimizer


@keras.saving.register_keras_serializable(package="official_bert")
class AdamWeightDecay(MomentOptimizer):
    """Adam with decoupled weight decay, which acts on the weights and not on the moments.

    For each variable with gradient g, clipped to a global norm of 1:
      m = 0.9 m + 0.1 g;  v = 0.999 v + 0.001 g^2;  w = w - rate * (m / (sqrt(v) + 1e-6) + 0.01 w)
    In the first step m is g / 10 and sqrt(v) is |g| / 32, so the update is 3.16 times the rate; later it is up to 6.6
    times the rate. Bias correction, which PyTorch and Keras always apply, undoes that: the rate is multiplied by
    sqrt(1 - 0.999^step) / (1 - 0.9^step), except for weight decay.

    The slots of a variable are named `adam_m` and `adam_v`, as in the reference's checkpoints.

    Source: the reference's AdamWeightDecayOptimizer; bias correction: Adam paper, section 2.
    """

    slot_names = ("adam_m", "adam_v")

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 5e-5,
        *,
        bias_correction: bool = False,
        name: str = "adam_weight_decay",
        **options: Any,
    ):
        """Set the hyperparameters; `build` creates the slots.

        Args:
          learning_rate: a number, or a schedule such as `LinearWarmupThenDecay`.
          bias_correction: whether to correct for the initial moments of 0.
          name: name of the optimizer.
          **options: options of `MomentOptimizer`.

        Raises:
          ValueError: see `MomentOptimizer`.
        """
        super().__init__(learning_rate, name=name, **options)
        self.bias_correction = bias_correction

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Update one variable; the gradient is already summed over the replicas and clipped."""
        index = self._get_variable_index(variable)
        first, second = self._first_moments[index], self._second_moments[index]
        learning_rate = self._rate(index, learning_rate, variable.dtype)
        if self.weight_decay_rate and not self._is_excluded[index]:
            # Decay first: both terms of the reference's update use the old weights.
            self.assign_sub(variable, learning_rate * self.weight_decay_rate * variable)
        first_power, second_power = self._powers(variable.dtype)
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            tf.raw_ops.ResourceApplyAdam(  # one pass over memory
                var=variable.handle,
                m=first.value.handle,
                v=second.value.handle,
                beta1_power=first_power,
                beta2_power=second_power,
                lr=learning_rate,
                beta1=self.beta_1,
                beta2=self.beta_2,
                epsilon=self.epsilon,
                grad=gradient,
            )
            return
        self.assign(first, self.beta_1 * first + (1 - self.beta_1) * gradient)
        self.assign(second, self.beta_2 * second + (1 - self.beta_2) * ops.square(gradient))
        rate = learning_rate * ops.sqrt(1 - second_power) / (1 - first_power)
        self.assign_sub(variable, rate * first / (ops.sqrt(second) + self.epsilon))

    def _powers(self, dtype):
        """Return the powers for bias correction; 0 turns it off."""
        if not self.bias_correction:
            return ops.cast(0.0, dtype), ops.cast(0.0, dtype)
        return super()._powers(dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments, for Keras's serialization."""
        return {**super().get_config(), "bias_correction": self.bias_correction}
