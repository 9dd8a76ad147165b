"""Base class of optimizers with two moments: weight decay, slots, layer-wise rates and distribution."""

import re
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from official_bert.optimization.layer_rates import rate_multipliers

NO_DECAY = (r"LayerNorm", r"bias")  # reference values, searched for in a variable's path
CLIP_NORM = 1.0  # reference value


class MomentOptimizer(keras.optimizers.Optimizer):
    """Optimizer with moving averages of each gradient and its square; subclasses implement `update_step`.

    Gradients are clipped to a global norm of 1, after summing over the devices.

    Attributes:
      slot_names: name suffixes of a variable's two slots, also in checkpoints.
    """

    slot_names: tuple[str, str]

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
        layer_wise_lr_decay: float = 1.0,
        global_clipnorm: float | None = CLIP_NORM,
        **options: Any,
    ):
        """Set the hyperparameters; `build` creates the slots.

        Args:
          learning_rate: a number, or a schedule such as `LinearWarmupThenDecay`.
          weight_decay_rate: fraction of a weight that is subtracted at a learning rate of 1.
          beta_1: decay of the first moment.
          beta_2: decay of the second moment.
          epsilon: added to the square root of the second moment.
          no_decay: regular expressions; variables whose path matches one are not decayed. Each must match a variable.
          frozen: the model's frozen variables, which also count as matches of an expression.
          layer_wise_lr_decay: ratio of each layer's learning rate to that of the layer above it; see `layer_rates`.
          global_clipnorm: global norm to clip gradients to; None for no clipping.
          **options: other options of Keras optimizers.

        Raises:
          ValueError: `weight_decay` is given, which in Keras decays all variables.
        """
        if options.get("weight_decay") is not None:
            raise ValueError(
                f"{type(self).__name__} does not take weight_decay, which would decay every variable; use "
                "weight_decay_rate"
            )
        super().__init__(learning_rate, global_clipnorm=global_clipnorm, **options)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.no_decay = list(no_decay)
        self.layer_wise_lr_decay = layer_wise_lr_decay
        self._frozen_paths = [variable.path for variable in frozen]

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the slots, in the scope of the strategy that holds the variables.

        Raises:
          ValueError: an expression of `no_decay` matches no variable, trainable or frozen; or `layer_wise_lr_decay` is
            given and no variable belongs to a layer.
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
        # Expressions that match only frozen variables are dropped: a saved optimizer is rebuilt without the variables.
        self.no_decay = [pattern for pattern in self.no_decay if any(re.search(pattern, path) for path in paths)]
        self._is_excluded = [any(re.search(pattern, path) for pattern in self.no_decay) for path in paths]
        self._multipliers = rate_multipliers(paths, self.layer_wise_lr_decay)
        super().build(variables)
        self._first_moments, self._second_moments = self.add_optimizer_variables(variables, list(self.slot_names))

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[keras.Variable] | None = None) -> None:
        """Apply the gradients of each replica; called by Keras in replica context."""
        if keras.backend.backend() != "tensorflow":
            super().apply(grads, trainable_variables)
            return
        from official_bert.optimization import replicas

        if replicas.num_replicas() == 1:
            super().apply(replicas.dense(grads), trainable_variables)
            return
        # Keras clips each replica's gradients separately, so the norm of their sum could exceed the limit.
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        self.build(variables)
        replicas.take_step(self, variables, grads)

    def _rate(self, index: int, learning_rate, dtype):
        """Return the learning rate of the variable at an index."""
        return ops.cast(learning_rate, dtype) * self._multipliers[index]

    def _powers(self, dtype):
        """Return beta_1 and beta_2 to the power of the step."""
        step = ops.cast(self.iterations + 1, dtype)
        return ops.power(ops.cast(self.beta_1, dtype), step), ops.power(ops.cast(self.beta_2, dtype), step)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments, for Keras's serialization."""
        return {
            **super().get_config(),
            "weight_decay_rate": self.weight_decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "no_decay": list(self.no_decay),
            "layer_wise_lr_decay": self.layer_wise_lr_decay,
        }
