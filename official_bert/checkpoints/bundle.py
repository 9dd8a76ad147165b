"""Reads and writes a checkpoint: a file of arrays by name, in the reference's format (TensorFlow's V2 bundle).

A checkpoint is named by its prefix, `out/model.ckpt-1000`, which stands for `out/model.ckpt-1000.index` and
`out/model.ckpt-1000.data-00000-of-00001`.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from official_bert import files
from official_bert.errors import UserError

# What TensorFlow raises for damaged files depends on where the damage is.
_READ_ERRORS = (tf.errors.OpError, ValueError, IndexError, RuntimeError)
_DATA_SUFFIX = ".data-00000-of-00001"
GLOBAL_STEP = "global_step"
UNLOGGED_STEPS = "unlogged_steps/"  # before the names of the scalars of the steps since the last log line
_PATTERN = re.compile(r"[\[\]*?\\]")
_SLOTS = ("/adam_m", "/adam_v")


class CheckpointReader:
    """The arrays of one checkpoint.

    Attributes:
      prefix: the checkpoint's name.
      shapes: name to shape, for every array.
    """

    def __init__(self, path: str, flag: str = "checkpoint"):
        """Opens a checkpoint.

        Args:
          path: a prefix, or a folder with a `checkpoint` state file.
          flag: the flag or file that named it, for messages.

        Raises:
          UserError: there is no such checkpoint, or it cannot be read.
        """
        self.prefix = _resolve(path, flag)
        check_path(self.prefix)
        try:
            self._reader = tf.train.load_checkpoint(self.prefix)
        except _READ_ERRORS as error:
            raise UserError(f"{flag} {self.prefix} cannot be read as a checkpoint: {_message(error)}") from error
        self.shapes = {name: tuple(shape) for name, shape in self._reader.get_variable_to_shape_map().items()}

    @property
    def step(self) -> int:
        """Steps taken in training; 0 if it was stripped of that."""
        return int(self.read(GLOBAL_STEP)) if GLOBAL_STEP in self.shapes else 0

    def read(self, name: str) -> np.ndarray:
        """Reads one array.

        Raises:
          UserError: its bytes are damaged or cut off.
        """
        try:
            return self._reader.get_tensor(name)
        except _READ_ERRORS as error:
            raise UserError(f"{self.prefix}: {name} cannot be read: {_message(error)}") from error


def _resolve(path: str, flag: str) -> str:
    if files.is_folder(path):
        state = read_state(path)
        if state is None:
            raise UserError(
                f"{flag} {path} is a folder without a readable `checkpoint` file; name a checkpoint in it, as in "
                "model.ckpt-100"
            )
        path = state.model_checkpoint_path
    path = path.removesuffix(".index").removesuffix(_DATA_SUFFIX).removesuffix(".meta")
    if not files.exists(path + ".index"):
        raise UserError(f"{flag} {path}: no such checkpoint (there is no {path}.index)")
    return path


def read_state(folder: str) -> Any | None:
    """Reads the file `checkpoint` of a folder, as `tf.train.get_checkpoint_state`; None if it is missing or damaged."""
    try:
        return tf.train.get_checkpoint_state(folder)
    except (ValueError, UnicodeDecodeError, text_format.ParseError):
        return None


def check_path(prefix: str) -> None:
    r"""Raises if TensorFlow would take a path for a pattern: it could write the checkpoint but not read it.

    Raises:
      UserError: it holds one of `[ ] * ? \`.
    """
    if _PATTERN.search(prefix):
        raise UserError(f"{prefix}: TensorFlow cannot read checkpoints whose path holds [ ] * ? or \\; use another")


def _message(error: Exception) -> str:
    return getattr(error, "message", None) or str(error)


def write_checkpoint(prefix: str, tensors: Mapping[str, tf.Tensor | np.ndarray]) -> None:
    """Writes a checkpoint that exists only when complete: data first, index last, each by renaming.

    Args:
      prefix: its name, without suffix.
      tensors: name to array.

    Raises:
      UserError: it cannot be written, as on a full disk.
    """
    check_path(prefix)
    partial = files.partial_name(prefix)
    try:
        with tf.device("CPU"):
            tf.raw_ops.SaveV2(
                prefix=partial,
                tensor_names=list(tensors),
                shape_and_slices=[""] * len(tensors),
                tensors=[tf.convert_to_tensor(tensor) for tensor in tensors.values()],
            )
        for suffix in (_DATA_SUFFIX, ".index"):
            files.rename(partial + suffix, prefix + suffix)
    except tf.errors.OpError as error:
        raise UserError(f"cannot write the checkpoint {prefix}: {_message(error)}") from error
    finally:
        for suffix in (_DATA_SUFFIX, ".index"):  # gone already if all went well
            files.remove(partial + suffix)


def is_training_state(name: str) -> bool:
    """Tells whether an array only serves to resume training: an optimizer slot, the step, what was not logged yet."""
    return name == GLOBAL_STEP or name.startswith(UNLOGGED_STEPS) or name.endswith(_SLOTS)
