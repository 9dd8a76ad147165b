"""The best checkpoint of a run, kept apart from the last ones."""

import json
import math
import os
from collections.abc import Callable
from typing import Any

from official_bert import files
from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.folder import CheckpointFolder, latest_checkpoint
from official_bert.checkpoints.names import STATE_FILE, delete_checkpoints
from official_bert.errors import UserError

FOLDER = "best"
_HISTORY_FILE = "evaluations.json"


class BestCheckpoint:
    """Remembers a run's evaluations in `output_dir/best`, where the checkpoint of the best one lies.

    An evaluation counts once the run has a checkpoint of its own of that step or a later one: what lies beyond its last
    checkpoint will be made again.

    Attributes:
      folder: where to save that checkpoint.
    """

    def __init__(self, output_dir: str):
        """Reads what an earlier part of the run left, and forgets what lies beyond its last checkpoint.

        Raises:
          UserError: that is damaged.
        """
        path = os.path.join(output_dir, FOLDER)
        files.make_folders(path)
        self._path = os.path.join(path, _HISTORY_FILE)
        self._history: list[tuple[int, float]] = []
        if not files.exists(self._path) and not files.exists(os.path.join(path, STATE_FILE)):
            delete_checkpoints(path)  # the run was killed while it saved the first one
        self.folder = CheckpointFolder(path, keep_max=1)
        if files.exists(self._path):
            history = _read_history(self._path)
            latest = latest_checkpoint(output_dir)
            step = CheckpointReader(latest).step if latest else 0
            self._history = [entry for entry in history if entry[0] <= step]
            if self._history != history:
                self._write()

    def has(self, step: int) -> bool:
        """Tells whether the evaluation of a step is remembered."""
        return any(other == step for other, _ in self._history)

    def add(self, step: int, score: float, save: Callable[[], str]) -> str | None:
        """Remembers an evaluation.

        Args:
          step: steps taken, more than in those before.
          score: more is better.
          save: saves the checkpoint and returns its prefix; called if the score is better than all before, and before
            the evaluation is written down, so that none is called the best whose checkpoint is not there.

        Returns:
          What `save` returned; None if it was not called.
        """
        saved = save() if all(score > other for _, other in self._history) else None
        self._history.append((step, score))
        self._write()
        return saved

    def _write(self) -> None:
        with files.atomic_write(self._path) as sink:
            json.dump(self._history, sink)

    @property
    def num_since_best(self) -> int:
        """How many evaluations there were since the best one, the first of equals; 0 if there were none at all."""
        scores = [score for _, score in self._history]
        return len(scores) - 1 - scores.index(max(scores)) if scores else 0


def _read_history(path: str) -> list[tuple[int, float]]:
    try:
        with files.open_file(path) as source:
            return [_checked(entry) for entry in json.load(source)]
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}); delete it to begin its history anew") from error


def _checked(entry: Any) -> tuple[int, float]:
    step, score = entry
    if type(step) is not int or type(score) not in (int, float) or not math.isfinite(score):
        raise ValueError(f"{json.dumps(entry)[:80]} is not a step and a score")
    return step, float(score)
