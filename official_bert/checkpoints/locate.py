"""Finds the weights that a path denotes, with the files beside them, and reads the file `checkpoint` of a run's folder.

Nothing here imports TensorFlow. The file `checkpoint` is a text-format protocol buffer, also written by the reference:

    model_checkpoint_path: "model.ckpt-1000"
    all_model_checkpoint_paths: "model.ckpt-500"
    all_model_checkpoint_paths: "model.ckpt-1000"
"""

import codecs
import io
import os
import re
from typing import NamedTuple

from official_bert.config import model_formats
from official_bert.config.model_formats import HF_WEIGHTS, HUGGING_FACE, OBJECT_CHECKPOINT, SAVED_MODEL, Format
from official_bert.config.sentence_modules import encoder_folder
from official_bert.families.family import all_families
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError, format_names

STATE_FILE = "checkpoint"
BEST_FOLDER = "best"  # subfolder of the output folder for a run's best checkpoint
CHECKPOINT_NAME = re.compile(r"model\.ckpt-(\d+)")
DATA_SUFFIX = ".data-00000-of-00001"
_FILES = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")

_HF_CONFIG = "config.json"
_OF_KERAS = (".keras", ".h5", ".hdf5")  # ends of files
_NOT_DOWNLOADED = (
    "; give the folder of a released model, a run or a Hugging Face model, or a model of the Hugging Face Hub as "
    "hf://owner/name"
)
_PATTERN = re.compile(r"[\[\]*?\\]")
_ENTRY = re.compile(r'\s*(\w+)\s*:\s*(?:"((?:[^"\\]|\\.)*)"|[-+.\w]+)\s*')


class Source(NamedTuple):
    """The weights at a path; `locate` finds them."""

    path: str  # the path
    prefix: str  # the checkpoint, or the folder of a model in another format
    format: Format | None  # that other format; None for a name-based checkpoint

    @property
    def folders(self) -> list[str]:
        return model_folders(self.prefix)

    @property
    def config_file(self) -> str | None:
        """The file with the architecture, if there is one: beside the weights, or the format's own."""
        if (path := _config_beside(self.prefix)) is not None:
            return path
        if self.format is OBJECT_CHECKPOINT:
            return self.prefix + OBJECT_CHECKPOINT.config
        return os.path.join(self.prefix, SAVED_MODEL.config) if self.format is SAVED_MODEL else None


def locate(path: str, what: str) -> Source:
    """Find the weights at a prefix, a file, a run's folder, or the folder of a model in any format."""
    files.check_name(path)
    if (folder := hugging_face_folder(path)) is not None:
        return Source(path, folder, HUGGING_FACE)
    place = _only_or_latest(path, what) if files.is_folder(path) else path
    if (row := model_formats.folder_format(place)) is not None:
        return Source(path, place if files.is_folder(place) else os.path.dirname(place) or ".", row)
    if place.endswith(_OF_KERAS):
        raise UserError(
            f"{what} {place} is not a checkpoint; load it with keras.models.load_model, or with load_weights; "
            "weights of keras-bert and bert-for-tf2 can be converted, see docs/migration.md"
        )
    prefix = _FILES.sub("", place)
    if not files.exists(prefix + ".index"):
        if files.exists(prefix) and not files.is_folder(prefix):
            raise UserError(
                f"{what} {prefix} has no .index file; a checkpoint in TensorFlow's V1 format must be saved anew"
            )
        known = "" if files.exists(os.path.dirname(prefix) or ".") and ".ckpt" in prefix else _NOT_DOWNLOADED
        raise UserError(f"{what} {prefix}: no such checkpoint (there is no {prefix}.index){known}")
    return Source(path, prefix, OBJECT_CHECKPOINT if model_formats.is_object_checkpoint(prefix) else None)


def hugging_face_folder(path: str) -> str | None:
    """Return the folder of a Hugging Face model, given the folder or its weights file; None for other paths."""
    is_folder = files.is_folder(path)
    folder = encoder_folder(path) if is_folder else os.path.dirname(path)
    names = HF_WEIGHTS if is_folder else [name for name in HF_WEIGHTS if name == os.path.basename(path)]
    return folder or "." if any(files.exists(os.path.join(folder, name)) for name in names) else None


def model_folders(path: str, *, of_encoder: bool = True) -> list[str]:
    """Return the folders with a model's other files: its checkpoint's folder and, for `best`, the run's folder."""
    folder = path if files.is_folder(path) else os.path.dirname(path)
    if of_encoder:
        folder = encoder_folder(folder)
    is_best = os.path.basename(files.absolute_path(folder)) == BEST_FOLDER
    return [folder, os.path.dirname(files.absolute_path(folder))] if is_best else [folder]


def find_config(path: str) -> str | None:
    """Return the file with the architecture of the model at a path, which need not have weights; None without one."""
    try:
        return locate(path, "").config_file
    except UserError:
        return _config_beside(path)


def _config_beside(path: str) -> str | None:
    names = dict.fromkeys((*(family.config_file for family in all_families().values()), _HF_CONFIG))
    paths = (os.path.join(folder, name) for folder in model_folders(path) for name in names)
    return next(filter(files.exists, paths), None)


