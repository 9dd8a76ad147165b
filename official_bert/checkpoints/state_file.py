"""The file `checkpoint` of a run's folder, which names its checkpoints; read without TensorFlow, to answer at once.

It is a protocol buffer in text form, written by the reference as well:

    model_checkpoint_path: "model.ckpt-1000"
    all_model_checkpoint_paths: "model.ckpt-500"
    all_model_checkpoint_paths: "model.ckpt-1000"
"""

import os
import re
from typing import NamedTuple

from official_bert.checkpoints.checkpoint_files import BEST_FOLDER, CHECKPOINT_NAME, STATE_FILE
from official_bert.config import model_formats
from official_bert.config.sentence_modules import encoder_folder
from official_bert.families.family_registry import all_families
from official_bert.support import files, text_files
from official_bert.support.errors import UserError, format_names

DATA_SUFFIX = ".data-00000-of-00001"

# The weights of a Hugging Face folder: one file or several with an index, and the same as pickles, which are not read.
HF_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_HF_CONFIG = "config.json"
# Files by which folders are known that hold weights of other kinds.
_OTHER_KINDS = {
    "tf_model.h5": "a Hugging Face model for Keras alone",
    "flax_model.msgpack": "a Hugging Face model for Flax alone",
}

_NOT_DOWNLOADED = (
    "; give the folder of a released model, a run or a Hugging Face model, or a model of the Hugging Face Hub as "
    "hf://owner/name"
)

_PATTERN = re.compile(r"[\[\]*?\\]")
_ENTRY = re.compile(r'\s*(\w+)\s*:\s*(?:"((?:[^"\\]|\\.)*)"|[-+.\w]+)\s*')
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)", re.DOTALL)
_NAMED_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


class CheckpointState(NamedTuple):
    """The contents of the file.

    Attributes:
      latest: prefix of the last checkpoint.
      kept: prefixes of all that are still kept, the oldest first.
    """

    latest: str
    kept: list[str]


def read_state(folder: str) -> CheckpointState | None:
    """Read the file `checkpoint` of a folder; None if it is missing or damaged. Paths in it may be relative to it."""
    path = os.path.join(folder, STATE_FILE)
    if not files.exists(path):
        return None
    files.check_regular(path)
    try:
        entries = [_parse(line) for line in text_files.LineReader(path) if line.strip()]
    except (UserError, ValueError):
        return None
    names = [os.path.join(folder, text) for key, text in entries if key == "model_checkpoint_path"]
    kept = [os.path.join(folder, text) for key, text in entries if key == "all_model_checkpoint_paths"]
    return CheckpointState(names[0], kept) if len(names) == 1 else None


def kept_checkpoints(folder: str) -> list[str]:
    """Return the prefixes of the checkpoints of an existing folder, the last one last; empty if there are none yet.

    Raises:
      UserError: the folder holds checkpoints, but its state file is missing or damaged, or names one that is not there.
    """
    check_path(folder)
    state = read_state(folder)
    if state is None:
        found = [
            match
            for name in files.list_folder(folder)
            if (match := CHECKPOINT_NAME.fullmatch(name.removesuffix(".index")))
        ]
        last = max(found, key=lambda match: int(match[1]), default=None)
        if last and int(last[1]) > 0:  # step 0 has no training: a run was killed while it saved that checkpoint
            last = last[0]
            raise UserError(
                f"{folder} holds {last} but no readable file {STATE_FILE!r}; to resume from it, write the line "
                f'model_checkpoint_path: "{last}" into that file, or use another folder'
            )
        return []
    if not files.exists(state.latest + ".index"):
        raise UserError(
            f"{os.path.join(folder, STATE_FILE)} names {state.latest}, which is not there; "
            "correct the file or use another folder"
        )
    return [path for path in state.kept if path != state.latest and files.exists(path + ".index")] + [state.latest]


def latest_checkpoint(folder: str) -> str | None:
    """Return the prefix of the last checkpoint of a run's folder; None if there is no such folder, or nothing in it.

    Raises:
      UserError: as `kept_checkpoints`.
    """
    kept = kept_checkpoints(folder) if files.is_folder(folder) else []
    return kept[-1] if kept else None


def step_of(prefix: str) -> int | None:
    """Return the step in the name of a run's checkpoint; None if it is named otherwise."""
    match = CHECKPOINT_NAME.fullmatch(os.path.basename(prefix))
    return int(match[1]) if match else None


def check_path(prefix: str) -> None:
    r"""Raise if TensorFlow would take a path for a pattern: it could write the checkpoint but not read it.

    Raises:
      UserError: it holds one of `[ ] * ? \`.
    """
    if _PATTERN.search(prefix):
        raise UserError(
            f"{prefix}: TensorFlow cannot read checkpoints whose path contains [ ] * ? or \\; use another path"
        )


