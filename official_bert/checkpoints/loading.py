"""Brings the arrays of a checkpoint into variables, and says what came and what did not."""

import dataclasses
from collections.abc import Callable, Collection, Container, Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints.bundle import CheckpointReader, is_training_state
from official_bert.checkpoints.kinds import check_kind
from official_bert.checkpoints.opening import open_checkpoint
from official_bert.support.errors import UserError

_NAMES_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """The report of an initial checkpoint.

    Attributes:
      source: the checkpoint.
      matched: names of the variables that were set.
      missing: names of variables that the checkpoint lacks; they are newly initialized.
      unused: names of the checkpoint that the model lacks, except optimizer state.
    """

    source: str
    matched: list[str]
    missing: list[str]
    unused: list[str]

    def log(self) -> None:
        """Logs the counts and the names that want a look; each variable that was set with `--verbosity=1`."""
        logging.info(
            "%s: %d variables loaded, %d newly initialized, %d unused",
            self.source,
            len(self.matched),
            len(self.missing),
            len(self.unused),
        )
        for name in self.matched:
            logging.debug("loaded: %s", name)
        for status, names in (("newly initialized", self.missing), ("unused", self.unused)):
            if names:
                logging.info("%s: %s", status, ", ".join(names))


@dataclasses.dataclass(frozen=True)
class NamedArrays:
    """The arrays of a model, wherever they are.

    Attributes:
      source: where, for messages.
      shapes: name to shape, for every array.
      read: gives the array of a name.
    """

    source: str
    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]


def load_initial(path: str, variables: Sequence[keras.Variable], *, required: Callable[[str], bool]) -> LoadReport:
    """Sets variables from an initial checkpoint; optimizer slots and the step are newly initialized.

    Args:
      path: a prefix, or a folder with a state file or with one checkpoint alone.
      variables: the model's; the path of each is its name.
      required: tells which names must be there; others, such as a new head, may be missing.

    Returns:
      A report.

    Raises:
      UserError: a required variable is missing, or any variable has another shape.
    """
    reader = open_checkpoint(path, "init_checkpoint")
    named = {variable.path: variable for variable in variables}
    return load_arrays(NamedArrays(reader.prefix, reader.shapes, reader.read), named, required=required)


def load_arrays(
    arrays: NamedArrays, variables: Mapping[str, keras.Variable], *, required: Callable[[str], bool]
) -> LoadReport:
    """Sets variables from the arrays of their names.

    Args:
      arrays: what to read.
      variables: name to variable.
      required: tells which names must be there; others, such as a new head, may be missing.

    Returns:
      A report.

    Raises:
      UserError: a required variable is missing, or any variable has another shape.
    """
    missing = [name for name in variables if name not in arrays.shapes]
    required_missing = [name for name in missing if required(name)]
    if required_missing:
        check_kind(arrays.source, required_missing, arrays.shapes)
        raise UserError(
            f"{arrays.source} lacks {len(required_missing)} of the model's variables: {_some(required_missing)}; is it "
            "a checkpoint of such a model, and does its bert_config.json belong to it?"
        )
    matched = {name: variable for name, variable in variables.items() if name in arrays.shapes}
    _check_shapes(arrays.source, arrays.shapes, matched)
    for name, variable in matched.items():
        variable.assign(arrays.read(name))
    unused = sorted(name for name in set(arrays.shapes) - set(variables) if not is_training_state(name, arrays.shapes))
    return LoadReport(arrays.source, list(matched), missing, unused)


def restore(path: str, variables: Sequence[keras.Variable], state: Mapping[str, tf.Variable]) -> None:
    """Sets every variable from a checkpoint of the same run.

    Args:
      path: the checkpoint's prefix.
      variables: the model's.
      state: name to variable of what else is restored: optimizer slots and the step; may be empty.

    Raises:
      UserError: a variable is missing or has another shape; the message names it.
    """
    reader = CheckpointReader(path)
    names = {**{variable.path: variable for variable in variables}, **state}
    missing = [name for name in names if name not in reader.shapes]
    if missing:
        check_kind(reader.prefix, missing, reader.shapes)
        raise UserError(f"{reader.prefix} lacks {_some(missing)}: {_advice(missing, names, reader.shapes)}")
    _check_shapes(f"checkpoint {reader.prefix}", reader.shapes, names)
    for name, variable in names.items():
        variable.assign(reader.read(name))


def _advice(missing: Sequence[str], names: Container[str], there: Collection[str]) -> str:
    """Return the advice about a checkpoint that lacks some of a run's names; `there` are those that it has."""
    if not all(is_training_state(name, names) for name in missing):
        return "it is of another model; use another output_dir"
    lacked, other = (
        any(name.rpartition("/")[0] in names for name in group)  # slots
        for group in (missing, [name for name in there if name not in names])
    )
    if lacked and other:
        return (
            "it is of another optimizer; use the optimizer that it was trained with, or use it as init_checkpoint of a "
            "new output_dir"
        )
    return "it was stripped of its training state, so use it as init_checkpoint of a new output_dir"


def restore_present(path: str, state: Mapping[str, tf.Variable]) -> None:
    """Sets those variables that a checkpoint has, scalars by their names; the others stay as they are."""
    reader = CheckpointReader(path)
    for name, variable in state.items():
        if name in reader.shapes:
            variable.assign(reader.read(name))


def check_whole(path: str, variables: Sequence[keras.Variable], what: str) -> CheckpointReader:
    """Opens a checkpoint that must hold every variable; the step and the optimizer's slots may be missing.

    Args:
      path: a prefix, or a folder with a state file.
      variables: the model's.
      what: the parameter that named it, for messages; "checkpoint" for a run's own.

    Raises:
      UserError: there is no such checkpoint, it cannot be read, or a variable is missing or has another shape.
    """
    reader = open_checkpoint(path, what)
    names = {variable.path: variable for variable in variables}
    missing = [name for name in names if name not in reader.shapes]
    if missing:
        check_kind(f"{what} {reader.prefix}", missing, reader.shapes)
        raise UserError(f"{what} {reader.prefix} lacks {_some(missing)}: it is of another model, or was not fine-tuned")
    if any("/lstm_" in name for name in reader.shapes) and not any("/lstm_" in name for name in names):
        raise UserError(f"{what} {reader.prefix} has a bidirectional LSTM; give head=bilstm, as in training")
    _check_shapes(f"{what} {reader.prefix}", reader.shapes, names)
    return reader


def load_whole(path: str, variables: Sequence[keras.Variable], what: str) -> int:
    """Sets every variable from a checkpoint; the arguments and errors are those of `check_whole`.

    Returns:
      Its step; 0 if it was stripped of that.
    """
    reader = check_whole(path, variables, what)
    for variable in variables:
        variable.assign(reader.read(variable.path))
    return reader.step


def _check_shapes(
    source: str, shapes: Mapping[str, tuple[int, ...]], variables: Mapping[str, keras.Variable | tf.Variable]
) -> None:
    wrong = [
        f"{name} is {list(shapes[name])} there and {list(variable.shape)} here"
        for name, variable in variables.items()
        if shapes[name] != tuple(variable.shape)
    ]
    if wrong:
        raise UserError(
            f"{source} does not fit the model: {_some(wrong)}; "
            "use the bert_config.json that belongs to it, or another output_dir"
        )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"
