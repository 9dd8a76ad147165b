"""The checkpoints of a run in its output folder, as users of the reference know them.

`checkpoint` is a text file that names the last checkpoint and those still kept; `model.ckpt-1000.index` and
`model.ckpt-1000.data-00000-of-00001` are the checkpoint of step 1000.
"""

import os
import re
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints.bundle import is_whole, write_checkpoint
from official_bert.checkpoints.names import STATE_FILE
from official_bert.checkpoints.state_file import kept_checkpoints, quoted, read_state
from official_bert.support import files, writing
from official_bert.support.errors import UserError


class CheckpointFolder:
    """Saves checkpoints of a run and keeps the last few."""

    def __init__(self, folder: str, *, keep_max: int, is_new: bool = False, is_written: bool = True):
        """Look at what the folder holds.

        Args:
          folder: output folder of the run; it must exist.
          keep_max: how many checkpoints to keep; 0 keeps all.
          is_new: whether it is known to hold none; what another worker is about to delete does not count.
          is_written: whether this process writes them; if not, it only keeps in mind what another worker writes.

        Raises:
          UserError: see `kept_checkpoints`.
        """
        self._folder = folder
        self._keep_max = keep_max
        self._is_written = is_written
        self._kept = [] if is_new else kept_checkpoints(folder)

    @property
    def latest(self) -> str | None:
        """Prefix of the last checkpoint, None if there is none yet."""
        return self._kept[-1] if self._kept else None

    def drop_damaged(self) -> None:
        """Make the last intact checkpoint the last one, if there is one, and warn of those after it.

        All of the last checkpoint is read. The files of a damaged one stay until a checkpoint of its step is saved.
        """
        intact = next((place for place in reversed(range(len(self._kept))) if is_whole(self._kept[place])), None)
        if intact is None or intact == len(self._kept) - 1:
            return
        damaged, kept = self._kept[intact + 1 :], self._kept[: intact + 1]
        logging.warning("%s: damaged; going on from %s, the checkpoint before", ", ".join(damaged), kept[-1])
        self._write_state(kept)

    def _check_alone(self) -> None:
        """Raise if somebody else has saved checkpoints here: locks may be missing, or lost with a network.

        Nothing of theirs is changed then.
        """
        state = read_state(self._folder)
        if state and os.path.normpath(state.latest) != os.path.normpath(self.latest or ""):
            raise UserError(
                f"another process saved {state.latest} while this one was training in the same folder; stop one of "
                "them, and start the other one again"
            )

    def save(self, step: int, tensors: Mapping[str, tf.Tensor | np.ndarray]) -> str:
        """Write the checkpoint of a step, name it the last one, and delete those beyond `keep_max`.

        Args:
          step: steps taken so far; part of the name.
          tensors: name to array.

        Returns:
          Its prefix.

        Raises:
          UserError: it cannot be written, or another process has saved another one since.
        """
        prefix = os.path.join(self._folder, f"model.ckpt-{step}")
        kept = [other for other in self._kept if other != prefix] + [prefix]
        if not self._is_written:
            self._kept = kept
            return prefix
        self._check_alone()
        self._remove_partials()
        write_checkpoint(prefix, tensors)
        self._write_state(kept)
        self._prune()
        return prefix

    def tidy(self) -> None:
        """Delete what a run that was killed while it saved left: half-written files, and checkpoints too many."""
        if self._is_written:
            self._remove_partials()
            writing.remove_abandoned(os.path.join(self._folder, STATE_FILE))
            self._prune()

    def _prune(self) -> None:
        """Delete the checkpoints beyond `keep_max`, which the state file names until they are gone."""
        surplus = self._kept[: -self._keep_max] if self._keep_max else []
        if surplus:
            for old in surplus:
                self._delete(old)
            self._write_state(self._kept[len(surplus) :])

    def _write_state(self, kept: list[str]) -> None:
        names = [quoted(path.removeprefix(os.path.join(self._folder, ""))) for path in kept]
        with writing.atomic_write(os.path.join(self._folder, STATE_FILE)) as sink:
            sink.write(f"model_checkpoint_path: {names[-1]}\n")
            sink.writelines(f"all_model_checkpoint_paths: {name}\n" for name in names)
        self._kept = kept

    def _delete(self, prefix: str) -> None:
        """Delete a checkpoint; one of the reference has a `.meta` file too."""
        name = os.path.basename(prefix)
        for entry in files.list_folder(self._folder):
            if re.fullmatch(re.escape(name) + r"\.(index|meta|data-\d+-of-\d+)", entry):
                writing.remove(os.path.join(self._folder, entry))

    def _remove_partials(self) -> None:
        """Delete what a killed run left half-written."""
        for entry in files.list_folder(self._folder):
            if entry.startswith(".model.ckpt-") and ".partial-" in entry:
                writing.remove(os.path.join(self._folder, entry))
