"""Learning rates over the steps of a run, by name."""

from collections.abc import Callable

import keras
from keras import ops

from official_bert.optimization.names import lookup


@keras.saving.register_keras_serializable(package="official_bert")
class LinearWarmupThenDecay(keras.optimizers.schedules.LearningRateSchedule):
    """The reference's schedule: up in a line, then down in a line that began at step 0.

    For example with 100 steps, 10 of them warm-up, and a peak of 1.0: step 1 has 0.1, step 5 has 0.5, step 10 has 0.9
    (not 1.0: the decay counts the warm-up too), step 100 has 0.
    """

    def __init__(self, peak: float, *, num_train_steps: int, num_warmup_steps: int = 0):
        """Takes the numbers of the run.

        Args:
          peak: the rate that warm-up heads for.
          num_train_steps: the step whose rate is 0; later ones have 0, too.
          num_warmup_steps: length of the warm-up; 0 for none.

        Raises:
          ValueError: there are no steps, or the warm-up has a negative length.
        """
        if num_train_steps < 1 or num_warmup_steps < 0:
            raise ValueError(
                f"num_train_steps={num_train_steps} and num_warmup_steps={num_warmup_steps}: the first must be at "
                "least 1, the second at least 0"
            )
        self.peak = float(peak)
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps

    def __call__(self, step):
        """Computes the learning rate of the next step.

        Args:
          step: int scalar, steps already taken, as Keras's optimizers count: 0 gives the rate of step 1.

        Returns:
          float32 scalar.
        """
        step = ops.cast(step, "float32") + 1.0
        decayed = self.peak * (1.0 - ops.minimum(step, float(self.num_train_steps)) / self.num_train_steps)
        if not self.num_warmup_steps:
            return decayed
        return ops.where(step < self.num_warmup_steps, self.peak * step / self.num_warmup_steps, decayed)

    def get_config(self) -> dict:
        """The arguments, for Keras's serialization."""
        return {
            "peak": self.peak,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
        }


# A new schedule is one class, or one function that makes a Keras schedule of these arguments, and one row here.
SCHEDULES: dict[str, Callable[..., keras.optimizers.schedules.LearningRateSchedule]] = {
    "linear_warmup_then_decay": LinearWarmupThenDecay,
}


def create_schedule(
    name: str, peak: float, *, num_train_steps: int, num_warmup_steps: int
) -> keras.optimizers.schedules.LearningRateSchedule:
    """Creates the schedule of a name; the other arguments are those of `LinearWarmupThenDecay`.

    Raises:
      UserError: there is no schedule of the name.
    """
    create = lookup(SCHEDULES, name, "schedule")
    return create(peak, num_train_steps=num_train_steps, num_warmup_steps=num_warmup_steps)