def _only_or_latest(folder: str, what: str) -> str:
    """Return the latest prefix in a folder's state file; without that file, the only checkpoint in the folder."""
    state = read_state(folder)
    if state is not None:
        return state.latest
    entries = files.list_folder(folder)
    names = sorted(name.removesuffix(".index") for name in entries if name.endswith(".index") and name[0] != ".")
    if STATE_FILE not in entries and len(names) == 1:
        return os.path.join(folder, names[0])
    if model_formats.folder_format(folder) is not None:
        return folder
    if instead := model_formats.described(folder):
        raise UserError(f"{what} {folder} {instead}")
    if not names and (of_keras := sorted(name for name in entries if name.endswith(_OF_KERAS))):
        return os.path.join(folder, of_keras[0])  # refused by name
    if _HF_CONFIG in entries and not names:
        raise UserError(
            f"{what} {folder} has a {_HF_CONFIG}, but neither weights ({HF_WEIGHTS[0]} or {HF_WEIGHTS[2]}) nor a "
            "checkpoint (*.index); download all its files again"
        )
    found = f"; it contains {format_names(names)}" if names else " and without a checkpoint (files *.index)"
    raise UserError(
        f"{what} {folder} is a folder without a readable `checkpoint` file{found}; give a checkpoint, such as "
        "model.ckpt-100"
    )


def delete_checkpoints(folder: str) -> None:
    """Delete all checkpoints of a run, including its best one; linked folders and other files are kept."""
    for entry in files.list_folder(folder):
        path = os.path.join(folder, entry)
        if files.is_folder(path):
            if not os.path.islink(path):
                delete_checkpoints(path)
        elif entry == STATE_FILE or re.match(rf"{CHECKPOINT_NAME.pattern}\.", entry):
            writing.remove(path)


class CheckpointState(NamedTuple):
    latest: str  # prefix of the last checkpoint
    kept: list[str]  # prefixes of all kept checkpoints, oldest first


def read_state(folder: str) -> CheckpointState | None:
    """Read a folder's file `checkpoint`; None if missing or damaged. Relative paths in it are resolved."""
    path = os.path.join(folder, STATE_FILE)
    if not files.exists(path):
        return None
    files.check_regular(path)
    try:
        content = text_files.read_limited(path, "list of checkpoints", text_files.MAX_SETTINGS_BYTES)
        entries = [_parse(line) for line in text_files.LineReader(path, io.BytesIO(content)) if line.strip()]
    except (UserError, ValueError):
        return None
    names = [os.path.join(folder, text) for key, text in entries if key == "model_checkpoint_path"]
    kept = [os.path.join(folder, text) for key, text in entries if key == "all_model_checkpoint_paths"]
    return CheckpointState(names[0], kept) if len(names) == 1 else None


def kept_checkpoints(folder: str) -> list[str]:
    """Return the prefixes of the checkpoints of an existing folder, the latest last; empty if there are none."""
    check_path(folder)
    state = read_state(folder)
    if state is None:
        found = [
            match
            for name in files.list_folder(folder)
            if (match := CHECKPOINT_NAME.fullmatch(name.removesuffix(".index")))
        ]
        last = max(found, key=lambda match: int(match[1]), default=None)
        if last and int(last[1]) > 0:  # not at step 0, when a run was killed in its first save
            last = last[0]
            raise UserError(
                f"{folder} contains {last} but no readable file {STATE_FILE!r}; to resume from it, write the line "
                f'model_checkpoint_path: "{last}" into that file, or use another folder'
            )
        return []
    if not files.exists(state.latest + ".index"):
        raise UserError(
            f"{os.path.join(folder, STATE_FILE)} lists {state.latest}, which is missing; "
            "correct the file or use another folder"
        )
    return [path for path in state.kept if path != state.latest and files.exists(path + ".index")] + [state.latest]


def latest_checkpoint(folder: str) -> str | None:
    """Return the prefix of the last checkpoint in a run's folder; None if there is none."""
    kept = kept_checkpoints(folder) if files.is_folder(folder) else []
    return kept[-1] if kept else None


def step_of(prefix: str) -> int | None:
    """Return the step in the name of a run's checkpoint; None if it has another kind of name."""
    match = CHECKPOINT_NAME.fullmatch(os.path.basename(prefix))
    return int(match[1]) if match else None


def check_path(prefix: str) -> None:
    r"""Raise if TensorFlow would treat a path as a glob: it could write the checkpoint but not read it."""
    if _PATTERN.search(prefix):
        raise UserError(
            f"{prefix}: TensorFlow cannot read checkpoints whose path contains [ ] * ? or \\; use another path"
        )


def _parse(line: str) -> tuple[str, str]:
    """Return a line's key and text; timestamps written by TensorFlow have an empty text."""
    match = _ENTRY.fullmatch(line)
    if match is None or (match[2] is None and match[1].endswith(("_path", "_paths"))):
        raise ValueError(line)
    return match[1], codecs.escape_decode((match[2] or "").encode())[0].decode()


def quoted(text: str) -> str:
    """Quote a string for the text format of protocol buffers."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
