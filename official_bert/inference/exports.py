"""Finds and loads exported models."""

import os
from typing import Any

from official_bert.checkpoints.hub_saved_model import signatures
from official_bert.serving.servable import EXAMPLES, TEXT
from official_bert.serving.versions import (
    DESCRIPTION_FILE,
    SAVED_MODEL_FILE,
    check_reads_texts,
    complete_versions,
    description,
    load_version,
)
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.tasks.task_registry import TaskRow, task_of_export

# Input order of exports by earlier versions, which do not record it.
_TEXT_NAMES = ("text", "text_a", "text_b", "question", "context")


def find_version(path: str) -> str | None:
    """Return the folder of an exported version, or of the highest in a folder of versions; None if there is none.

    Raises:
      UserError: there is no such folder.
    """
    if not files.is_folder(path):
        raise UserError(f"there is no folder {path}; give an export or the output folder of a run")
    if files.exists(os.path.join(path, SAVED_MODEL_FILE)):
        return None if _is_encoder(path) else path
    numbers = complete_versions(path)
    if numbers:
        return os.path.join(path, str(numbers[-1]))
    check_reads_texts(path)
    return None


def _is_encoder(folder: str) -> bool:
    """Return True for a SavedModel from TensorFlow Hub; a damaged one is treated, and reported, as an export."""
    if files.exists(os.path.join(folder, DESCRIPTION_FILE)):
        return False
    try:
        return {TEXT, EXAMPLES}.isdisjoint(signatures(os.path.join(folder, SAVED_MODEL_FILE)))
    except UserError:
        return False


def load(folder: str) -> tuple[Any, TaskRow, list[str]]:
    """Load a version of an exported model.

    Args:
      folder: the result of `find_version`.

    Returns:
      The result of `tf.saved_model.load`, the model's task, and the names of its text inputs.

    Raises:
      UserError: the version is damaged, or does not take texts.
    """
    export = load_version(folder)
    predict = export.signatures.get(TEXT)
    if predict:
        said, inputs = description(folder), predict.structured_input_signature[1]
        names = said.get("text_names") or [name for name in _TEXT_NAMES if name in inputs]
        task = task_of_export(said.get("task"), predict.structured_outputs)
        if task and set(names) == set(inputs):
            return export, task, names
    if EXAMPLES in export.signatures and not predict:
        raise UserError(
            f"{folder} reads ids, not texts, since its tokenizer has no TensorFlow operations; give the run's "
            "folder, or call its signatures with the ids of official_bert.load_tokenizer"
        )
    raise UserError(f"{folder} is not a model that was exported with do_export")


def load_export(path: str | os.PathLike[str]) -> Any:
    """Load an exported model with its signatures, as TensorFlow does, and check that its files are intact.

    Args:
      path: a version of the model, or the folder of its versions, of which the highest is loaded.

    Returns:
      The result of `tf.saved_model.load`; call it as `load_export(path).signatures["text"](text=...)`.

    Raises:
      UserError: there is no export that takes texts, or it is damaged.
    """
    version = find_version(os.fspath(path))
    if version is None:
        raise UserError(f"{os.fspath(path)} is not an export; check the path")
    return load(version)[0]
