"""Learning rate schedules by name."""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import keras
from keras import ops

from official_bert.support.errors import UserError

_Row = TypeVar("_Row")


def lookup(table: Mapping[str, _Row], name: str, parameter: str) -> _Row:
    if name not in table:
        raise UserError(f"{parameter}={name!r} is unknown; choose one of {', '.join(sorted(table))}")
    return table[name]


class _LinearWarmup(keras.optimizers.schedules.LearningRateSchedule):
    """Base class of schedules with the reference's linear warm-up."""

    def __init__(self, learning_rate: float, num_warmup_steps: int):
        if num_warmup_steps < 0:
            raise ValueError(f"num_warmup_steps={num_warmup_steps}: must be at least 0")
        self.learning_rate = float(learning_rate)
        self.num_warmup_steps = num_warmup_steps

    def __call__(self, step: Any) -> Any:
        """Compute the rate, float32, after `step` steps, as Keras counts: 0 gives that of step 1."""
        step = ops.cast(step, "float32") + 1.0
        rate = self._after_warmup(step)
        if not self.num_warmup_steps:
            return rate
        return ops.where(step < self.num_warmup_steps, self.learning_rate * step / self.num_warmup_steps, rate)

    def _after_warmup(self, step):
        """Return the rate of a step without warm-up; float32 scalars, steps counted from 1."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments, for Keras's serialization."""
        return {"learning_rate": self.learning_rate, "num_warmup_steps": self.num_warmup_steps}


@keras.saving.register_keras_serializable(package="official_bert")
class LinearWarmupThenDecay(_LinearWarmup):
    """The reference's schedule: linear warm-up, then linear decay along a line that starts at step 0.

    For example with 100 steps, 10 of them warm-up, and a peak of 1.0: step 1 has 0.1, step 5 has 0.5, step 10 has 0.9
    (not 1.0: the decay starts at step 0), step 100 has 0.
    """

    def __init__(
        self, learning_rate: float, *, num_train_steps: int, num_warmup_steps: int = 0, end_learning_rate: float = 0.0
    ):
        """Set the parameters of the schedule.

        Args:
          learning_rate: the peak, the target of the warm-up.
          num_train_steps: the step at which the rate reaches `end_learning_rate` and stays there.
          num_warmup_steps: number of warm-up steps; 0 for none.
          end_learning_rate: the final rate.

        Raises:
          ValueError: there are no steps, `num_warmup_steps` is negative, or the final rate is not from 0 to the peak.
        """
        super().__init__(learning_rate, num_warmup_steps)
        if num_train_steps < 1:
            raise ValueError(f"num_train_steps={num_train_steps}: must be at least 1")
        if not 0 <= end_learning_rate <= learning_rate:
            raise ValueError(f"end_learning_rate={end_learning_rate}: must be from 0 to the peak, {learning_rate}")
        self.num_train_steps = num_train_steps
        self.end_learning_rate = float(end_learning_rate)

    def _after_warmup(self, step):
        share_left = self._share_left(ops.minimum(step, float(self.num_train_steps)) / self.num_train_steps)
        rate = (self.learning_rate - self.end_learning_rate) * share_left + self.end_learning_rate
        return ops.maximum(rate, self.end_learning_rate)  # XLA's rounding may give a lower rate

    def _share_left(self, progress):
        """Return the remaining fraction of the peak learning rate after a fraction of the decay; both from 0 to 1."""
        return 1.0 - progress

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments, for Keras's serialization."""
        return {
            **super().get_config(),
            "num_train_steps": self.num_train_steps,
            "end_learning_rate": self.end_learning_rate,
        }


@keras.saving.register_keras_serializable(package="official_bert")
class LinearWarmupThenCosine(LinearWarmupThenDecay):
    """Linear warm-up, then decay along half a cosine period that starts at step 0.

    For example with 100 steps, 10 of them warm-up, and a peak of 1.0: step 5 has 0.5, step 10 has 0.976, step 50 has
    0.5, step 90 has 0.024, step 100 has 0. The arguments are those of `LinearWarmupThenDecay`.

    Source: Loshchilov and Hutter, "SGDR", 2017, equation 5, with one period.
    """

    def _share_left(self, progress):
        return 0.5 * (1.0 + ops.cos(math.pi * progress))


@keras.saving.register_keras_serializable(package="official_bert")
class LinearWarmupThenConstant(_LinearWarmup):
    """Linear warm-up, then the peak rate."""

    def __init__(self, learning_rate: float, *, num_warmup_steps: int = 0):
        """Set the parameters of the schedule.

        Args:
          learning_rate: the peak, the rate after warm-up.
          num_warmup_steps: number of warm-up steps; 0 for none.

        Raises:
          ValueError: `num_warmup_steps` is negative.
        """
        super().__init__(learning_rate, num_warmup_steps)

    def _after_warmup(self, step):
        return ops.full_like(step, self.learning_rate)


def _constant(learning_rate: float, *, num_warmup_steps: int, **of_decay) -> LinearWarmupThenConstant:
    return LinearWarmupThenConstant(learning_rate, num_warmup_steps=num_warmup_steps)


# A new schedule is a class, or a function that returns a Keras schedule for the arguments of `LinearWarmupThenDecay`,
# and a row here and in the choices of the flag `lr_schedule`.
SCHEDULES: dict[str, Callable[..., keras.optimizers.schedules.LearningRateSchedule]] = {
    "linear": LinearWarmupThenDecay,
    "cosine": LinearWarmupThenCosine,
    "constant": _constant,
}


def create_schedule(name: str, learning_rate: float, **options: Any) -> keras.optimizers.schedules.LearningRateSchedule:
    """Create a schedule by name; the options are those of `LinearWarmupThenDecay`."""
    return lookup(SCHEDULES, name, "lr_schedule")(learning_rate, **options)
