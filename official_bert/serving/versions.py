"""Versions of an exported model: numbered folders that appear only when complete."""

import contextlib
import importlib
import json
import logging as standard_logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from absl import logging

from official_bert.serving.servable import Servable
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError, folder_of_tensorflow_text, plain_message
from official_bert.support.files import fault_point
from official_bert.tokenization.tokenizer_files import content_of_copy, tokenizer_kinds

SAVED_MODEL_FILE, LITE_FILE, ONNX_FILE = "saved_model.pb", "model.tflite", "model.onnx"
ASSETS_FOLDER = "assets"
DESCRIPTION_FILE, CHECKSUMS_FILE = "official_bert.json", "checksums.json"

# The programs that read the models without a tokenizer.
_READERS_OF_IDS = {LITE_FILE: "LiteRT", ONNX_FILE: "ONNX Runtime"}

# Exceptions of `tf.saved_model.load` for corrupt exports without checksums.
_LOADING_ERRORS = (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, tf.errors.OpError)


def check_export_dir(export_dir: str) -> None:
    """Check the version folder before any long computation; it need not exist yet."""
    files.check_name(export_dir)
    _check_is_no_version(export_dir)
    if files.is_remote(export_dir):
        return
    folder = os.path.abspath(export_dir)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise UserError(f"export_dir={export_dir}: {folder} is a file, not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"export_dir={export_dir}: the folder {folder} is not writable")


def _check_is_no_version(export_dir: str) -> None:
    if any(files.exists(os.path.join(export_dir, name)) for name in (SAVED_MODEL_FILE, *_READERS_OF_IDS)):
        raise UserError(f"export_dir={export_dir} is itself an exported version; give its parent folder")


def versions(export_dir: str) -> list[int]:
    """Return the version numbers in a folder, in ascending order."""
    names = [entry.rstrip("/") for entry in files.list_folder(export_dir)]  # remote folders end in a slash
    return sorted(int(name) for name in names if name.isascii() and name.isdecimal())


def complete_versions(export_dir: str) -> list[int]:
    """Return the numbers of versions with a model, in ascending order."""
    return [
        number
        for number in versions(export_dir)
        if files.exists(os.path.join(export_dir, str(number), SAVED_MODEL_FILE))
    ]


def highest_version(export_dir: str) -> int:
    _check_is_no_version(export_dir)
    if numbers := complete_versions(export_dir):
        return numbers[-1]
    check_reads_texts(export_dir)
    raise UserError(f"export_dir={export_dir} contains no exported version (a folder named by a number, such as 1)")


def check_reads_texts(path: str) -> None:
    """Check that a folder, or its highest version, is not an export that only LiteRT or ONNX Runtime can read."""
    for folder in (path, *(os.path.join(path, str(number)) for number in versions(path)[-1:])):
        for name, reader in _READERS_OF_IDS.items():
            if files.exists(os.path.join(folder, name)):
                raise UserError(
                    f"{folder} is for {reader} and reads ids, not texts; export with export_format=saved_model"
                )


def load_version(folder: str) -> Any:
    check_whole(folder)
    kinds = (kind.vocabulary_class for kind in tokenizer_kinds().values())
    models = [kind.file_name for kind in kinds if kind.flag == "spm_model_file"]
    if any(files.exists(os.path.join(folder, ASSETS_FOLDER, name)) for name in models):
        folder_of_tensorflow_text("a SentencePiece model in a SavedModel")
        importlib.import_module("tensorflow_text")  # registers the tokenization operation
    try:
        return tf.saved_model.load(folder)
    except tf.errors.ResourceExhaustedError:
        raise
    except _LOADING_ERRORS as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UserError(f"{folder} cannot be loaded ({reason}); is it damaged? Export the model again") from error


def write_version(
    export_dir: str,
    servable: Servable,
    *,
    save: Callable[[str], None],
    add: Callable[[str], None] = lambda folder: None,
) -> str:
    check_export_dir(export_dir)
    vocabulary = servable.vocabulary
    files.check_regular(vocabulary.source)
    writing.make_folders(export_dir)
    try:
        with writing.new_folder(os.path.join(export_dir, "version")) as partial:
            save(partial)
            fault_point("describe")
            description = {
                "task": servable.task,
                "max_seq_length": servable.max_seq_length,
                "text_names": servable.text_names,
                **servable.text_settings._asdict(),
                **servable.details,
            }
            _write_json(os.path.join(partial, DESCRIPTION_FILE), description)
            with files.open_file(path_with_parents(partial, ASSETS_FOLDER, vocabulary.file_name), "wb") as sink:
                sink.write(content_of_copy(vocabulary.source))
            _write_checksums(partial)
            fault_point("complete")
            add(partial)
            return _publish(partial, export_dir)
    except tf.errors.OpError as error:
        raise UserError(f"cannot write to export_dir={export_dir}: {plain_message(error)}") from error


def write_model_file(export_dir: str, servable: Servable, name: str, content: bytes) -> str:
    """Write the next version of a model that is one file; see `write_version`."""

    def save(folder: str) -> None:
        with files.open_file(os.path.join(folder, name), "wb") as sink:
            sink.write(content)

    path = write_version(export_dir, servable, save=save)
    logging.info("exported %s, %.1f MB", os.path.join(path, name), len(content) / 1e6)
    return path


def check_whole(folder: str) -> None:
    """Verify the checksums of the files of a version.

    TensorFlow itself does not detect all corruption, and some of it crashes the process. Versions without a checksum
    file, as written by other programs, are not checked.
    """
    path = os.path.join(folder, CHECKSUMS_FILE)
    if not files.exists(path):
        return
    for name, checksum in text_files.read_json(path, "file of checksums").items():
        part = os.path.join(folder, name)
        if not files.exists(part):
            raise UserError(f"{folder} is damaged: {name} is missing; export the model again, or copy it once more")
        if files.sha256(part) != checksum:
            raise UserError(
                f"{folder} is damaged: {name} does not match its checksum in {CHECKSUMS_FILE}; export the model "
                "again, or copy it once more"
            )


def description(folder: str) -> dict[str, Any]:
    """Read a version's description; empty if another program or an earlier version of this package wrote it."""
    path = os.path.join(folder, DESCRIPTION_FILE)
    return text_files.read_json(path, "description of the export") if files.exists(path) else {}


def _write_checksums(folder: str) -> None:
    """Write the SHA-256 of every file in the folder, by relative path."""
    checksums = {os.path.relpath(path, folder): files.sha256(path) for path in files.files_below(folder)}
    _write_json(os.path.join(folder, CHECKSUMS_FILE), checksums)


def _write_json(path: str, content: dict[str, Any]) -> None:
    with files.open_file(path, "w") as sink:
        sink.write(json.dumps(content, indent=2) + "\n")


def path_with_parents(folder: str, *names: str) -> str:
    """Return a path below a folder, creating parent folders."""
    path = os.path.join(folder, *names)
    writing.make_folders(os.path.dirname(path))
    return path


def _publish(partial: str, export_dir: str) -> str:
    """Rename a complete version to the next free number."""
    while True:
        path = os.path.join(export_dir, str(max(versions(export_dir), default=0) + 1))
        try:
            writing.rename_folder(partial, path)
        except FileExistsError:  # another process took this number
            continue
        return path


@contextlib.contextmanager
def logging_errors_only() -> Iterator[None]:
    """Suppress the log lines of TensorFlow and converters while saving a model."""
    standard_logging.disable(standard_logging.WARNING)
    try:
        yield
    finally:
        standard_logging.disable(standard_logging.NOTSET)
