"""The best checkpoint of a run, kept apart from the last ones."""

import functools
import json
import os
from collections.abc import Callable
from typing import Any

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.folder import CheckpointFolder
from official_bert.checkpoints.names import BEST_FOLDER, STATE_FILE, delete_checkpoints
from official_bert.checkpoints.state_file import latest_checkpoint
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError

_HISTORY_FILE = "evaluations.json"


class BestCheckpoint:
    """Remembers a run's evaluations in `output_dir/best`, where the checkpoint of the best one lies.

    An evaluation counts once the run has a checkpoint of its own of that step or a later one: what lies beyond its last
    checkpoint will be made again.
    """

    def __init__(self, output_dir: str, *, is_written: bool = True):
        """Read what an earlier part of the run left, and forgets what lies beyond its last checkpoint.

        Args:
          output_dir: of the run.
          is_written: whether this process writes there, or another worker.

        Raises:
          UserError: that is damaged.
        """
        self._folder = os.path.join(output_dir, BEST_FOLDER)
        self._path = os.path.join(self._folder, _HISTORY_FILE)
        self._is_written = is_written
        self._history: list[tuple[int, float]] = []
        if files.exists(self._path):
            latest = latest_checkpoint(output_dir)
            step = CheckpointReader(latest).step if latest else 0
            self._history = [entry for entry in _read_history(self._path) if entry[0] <= step]

    @functools.cached_property
    def folder(self) -> CheckpointFolder:
        """Folder of the best checkpoint; nothing is created before it is asked for."""
        is_new = not files.exists(self._path) and not files.exists(os.path.join(self._folder, STATE_FILE))
        if self._is_written:
            writing.make_folders(self._folder)
            if is_new:
                delete_checkpoints(self._folder)  # the run was killed while it saved the first one
        return CheckpointFolder(self._folder, keep_max=1, is_new=is_new, is_written=self._is_written)

    def has(self, step: int) -> bool:
        """Tell whether the evaluation of a step is remembered."""
        return any(other == step for other, _ in self._history)

    def add(self, step: int, score: float, save: Callable[[], str]) -> str | None:
        """Remember an evaluation.

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
        if self._is_written:
            writing.make_folders(self._folder)
            with writing.atomic_write(self._path) as sink:
                json.dump(self._history, sink)
        return saved

    @property
    def num_since_best(self) -> int:
        """Return the number of evaluations since the best one, the first of equals; 0 if there were none at all."""
        scores = [score for _, score in self._history]
        return len(scores) - 1 - scores.index(max(scores)) if scores else 0


def _read_history(path: str) -> list[tuple[int, float]]:
    try:
        return [_checked(entry) for entry in text_files.read_json_list(path, "list of evaluations")]
    except (ValueError, TypeError, OverflowError) as error:  # a UserError is a ValueError
        raise UserError(f"{path} is damaged ({error}); delete it to start a new history") from error


def _checked(entry: Any) -> tuple[int, float]:
    step, score = entry
    if type(step) is not int or type(score) not in (int, float):
        raise ValueError(f"{json.dumps(entry)[:80]} is not a step and a score")
    return step, float(score)
