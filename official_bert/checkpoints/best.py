"""The best checkpoint of a run, kept apart from the last ones."""

import json
import os

from official_bert import files
from official_bert.checkpoints.folder import CheckpointFolder
from official_bert.checkpoints.names import BEST_FOLDER
from official_bert.errors import UserError

_HISTORY_FILE = "evaluations.json"


class BestCheckpoint:
    """Remembers a run's evaluations in `output_dir/best`, where the checkpoint of the best one lies.

    Attributes:
      folder: where to save that checkpoint.
    """

    def __init__(self, output_dir: str):
        """Reads what an earlier part of the run left.

        Raises:
          UserError: that is damaged.
        """
        path = os.path.join(output_dir, BEST_FOLDER)
        files.make_folders(path)
        self.folder = CheckpointFolder(path, keep_max=1)
        self._path = os.path.join(path, _HISTORY_FILE)
        self._history: list[tuple[int, float]] = []
        if files.exists(self._path):
            try:
                with files.open_file(self._path) as source:
                    self._history = [(int(step), float(score)) for step, score in json.load(source)]
            except (ValueError, TypeError) as error:
                raise UserError(f"{self._path} is damaged ({error}); delete it to begin its history anew") from error

    def add(self, step: int, score: float) -> bool:
        """Remembers an evaluation; a resumed run forgets those that lie ahead of it.

        Args:
          step: steps taken.
          score: more is better.

        Returns:
          Whether it is better than all before.
        """
        earlier = [entry for entry in self._history if entry[0] < step]
        self._history = [*earlier, (step, score)]
        with files.atomic_write(self._path) as sink:
            json.dump(self._history, sink)
        return all(score > other for _, other in earlier)

    @property
    def num_since_best(self) -> int:
        """How many evaluations there were since the best one, the first of equals; 0 if there were none at all."""
        scores = [score for _, score in self._history]
        return len(scores) - 1 - scores.index(max(scores)) if scores else 0
