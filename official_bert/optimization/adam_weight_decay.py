"""The reference's Adam as a Keras optimizer: for `compile`, and for the training loop, which takes the same steps."""

import re
from collections.abc import Sequence

import keras
from keras import ops

NO_DECAY = (r"LayerNorm", r"bias")  # reference values, matched anywhere in a variable's path
CLIP_NORM = 1.0  # reference value


@keras.saving.register_keras_serializable(package="official_bert")
class AdamWeightDecay(keras.optimizers.Optimizer):
    """Adam whose weight decay acts on the weights, not through the gradient's moments.

    For each variable with gradient g, after all gradients together were clipped to a norm of 1:
      m = 0.9 m + 0.1 g;  v = 0.999 v + 0.001 g^2;  w = w - rate * (m / (sqrt(v) + 1e-6) + 0.01 w)
    In the first step m is a tenth of g and the root of v a thirty-second of it, so the step is 3.16 times as large as
    the rate says; later ones are up to 6.6 times as large. Bias correction, which PyTorch and Keras have always on,
    undoes that: the rate is multiplied by sqrt(1 - 0.999^step) / (1 - 0.9^step), but for the decay.

    The slots of a variable are called `adam_m` and `adam_v`, as in the reference's checkpoints.

    Source: the reference's AdamWeightDecayOptimizer; bias correction: Adam paper, section 2.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 5e-5,
        *,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        no_decay: Sequence[str] = NO_DECAY,
        frozen: Sequence[keras.Variable] = (),
        bias_correction: bool = False,
        global_clipnorm: float | None = CLIP_NORM,
        name: str = "adam_weight_decay",
        **options,
    ):
        """Takes the numbers; `build` creates the slots.

        Args:
          learning_rate: a number, or a schedule such as `LinearWarmupThenDecay`.
          weight_decay_rate: fraction of a weight to take off at a learning rate of 1.
          beta_1: decay of the first moment.
          beta_2: decay of the second moment.
          epsilon: added to the root of the second moment.
          no_decay: regular expressions; variables whose path holds one are not decayed. Each must match a variable.
          frozen: the model's variables that are not trained; an expression may match one of these instead.
          bias_correction: whether to make up for moments that begin at 0.
          global_clipnorm: the norm that all gradients together are clipped to; None for no clipping.
          name: the optimizer's.
          **options: other options of every Keras optimizer.

        Raises:
          ValueError: `weight_decay` is given, which in Keras decays all variables.
        """
        if options.get("weight_decay") is not None:
            raise ValueError(
                "AdamWeightDecay does not take weight_decay, which would decay every variable; use weight_decay_rate"
            )
        super().__init__(learning_rate, global_clipnorm=global_clipnorm, name=name, **options)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.no_decay = list(no_decay)
        self.bias_correction = bias_correction
        self._frozen_paths = [variable.path for variable in frozen]

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Creates the slots, in the scope of the strategy that holds the variables.

        Raises:
          ValueError: an expression of `no_decay` matches no variable, trained or frozen.
        """
        if self.built:
            return
        paths = [variable.path for variable in variables]
        for pattern in self.no_decay:
            if not any(re.search(pattern, path) for path in (*paths, *self._frozen_paths)):
                raise ValueError(
                    f"no variable path matches {pattern!r} of no_decay; give patterns that match the names of your "
                    "layers, and pass the variables that are not trained as `frozen`"
                )
        # Those for frozen variables have done their work; a saved optimizer is built without these variables.
        self.no_decay = [pattern for pattern in self.no_decay if any(re.search(pattern, path) for path in paths)]
        self._is_decayed = [
            bool(self.weight_decay_rate) and not any(re.search(pattern, path) for pattern in self.no_decay)
            for path in paths
        ]
        super().build(variables)
        self._first_moments, self._second_moments = self.add_optimizer_variables(variables, ["adam_m", "adam_v"])

    def apply(self, grads, trainable_variables=None):
        """Takes a step with gradients that each replica computed for itself; called by Keras in replica context."""
        if keras.backend.backend() != "tensorflow":
            super().apply(grads, trainable_variables)
            return
        from official_bert.optimization import replicas

        if replicas.num_replicas() == 1:
            super().apply(replicas.dense(grads), trainable_variables)
            return
        # Keras would clip each replica's gradients by themselves, and their sum would be longer than the limit.
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        self.build(variables)
        replicas.take_step(self, variables, grads)

    def update_step(self, gradient, variable, learning_rate):
        """Moves one variable; the gradient is summed over the replicas and clipped."""
        index = self._get_variable_index(variable)
        first, second = self._first_moments[index], self._second_moments[index]
        learning_rate = ops.cast(learning_rate, variable.dtype)
        if self._is_decayed[index]:
            # Decay first, on the weights as they were: both terms of the reference's update use these.
            self.assign_sub(variable, learning_rate * self.weight_decay_rate * variable)
        first_power, second_power = self._powers(variable.dtype)
        if keras.backend.backend() == "tensorflow":
            from official_bert.optimization import replicas

            replicas.fused_adam_update(
                variable, first, second, gradient, learning_rate, first_power, second_power,
                beta_1=self.beta_1, beta_2=self.beta_2, epsilon=self.epsilon,
            )  # fmt: skip
            return
        self.assign(first, self.beta_1 * first + (1 - self.beta_1) * gradient)
        self.assign(second, self.beta_2 * second + (1 - self.beta_2) * ops.square(gradient))
        rate = learning_rate * ops.sqrt(1 - second_power) / (1 - first_power)
        self.assign_sub(variable, rate * first / (ops.sqrt(second) + self.epsilon))

    def _powers(self, dtype):
        """The powers of beta_1 and beta_2 that correct the bias; 0 turns that off."""
        if not self.bias_correction:
            return ops.cast(0.0, dtype), ops.cast(0.0, dtype)
        step = ops.cast(self.iterations + 1, dtype)
        return ops.power(ops.cast(self.beta_1, dtype), step), ops.power(ops.cast(self.beta_2, dtype), step)

    def get_config(self) -> dict:
        """The arguments, for Keras's serialization."""
        return {
            **super().get_config(),
            "weight_decay_rate": self.weight_decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "no_decay": list(self.no_decay),
            "bias_correction": self.bias_correction,
        }