def find_checkpoint(path: str, what: str) -> str:
    """Find the checkpoint that a path means.

    Args:
      path: a prefix, one of a checkpoint's files, or a folder with a state file; or without one, as models were
        released, if it holds one checkpoint alone. A folder in another format, or its file with weights.
      what: what named it, for messages: "init_checkpoint".

    Returns:
      Its prefix; of a model that is a folder, as those of Hugging Face, the folder.

    Raises:
      UserError: there is no such checkpoint.
    """
    files.check_name(path)
    folder = hugging_face_folder(path)
    if folder is not None:
        return folder
    if files.is_folder(path):
        path = _only_or_latest(path, what)
    if model_formats.folder_format(path) is not None:
        return path if files.is_folder(path) else os.path.dirname(path) or "."
    path = path.removesuffix(".index").removesuffix(DATA_SUFFIX).removesuffix(".meta")
    if not files.exists(path + ".index"):
        known = "" if files.exists(os.path.dirname(path) or ".") and ".ckpt" in path else _NOT_DOWNLOADED
        raise UserError(f"{what} {path}: no such checkpoint (there is no {path}.index){known}")
    return path


def hugging_face_folder(path: str) -> str | None:
    """Return the folder of a Hugging Face model, given it or its file with weights; None if a path is neither."""
    is_folder = files.is_folder(path)
    folder = encoder_folder(path) if is_folder else os.path.dirname(path)
    names = HF_WEIGHTS if is_folder else [name for name in HF_WEIGHTS if name == os.path.basename(path)]
    return folder or "." if any(files.exists(os.path.join(folder, name)) for name in names) else None


def model_folders(path: str, *, of_encoder: bool = True) -> list[str]:
    """Return the folders of a model's other files: that of its checkpoint, and the run's if that is `best` in it.

    Args:
      path: as of `find_checkpoint`, which need not be there.
      of_encoder: within a sentence-transformers folder, give that of its encoder.
    """
    folder = path if files.is_folder(path) else os.path.dirname(path)
    if of_encoder:
        folder = encoder_folder(folder)
    is_best = os.path.basename(files.absolute_path(folder)) == BEST_FOLDER
    return [folder, os.path.dirname(files.absolute_path(folder))] if is_best else [folder]


def find_config(path: str) -> str | None:
    """Return the path of the file with the architecture; None if there is none.

    It lies in one of `model_folders`, or is a file of the model itself, whose format says the sizes.
    """
    names = dict.fromkeys((*(family.config_file for family in all_families()), "config.json"))  # the last: Hugging Face
    paths = (os.path.join(folder, name) for folder in model_folders(path) for name in names)
    found = next((path for path in paths if files.exists(path)), None)
    return found or _config_of_format(path)


def _config_of_format(path: str) -> str | None:
    try:
        place = find_checkpoint(path, "")
    except UserError:  # it need not be there
        return None
    row = model_formats.format_of(place)
    config = row and (place + row.config if row is model_formats.OBJECT_CHECKPOINT else os.path.join(place, row.config))
    return config if config and files.exists(config) else None


def _only_or_latest(folder: str, what: str) -> str:
    """Return the prefix that a folder's state file names; without such a file, that of the only checkpoint there."""
    state = read_state(folder)
    if state is not None:
        return state.latest
    entries = files.list_folder(folder)
    names = sorted(name.removesuffix(".index") for name in entries if name.endswith(".index") and name[0] != ".")
    if STATE_FILE not in entries and len(names) == 1:
        return os.path.join(folder, names[0])
    if model_formats.folder_format(folder) is not None:
        return folder
    for name, kind in _OTHER_KINDS.items():
        if name in entries:
            raise UserError(
                f"{what} {folder} holds {name} and is {kind}, which is not read; give the folder of the same model as "
                f"it was first released (bert_model.ckpt.index) or of Hugging Face ({HF_WEIGHTS[0]})"
            )
    if _HF_CONFIG in entries and not names:
        raise UserError(
            f"{what} {folder} has a {_HF_CONFIG}, but neither weights ({HF_WEIGHTS[0]} or {HF_WEIGHTS[2]}) nor a "
            "checkpoint (*.index); fetch it again, all files"
        )
    found = f"; it holds {format_names(names)}" if names else " and without a checkpoint (files of the name *.index)"
    raise UserError(
        f"{what} {folder} is a folder without a readable `checkpoint` file{found}; name a checkpoint, as in "
        "model.ckpt-100"
    )


def _parse(line: str) -> tuple[str, str]:
    """Return a line's key and text; the timestamps that TensorFlow writes have none."""
    match = _ENTRY.fullmatch(line)
    if match is None:
        raise ValueError(line)
    key, text = match.groups()
    if text is None:
        if key.endswith(("_path", "_paths")):
            raise ValueError(line)
        return key, ""
    return key, _ESCAPE.sub(_unescaped, text.encode()).decode()


def _unescaped(match: re.Match) -> bytes:
    code = match[1]
    if code[:1] in b"01234567":
        return bytes([int(code, 8) & 0xFF])
    if code[:1] == b"x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    return _NAMED_ESCAPES.get(code, code)


def quoted(text: str) -> str:
    """Quote a string for the text form of protocol buffers."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
