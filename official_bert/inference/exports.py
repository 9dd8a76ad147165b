"""Finds and loads exported models."""

import os
from typing import Any

import tensorflow as tf

from official_bert.serving.servable import TEXT
from official_bert.serving.versions import LITE_FILE, SAVED_MODEL_FILE, check_whole, task_name, versions
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.tasks.registry import TaskRow, task_of_export

_TEXT_NAMES = ("text", "text_a", "text_b", "question", "context")  # a SavedModel names its inputs, but in no order
# What `tf.saved_model.load` was seen to raise at damaged files of exports that have no checksums.
_LOADING_ERRORS = (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, tf.errors.OpError)


def find_version(path: str) -> str | None:
    """The folder of an exported version, the last one if the path is the folder of all; None if it is not an export.

    Raises:
      UserError: there is no such folder.
    """
    if not files.is_folder(path):
        raise UserError(f"there is no folder {path}; give an export or the output folder of a run")
    if files.exists(os.path.join(path, SAVED_MODEL_FILE)):
        return path
    for version in reversed(versions(path)):
        folder = os.path.join(path, str(version))
        if files.exists(os.path.join(folder, SAVED_MODEL_FILE)):
            return folder
        if files.exists(os.path.join(folder, LITE_FILE)):
            raise UserError(f"{folder} is for LiteRT and reads ids, not texts; export with export_format=saved_model")
    return None


def load(folder: str) -> tuple[Any, TaskRow]:
    """Loads a version of an exported model.

    Args:
      folder: as `find_version` gives it.

    Returns:
      What `tf.saved_model.load` gives, and the model's task.

    Raises:
      UserError: the version is damaged, or is not a model that reads texts.
    """
    check_whole(folder)
    try:
        export = tf.saved_model.load(folder)
    except tf.errors.ResourceExhaustedError:
        raise
    except _LOADING_ERRORS as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UserError(f"{folder} cannot be loaded ({reason}); is it damaged? Export the model again") from error
    predict = export.signatures.get(TEXT)
    task = task_of_export(task_name(folder), predict.structured_outputs) if predict else None
    if task is None or not set(predict.structured_input_signature[1]) <= set(_TEXT_NAMES):
        raise UserError(f"{folder} is not a model that was exported with do_export")
    return export, task


def text_names(predict: Any) -> list[str]:
    """The names of the texts that a loaded signature reads, in their order."""
    return sorted(predict.structured_input_signature[1], key=_TEXT_NAMES.index)
