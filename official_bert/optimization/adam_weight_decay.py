"""The reference's Adam: no bias correction, weight decay beside the gradient."""

import re
from collections.abc import Sequence

import keras
import tensorflow as tf

NO_DECAY = (r"LayerNorm", r"bias")  # reference values, matched anywhere in a variable's path
CLIP_NORM = 1.0


class AdamWeightDecay:
    """Adam whose weight decay acts on the weights, not through the gradient's moments.

    For each variable with gradient g:
      m = 0.9 m + 0.1 g;  v = 0.999 v + 0.001 g^2;  w = w - rate * (m / (sqrt(v) + 1e-6) + 0.01 w)
    Keras's AdamW divides m and v by what bias correction says, which makes its first step 3.16 times as large.

    Attributes:
      slots: path of a slot to its variable: `.../kernel/adam_m` and `.../kernel/adam_v`.
    Source: the reference's AdamWeightDecayOptimizer.
    """

    def __init__(
        self,
        variables: Sequence[keras.Variable],
        *,
        weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        no_decay: Sequence[str] = NO_DECAY,
        frozen: Sequence[keras.Variable] = (),
    ):
        """Creates the slots; call it in the scope of the strategy that holds the variables.

        Args:
          variables: what to train.
          weight_decay: share of the weight to take off at a learning rate of 1.
          beta_1: decay of the first moment.
          beta_2: decay of the second moment.
          epsilon: added to the root of the second moment.
          no_decay: regular expressions; variables whose path holds one are not decayed.
          frozen: the model's variables that are not trained.

        Raises:
          ValueError: an expression matches no variable, trained or frozen.
        """
        for pattern in no_decay:
            if not any(re.search(pattern, variable.path) for variable in (*variables, *frozen)):
                raise ValueError(f"no variable path matches {pattern!r}; was a layer renamed?")
        self._decayed = {
            variable.path
            for variable in variables
            if weight_decay and not any(re.search(pattern, variable.path) for pattern in no_decay)
        }
        self._weight_decay, self._beta_1, self._beta_2, self._epsilon = weight_decay, beta_1, beta_2, epsilon
        self.slots = {
            f"{variable.path}/{slot}": tf.Variable(
                tf.zeros(variable.shape), trainable=False, name=f"{variable.path}/{slot}"
            )
            for variable in variables
            for slot in ("adam_m", "adam_v")
        }

    def apply(
        self, variables: Sequence[keras.Variable], gradients: Sequence[tf.Tensor], learning_rate: tf.Tensor
    ) -> None:
        """Takes one step; call it in replica context.

        Args:
          variables: those that have a gradient.
          gradients: one for each of them, already summed over the replicas and clipped.
          learning_rate: float32 scalar.
        """

        def apply_everywhere(strategy, gradients, learning_rate):
            for variable, gradient in zip(variables, gradients, strict=True):
                self._apply_to(strategy, variable, gradient, learning_rate)

        tf.distribute.get_replica_context().merge_call(apply_everywhere, args=(gradients, learning_rate))

    def _apply_to(self, strategy, variable, gradient, learning_rate) -> None:
        first = self.slots[f"{variable.path}/adam_m"]
        second = self.slots[f"{variable.path}/adam_v"]
        update = self._decayed_update if variable.path in self._decayed else self._update
        strategy.extended.update(variable.value, update, args=(first, second, gradient, learning_rate), group=False)

    def _decayed_update(self, weights, first, second, gradient, learning_rate) -> None:
        # Decay first, on the weights as they were: both terms of the reference's update use these.
        weights.assign_sub(learning_rate * self._weight_decay * weights)
        self._update(weights, first, second, gradient, learning_rate)

    def _update(self, weights, first, second, gradient, learning_rate) -> None:
        # TensorFlow's fused kernel: one pass over memory. Powers of 0 turn its bias correction off.
        tf.raw_ops.ResourceApplyAdam(
            var=weights.handle,
            m=first.handle,
            v=second.handle,
            beta1_power=0.0,
            beta2_power=0.0,
            lr=learning_rate,
            beta1=self._beta_1,
            beta2=self._beta_2,
            epsilon=self._epsilon,
            grad=gradient,
        )
