"""The best checkpoint of a run, kept separately from the most recent ones."""

import functools
import json
import os
from collections.abc import Callable
from typing import Any

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.checkpoint_files import BEST_FOLDER, STATE_FILE, delete_checkpoints
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.checkpoints.state_file import latest_checkpoint
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError

_HISTORY_FILE = "evaluations.json"


class BestCheckpoint:
    """Records a run's evaluations in `output_dir/best`, next to the best checkpoint.

    An evaluation counts only once the run has its own checkpoint of that step or a later one: everything after the last
    checkpoint will be recomputed.
    """

    def __init__(self, output_dir: str, *, is_written: bool = True):
        """Read the state of an interrupted run, and drop evaluations after its last checkpoint.

        Args:
          output_dir: the run's output folder.
          is_written: whether this process writes to it, rather than another worker.

        Raises:
          UserError: the list of evaluations is damaged.
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
        """Folder of the best checkpoint, created on first use."""
        is_new = not files.exists(self._path) and not files.exists(os.path.join(self._folder, STATE_FILE))
        if self._is_written:
            writing.make_folders(self._folder)
            if is_new:
                delete_checkpoints(self._folder)  # the run was killed while saving the first one
        return CheckpointFolder(self._folder, keep_max=1, is_new=is_new, is_written=self._is_written)

    def has(self, step: int) -> bool:
        """Return True if the evaluation of a step is recorded."""
        return any(other == step for other, _ in self._history)

    def add(self, step: int, score: float, save: Callable[[], str]) -> str | None:
        """Record an evaluation.

        Args:
          step: number of steps taken; increases from call to call.
          score: higher is better.
          save: saves the checkpoint and returns its prefix. It is called only for a new best score, and before the
            evaluation is recorded, so that the recorded best checkpoint always exists.

        Returns:
          The result of `save`; None if it was not called.
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
        """Return the number of evaluations since the best one (the earliest, if tied); 0 if there were none."""
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
