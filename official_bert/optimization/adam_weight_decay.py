"""The reference's Adam: weight decay beside the gradient and, unless wished, no bias correction."""

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
    In the first step m is a tenth of g and the root of v a thirty-second of it, so the step is 3.16 times as large as
    the rate says; later ones are up to 6.6 times as large. Bias correction, which PyTorch and Keras have always on,
    undoes that: the rate is multiplied by sqrt(1 - 0.999^step) / (1 - 0.9^step), but for the decay.

    Attributes:
      slots: path of a slot to its variable: `.../kernel/adam_m` and `.../kernel/adam_v`.
    Source: the reference's AdamWeightDecayOptimizer; bias correction: Adam paper, section 2.
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
        bias_correction: bool = False,
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
          bias_correction: whether to make up for moments that begin at 0.

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
        self._bias_correction = bias_correction
        self.slots = {
            f"{variable.path}/{slot}": tf.Variable(
                tf.zeros(variable.shape), trainable=False, name=f"{variable.path}/{slot}"
            )
            for variable in variables
            for slot in ("adam_m", "adam_v")
        }

    def apply(
        self,
        variables: Sequence[keras.Variable],
        gradients: Sequence[tf.Tensor],
        learning_rate: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """Takes one step; call it in replica context.

        Args:
          variables: those that have a gradient.
          gradients: one for each of them, already summed over the replicas and clipped.
          learning_rate: float32 scalar.
          step: integer scalar, the number of this step, from 1.
        """

        def apply_everywhere(strategy, gradients, learning_rate, powers):
            for variable, gradient in zip(variables, gradients, strict=True):
                self._apply_to(strategy, variable, gradient, learning_rate, powers)

        powers = self._powers(step)
        tf.distribute.get_replica_context().merge_call(apply_everywhere, args=(gradients, learning_rate, powers))

    def _powers(self, step) -> tuple[tf.Tensor, tf.Tensor]:
        """What TensorFlow's kernel corrects the bias by; 0 turns that off."""
        if not self._bias_correction:
            return tf.constant(0.0), tf.constant(0.0)
        step = tf.cast(step, tf.float32)
        return tf.pow(self._beta_1, step), tf.pow(self._beta_2, step)

    def _apply_to(self, strategy, variable, gradient, learning_rate, powers) -> None:
        first = self.slots[f"{variable.path}/adam_m"]
        second = self.slots[f"{variable.path}/adam_v"]
        update = self._decayed_update if variable.path in self._decayed else self._update
        args = (first, second, gradient, learning_rate, *powers)
        strategy.extended.update(variable.value, update, args=args, group=False)

    def _decayed_update(self, weights, first, second, gradient, learning_rate, *powers) -> None:
        # Decay first, on the weights as they were: both terms of the reference's update use these.
        weights.assign_sub(learning_rate * self._weight_decay * weights)
        self._update(weights, first, second, gradient, learning_rate, *powers)

    def _update(self, weights, first, second, gradient, learning_rate, first_power, second_power) -> None:
        # TensorFlow's fused kernel: one pass over memory.
        tf.raw_ops.ResourceApplyAdam(
            var=weights.handle,
            m=first.handle,
            v=second.handle,
            beta1_power=first_power,
            beta2_power=second_power,
            lr=learning_rate,
            beta1=self._beta_1,
            beta2=self._beta_2,
            epsilon=self._epsilon,
            grad=gradient,
        )
