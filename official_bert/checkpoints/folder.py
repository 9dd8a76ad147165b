"""The checkpoints of a run in its output folder, as users of the reference know them.

`checkpoint` is a text file that names the last checkpoint and those still kept; `model.ckpt-1000.index` and
`model.ckpt-1000.data-00000-of-00001` are the checkpoint of step 1000.
"""

import os
import re
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from official_bert import files
from official_bert.checkpoints.bundle import check_path, read_state, write_checkpoint
from official_bert.checkpoints.names import CHECKPOINT_NAME, STATE_FILE
from official_bert.errors import UserError


class CheckpointFolder:
    """Saves checkpoints of a run and keeps the last few."""

    def __init__(self, folder: str, *, keep_max: int):
        """Looks at what the folder holds.

        Args:
          folder: output folder of the run; it must exist.
          keep_max: how many checkpoints to keep; 0 keeps all.

        Raises:
          UserError: the folder holds checkpoints, but its state file is missing or damaged, or names one that is not
            there.
        """
        check_path(folder)
        self._folder, self._keep_max = folder, keep_max
        self._kept = self._read_state()

    @property
    def latest(self) -> str | None:
        """Prefix of the last checkpoint, None if there is none yet."""
        return self._kept[-1] if self._kept else None

    def save(self, step: int, tensors: Mapping[str, tf.Tensor | np.ndarray]) -> str:
        """Writes the checkpoint of a step, names it the last one, and deletes those beyond `keep_max`.

        Args:
          step: steps taken so far; part of the name.
          tensors: name to array.

        Returns:
          Its prefix.
        """
        self._remove_partials()
        prefix = os.path.join(self._folder, f"model.ckpt-{step}")
        write_checkpoint(prefix, tensors)
        self._kept = [other for other in self._kept if other != prefix] + [prefix]
        self._write_state()
        surplus = self._kept[: -self._keep_max] if self._keep_max else []
        if surplus:  # still named above, so that the next save deletes what a killed run did not come to delete
            for old in surplus:
                self._delete(old)
            self._kept = self._kept[len(surplus) :]
            self._write_state()
        return prefix

    def _read_state(self) -> list[str]:
        state = read_state(self._folder)
        if state is None:
            found = [
                match
                for name in files.list_folder(self._folder)
                if (match := CHECKPOINT_NAME.fullmatch(name.removesuffix(".index")))
            ]
            last = max(found, key=lambda match: int(match[1]), default=None)
            if last and int(last[1]) > 0:  # the first one holds nothing learnt: a run was killed while it saved that
                last = last[0]
                raise UserError(
                    f"{self._folder} holds {last} but no readable file {STATE_FILE!r}; to go on from it, write "
                    f'the line model_checkpoint_path: "{last}" into that file, or use another folder'
                )
            return []
        latest = state.model_checkpoint_path
        if not files.exists(latest + ".index"):
            raise UserError(
                f"{os.path.join(self._folder, STATE_FILE)} names {latest}, which is not there; "
                "correct the file or use another folder"
            )
        earlier = [path for path in state.all_model_checkpoint_paths if path != latest]
        return [path for path in earlier if files.exists(path + ".index")] + [latest]

    def _write_state(self) -> None:
        names = [_quoted(path.removeprefix(os.path.join(self._folder, ""))) for path in self._kept]
        with files.atomic_write(os.path.join(self._folder, STATE_FILE)) as sink:
            sink.write(f"model_checkpoint_path: {names[-1]}\n")
            sink.writelines(f"all_model_checkpoint_paths: {name}\n" for name in names)

    def _delete(self, prefix: str) -> None:
        """Deletes a checkpoint; one of the reference has a `.meta` file too."""
        name = os.path.basename(prefix)
        for entry in files.list_folder(self._folder):
            if re.fullmatch(re.escape(name) + r"\.(index|meta|data-\d+-of-\d+)", entry):
                files.remove(os.path.join(self._folder, entry))

    def _remove_partials(self) -> None:
        """Deletes what a killed run left half-written."""
        for entry in files.list_folder(self._folder):
            if entry.startswith(".model.ckpt-") and ".partial-" in entry:
                files.remove(os.path.join(self._folder, entry))


def latest_checkpoint(folder: str) -> str | None:
    """Prefix of the last checkpoint of a run's folder; None if there is no such folder, or nothing in it.

    Raises:
      UserError: as `CheckpointFolder`.
    """
    return CheckpointFolder(folder, keep_max=0).latest if files.is_folder(folder) else None


def _quoted(text: str) -> str:
    """Quotes a string as the text form of protocol buffers wants it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
