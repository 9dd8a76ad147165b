"""The checkpoints in the output folder of a run, in the reference's layout.

`checkpoint` is a text file that lists the last checkpoint and the kept ones; `model.ckpt-1000.index` and
`model.ckpt-1000.data-00000-of-00001` are the checkpoint at step 1000.
"""

import functools
import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from absl import logging

from official_bert.checkpoints.bundle import CheckpointReader, is_whole, write_checkpoint
from official_bert.checkpoints.locate import (
    BEST_FOLDER,
    STATE_FILE,
    delete_checkpoints,
    kept_checkpoints,
    latest_checkpoint,
    quoted,
    read_state,
)
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError

_HISTORY_FILE = "evaluations.json"


class CheckpointFolder:
    """Saves checkpoints of a run and keeps the last few."""

    def __init__(self, folder: str, *, keep_max: int, is_new: bool = False, is_written: bool = True):
        self._folder = folder
        self._keep_max = keep_max
        self._is_written = is_written
        self._kept = [] if is_new else kept_checkpoints(folder)
        self._temporary: set[str] = set()

    @property
    def latest(self) -> str | None:
        """Prefix of the last checkpoint; None if there is none yet."""
        return self._kept[-1] if self._kept else None

    def drop_damaged(self) -> None:
        """Fall back to the last intact checkpoint, if any; damaged files stay until their step is saved."""
        intact = next((place for place in reversed(range(len(self._kept))) if is_whole(self._kept[place])), None)
        if intact is None or intact == len(self._kept) - 1:
            return
        damaged, kept = self._kept[intact + 1 :], self._kept[: intact + 1]
        logging.warning("%s: damaged; resuming from the previous checkpoint, %s", ", ".join(damaged), kept[-1])
        self._write_state(kept)

    def _check_alone(self) -> None:
        """Raise if another process saved checkpoints here: locks may fail on network file systems."""
        state = read_state(self._folder)
        if state and os.path.normpath(state.latest) != os.path.normpath(self.latest or ""):
            raise UserError(
                f"another process saved {state.latest} while this one was training in the same folder; stop one of "
                f"them and restart the other"
            )

    def save(self, step: int, tensors: Mapping[str, Any], *, is_temporary: bool = False) -> str:
        """Write a step's checkpoint, record it as the latest, delete a temporary one and those beyond `keep_max`."""
        prefix = os.path.join(self._folder, f"model.ckpt-{step}")
        replaced = self._temporary - {prefix}
        self._temporary = {prefix} if is_temporary else set()
        kept = [other for other in self._kept if other != prefix] + [prefix]
        if not self._is_written:
            self._kept = kept
            return prefix
        self._check_alone()
        self._remove()
        write_checkpoint(prefix, tensors)
        self._write_state(kept)
        self._prune(replaced)
        return prefix

    def remove_leftovers(self) -> None:
        """Delete partial files and surplus checkpoints of a run that was killed while saving."""
        if self._is_written:
            self._remove()
            writing.remove_abandoned(os.path.join(self._folder, STATE_FILE))
            self._prune()

    def _prune(self, replaced: Collection[str] = ()) -> None:
        """Delete replaced checkpoints and those beyond `keep_max`; the state file lists them until they are gone."""
        kept = [path for path in self._kept if path not in replaced][-self._keep_max :]  # with 0, all are kept
        state = read_state(self._folder)
        surplus = [path for path in state.kept if path not in kept] if state else []
        for old in surplus:
            self._delete(old)
        if surplus:
            self._write_state(kept)

    def _write_state(self, kept: list[str]) -> None:
        names = [quoted(path.removeprefix(os.path.join(self._folder, ""))) for path in kept]
        with writing.atomic_write(os.path.join(self._folder, STATE_FILE)) as sink:
            sink.write(f"model_checkpoint_path: {names[-1]}\n")
            sink.writelines(f"all_model_checkpoint_paths: {name}\n" for name in names)
        self._kept = kept

    def _delete(self, prefix: str) -> None:
        """Delete a checkpoint, including the `.meta` file that the reference writes."""
        self._remove(re.escape(os.path.basename(prefix)) + r"\.(index|meta|data-\d+-of-\d+)")

    def _remove(self, pattern: str = r"\.model\.ckpt-.*\.partial-.*") -> None:
        """Delete the files whose names match an expression, by default the partial files of a killed run."""
        for entry in files.list_folder(self._folder):
            if re.fullmatch(pattern, entry):
                writing.remove(os.path.join(self._folder, entry))


class BestCheckpoint:
    """Evaluations in `output_dir/best`; they count once the run has a checkpoint of that step or later."""

    def __init__(self, output_dir: str, *, is_written: bool = True):
        """Read the state of an interrupted run, and drop evaluations after its last checkpoint."""
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
        return any(other == step for other, _ in self._history)

    def add(self, step: int, score: float, save: Callable[[], str]) -> str | None:
        """Record an evaluation; `save` saves a new best checkpoint first, so that the recorded one exists."""
        saved = save() if all(score > other for _, other in self._history) else None
        self._history.append((step, score))
        if self._is_written:
            writing.make_folders(self._folder)
            writing.write_file(self._path, json.dumps(self._history))
        return saved

    @property
    def num_since_best(self) -> int:
        """Return the number of evaluations since the best one (the earliest, if tied); 0 if there were none."""
        scores = [score for _, score in self._history]
        return len(scores) - 1 - scores.index(max(scores)) if scores else 0


def _read_history(path: str) -> list[tuple[int, float]]:
    try:
        entries = text_files.read_json_list(path, "list of evaluations")
        text_files.check_json(entries, list[list[float]], path)
        return [(int(step), float(score)) for step, score in entries]
    except ValueError as error:  # a UserError is one, too
        raise UserError(f"{path} is damaged ({error}); delete it to start a new history") from error
