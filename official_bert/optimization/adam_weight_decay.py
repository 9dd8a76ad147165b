"""The reference's Adam as a Keras optimizer: for `compile`, and for the training loop, which takes the same steps."""

import keras
from keras import ops

from official_bert.optimization.moments import MomentOptimizer


@keras.saving.register_keras_serializable(package="official_bert")
class AdamWeightDecay(MomentOptimizer):
    """Adam whose weight decay acts on the weights, not through the gradient's moments.

    For each variable with gradient g, after all gradients together were clipped to a norm of 1:
      m = 0.9 m + 0.1 g;  v = 0.999 v + 0.001 g^2;  w = w - rate * (m / (sqrt(v) + 1e-6) + 0.01 w)
    In the first step m is a tenth of g and the root of v a thirty-second of it, so the step is 3.16 times as large as
    the rate says; later ones are up to 6.6 times as large. Bias correction, which PyTorch and Keras have always on,
    undoes that: the rate is multiplied by sqrt(1 - 0.999^step) / (1 - 0.9^step), but for the decay.

    The slots of a variable are called `adam_m` and `adam_v`, as in the reference's checkpoints.

    Source: the reference's AdamWeightDecayOptimizer; bias correction: Adam paper, section 2.
    """

    slot_names = ("adam_m", "adam_v")

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 5e-5,
        *,
        bias_correction: bool = False,
        name: str = "adam_weight_decay",
        **options,
    ):
        """Set the hyperparameters; `build` creates the slots.

        Args:
          learning_rate: a number, or a schedule such as `LinearWarmupThenDecay`.
          bias_correction: whether to make up for moments that begin at 0.
          name: the optimizer's.
          **options: those of `MomentOptimizer`.

        Raises:
          ValueError: see `MomentOptimizer`.
        """
        super().__init__(learning_rate, name=name, **options)
        self.bias_correction = bias_correction

    def update_step(self, gradient, variable, learning_rate):
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
        """Return the powers that correct the bias; 0 turns that off."""
        if not self.bias_correction:
            return ops.cast(0.0, dtype), ops.cast(0.0, dtype)
        return super()._powers(dtype)

    def get_config(self) -> dict:
        """Return the constructor arguments, for Keras's serialization."""
        return {**super().get_config(), "bias_correction": self.bias_correction}
