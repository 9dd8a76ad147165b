"""Training time that is shared by all runs of a folder, for a schedule that decays by the clock."""

import time

import keras
import numpy as np

from official_bert.checkpoints.bundle import TRAIN_SECONDS, CheckpointReader
from official_bert.training.cluster import Cluster


class TimeBudget:
    """Clock of a run: a resumed run continues with the seconds stored in its checkpoint.

    Attributes:
      is_used_up: whether the last `update` found no time left.
    """

    def __init__(self, max_seconds: float, used_share: keras.Variable, cluster: Cluster):
        """Start the clock.

        Args:
          max_seconds: the budget.
          used_share: the schedule's variable for the used fraction of the budget.
          cluster: the processes that train together; the clock of the chief counts.

        Raises:
          ValueError: the budget is not above 0.
        """
        if max_seconds <= 0:
            raise ValueError(f"max_seconds={max_seconds}: must be above 0")
        self.is_used_up = False
        self._max_seconds = max_seconds
        self._used_share = used_share
        self._cluster = cluster
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds used so far, including earlier runs."""
        return time.monotonic() - self._began

    def restore(self, reader: CheckpointReader) -> None:
        """Add the seconds stored in a checkpoint, if any."""
        if TRAIN_SECONDS in reader.shapes:
            self._began -= float(reader.read(TRAIN_SECONDS))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the seconds to store in a checkpoint."""
        return {TRAIN_SECONDS: np.float64(self.seconds)}

    def update(self) -> None:
        """Set the used fraction, the same on all workers."""
        milliseconds = self._cluster.from_chief(int(1000 * self.seconds))
        used_share = min(milliseconds / (1000 * self._max_seconds), 1.0)
        self.is_used_up = used_share == 1
        self._used_share.assign(used_share)
