"""The table of formats of TensorFlow 2 in which models are kept, one row each: how a model is known, and its module.

The modules need TensorFlow or h5py, and are imported when a model is read. Each has these functions: `config_values`
gives the keys of our config file, given the file that says them; `read_model` the weights, given what
`find_checkpoint` found; and `text_settings`, if the format is a folder, what that says of casing.
"""

import importlib
import os
from types import ModuleType
from typing import NamedTuple

from official_bert.families.hugging_face import is_config
from official_bert.support import files, text_files

_GRAPH_NAME = b"_CHECKPOINTABLE_OBJECT_GRAPH"  # the first name in the index of an object checkpoint, so unabridged
_VOCABULARY_SUFFIXES = (".txt", ".model", ".spm")


class Format(NamedTuple):
    """One format.

    Attributes:
      sign: the file by which a model's folder is known; of object checkpoints, which lie in any folder, the ending of
        their index.
      config: the file that says what the architecture is.
      vocabulary: the folder in it that has the vocabulary.
      module: what reads it.
    """

    sign: str
    config: str
    vocabulary: str
    module: str


OBJECT_CHECKPOINT = Format(".index", ".index", "", "official_bert.checkpoints.model_garden")
FOLDERS = (
    Format("saved_model.pb", "saved_model.pb", "assets", "official_bert.checkpoints.hub_saved_model"),
    Format("model.weights.h5", "config.json", "assets/tokenizer", "official_bert.checkpoints.keras_hub"),
)


def folder_format(path: str) -> Format | None:
    """Return the format of a folder, given it or the file that is its sign; None if it has none of these."""
    if files.is_folder(path):
        return next((row for row in FOLDERS if files.exists(os.path.join(path, row.sign))), None)
    return next((row for row in FOLDERS if row.sign == os.path.basename(path) and files.exists(path)), None)


def format_of(place: str) -> Format | None:
    """Return the format of what `find_checkpoint` found; None of a checkpoint of names and of a Hugging Face folder."""
    return OBJECT_CHECKPOINT if is_object_checkpoint(place) else folder_format(place)


def is_object_checkpoint(prefix: str) -> bool:
    """Tell whether there is a checkpoint of this prefix that names its arrays after objects of Keras."""
    path = prefix + OBJECT_CHECKPOINT.sign
    if files.is_folder(prefix) or not files.exists(path):
        return False
    files.check_regular(path)
    with files.open_file(path, "rb") as source:
        return _GRAPH_NAME in source.read(1 << 16)


def config_format(path: str) -> Format | None:
    """Return the format whose config file this is; None for our own files and those of Hugging Face."""
    name = os.path.basename(path)
    if name.endswith(OBJECT_CHECKPOINT.config) or name == FOLDERS[0].config:
        return OBJECT_CHECKPOINT if name.endswith(OBJECT_CHECKPOINT.config) else FOLDERS[0]
    is_keras = files.exists(path) and "class_name" in text_files.read_json(path, "model config")
    return FOLDERS[1] if is_keras else None


def is_foreign_config(path: str) -> bool:
    """Tell whether a config file is of one of these formats or of Hugging Face, so that ours must be written anew."""
    return config_format(path) is not None or is_config(text_files.read_json(path, "model config"), path)


def load_module(row: Format) -> ModuleType:
    """Import what reads a format."""
    return importlib.import_module(row.module)


def find_vocabulary(folder: str) -> str | None:
    """Return the path of the vocabulary that a folder of these formats has with it; None if there is none."""
    row = folder_format(folder) if files.is_folder(folder) else None
    assets = os.path.join(folder, row.vocabulary) if row else ""
    names = files.list_folder(assets) if row and files.is_folder(assets) else []
    found = sorted(name for name in names if name.endswith(_VOCABULARY_SUFFIXES))
    return os.path.join(assets, found[0]) if len(found) == 1 else None


def vocabulary_folders(folder: str) -> list[str]:
    """Return where a folder of these formats has its vocabulary, for messages; nothing of other folders."""
    row = folder_format(folder) if files.is_folder(folder) else None
    return [f"one in {row.vocabulary}"] if row else []


def text_settings(folder: str) -> tuple[dict[str, bool], str]:
    """Return what a folder says of the casing, and the file that says it; nothing of other folders.

    Raises:
      UserError: it is damaged.
    """
    row = folder_format(folder) if files.is_folder(folder) else None
    return load_module(row).text_settings(folder) if row else ({}, "")
