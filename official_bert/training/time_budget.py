"""Training time that is shared by all runs of a folder, for a schedule that decays by the clock."""

import time

import keras
import numpy as np
from absl import logging

from official_bert.checkpoints.bundle import TRAIN_SECONDS, CheckpointReader
from official_bert.training.cluster import Cluster


class TimeBudget:
    """Clock of a run: a resumed run continues with the seconds stored in its checkpoint.

    For a schedule that does not decay by time, the budget has no limit and no state.

    Attributes:
      is_used_up: whether the last `update` found no time left.
    """

    def __init__(self, max_seconds: float, used_share: keras.Variable | None, cluster: Cluster):
        """Start the clock.

        Args:
          max_seconds: the budget.
          used_share: the schedule's variable for the used fraction of the budget; None if it has none.
          cluster: the processes that train together; the clock of the chief counts.

        Raises:
          ValueError: the schedule needs a budget above 0.
        """
        if used_share is not None and max_seconds <= 0:
            raise ValueError(f"max_seconds={max_seconds}: must be above 0")
        self.is_used_up = False
        self._max_seconds = max_seconds
        self._used_share = used_share
        self._cluster = cluster
        self._began = time.monotonic()

    def restore(self, reader: CheckpointReader) -> None:
        """Add the seconds stored in a checkpoint, if any."""
        if TRAIN_SECONDS in reader.shapes:
            self._began -= float(reader.read(TRAIN_SECONDS))
        self.update()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the seconds to store in a checkpoint."""
        return {} if self._used_share is None else {TRAIN_SECONDS: np.float64(self._seconds)}

    def update(self) -> None:
        """Set the used fraction, the same on all workers."""
        if self._used_share is None:
            return
        milliseconds = self._cluster.from_chief(int(1000 * self._seconds))
        used_share = min(milliseconds / (1000 * self._max_seconds), 1.0)
        self.is_used_up = used_share == 1
        self._used_share.assign(used_share)

    def log_end(self, num_steps: int) -> None:
        """Log that training is complete, with a warning if all steps were taken before the end of the schedule."""
        if self.is_used_up:
            logging.info("max_train_seconds=%g are used up: complete at step %d", self._max_seconds, num_steps)
        elif self._used_share is not None:
            logging.warning(
                "all %d steps took %.0f of max_train_seconds=%g: the learning rate did not reach its end; train more "
                "steps or epochs for less time",
                num_steps,
                self._seconds,
                self._max_seconds,
            )

    @property
    def _seconds(self) -> float:
        """Seconds used so far, including earlier runs."""
        return time.monotonic() - self._began
