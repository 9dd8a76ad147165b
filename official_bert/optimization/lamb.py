"""LAMB as a Keras optimizer, for batches of many thousands of examples, in `compile` and in our training loop."""

from typing import Any

import keras
from keras import ops

from official_bert.optimization.moments import MomentOptimizer


@keras.saving.register_keras_serializable(package="official_bert")
class Lamb(MomentOptimizer):
    """Adam with bias correction and weight decay, whose update is scaled to the norm of each variable.

    For each variable with gradient g, clipped to a global norm of 1:
      m = 0.9 m + 0.1 g;  v = 0.999 v + 0.001 g^2
      u = (m / (1 - 0.9^step)) / (sqrt(v / (1 - 0.999^step)) + 1e-6) + 0.01 w
      w = w - rate * |w| / |u| * u, where |w| / |u| is 1 if either norm is 0
    The parameters of LayerNorm and the biases are updated without weight decay and without |w| / |u|. The rate is the
    relative change of a variable per step: from 0.0005 to 0.01 in the paper, far above Adam's rates.

    The slots of a variable are named `lamb_m` and `lamb_v`.

    Source: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2020, algorithm 2,
    with phi(z) = z.
    """

    slot_names = ("lamb_m", "lamb_v")

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-3,
        *,
        name: str = "lamb",
        **options: Any,
    ):
        """Set the hyperparameters; `build` creates the slots.

        Args:
          learning_rate: a number, or a schedule such as `LinearWarmupThenDecay`.
          name: name of the optimizer.
          **options: options of `MomentOptimizer`; variables of `no_decay` are not scaled by the ratio of norms either.

        Raises:
          ValueError: see `MomentOptimizer`.
        """
        super().__init__(learning_rate, name=name, **options)

    def update_step(self, gradient: Any, variable: keras.Variable, learning_rate: Any) -> None:
        """Update one variable; the gradient is already summed over the replicas and clipped."""
        index = self._get_variable_index(variable)
        first, second = self._first_moments[index], self._second_moments[index]
        rate = self._rate(index, learning_rate, variable.dtype)
        first_power, second_power = self._powers(variable.dtype)
        self.assign(first, self.beta_1 * first + (1 - self.beta_1) * gradient)
        self.assign(second, self.beta_2 * second + (1 - self.beta_2) * ops.square(gradient))
        update = first / (1 - first_power) / (ops.sqrt(second / (1 - second_power)) + self.epsilon)
        if not self._is_excluded[index]:
            update += self.weight_decay_rate * variable
            rate *= _trust_ratio(variable, update)
        self.assign_sub(variable, rate * update)


def _trust_ratio(weights, update):
    """Return the norm of the weights divided by the norm of their update; 1 if either is 0."""
    norms = _norm(weights), _norm(update)
    return ops.where(ops.minimum(*norms) > 0, norms[0] / norms[1], ops.ones_like(norms[0]))


def _norm(values):
    return ops.sqrt(ops.sum(ops.square(values)))
