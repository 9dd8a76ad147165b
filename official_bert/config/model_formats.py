"""The files by which model formats are identified, and the table of the formats of TensorFlow 2 with their modules.

The modules need TensorFlow or h5py and are imported when a model is read. Each has these functions: `config_values`
translates the format's config file to our keys; `read_model` lists the weights of a prefix from `locate`; and
`text_settings`, in formats that are folders, reads the casing.
"""

import importlib
import os
from types import ModuleType
from typing import NamedTuple

from official_bert.families.family import is_config
from official_bert.support import files, text_files

_GRAPH_NAME = b"_CHECKPOINTABLE_OBJECT_GRAPH"  # first key of an object checkpoint's index, so uncompressed
PRESET_PIECES_FILE, MERGES_FILE = "vocabulary.json", "merges.txt"  # the tokens of a byte-level BPE in a preset
PRESET_TASK_FILE = "task.json"  # describes the head of a preset
_VOCABULARY_SUFFIXES = (".txt", ".model", ".spm", PRESET_PIECES_FILE)


class Format(NamedTuple):
    """A model format."""

    # the file that identifies a model's folder; for object checkpoints, which can be in any folder, the suffix of
    # their index file
    sign: str
    config: str  # the file with the architecture
    vocabulary: str  # the subfolder with the vocabulary
    module: str  # the module that reads the format


HUGGING_FACE = Format("", "config.json", "", "official_bert.checkpoints.safetensors")  # `HF_WEIGHTS` identify it
OBJECT_CHECKPOINT = Format(".index", ".index", "", "official_bert.checkpoints.model_garden")
SAVED_MODEL = Format("saved_model.pb", "saved_model.pb", "assets", "official_bert.checkpoints.model_garden")
PRESET = Format("model.weights.h5", "config.json", "assets/tokenizer", "official_bert.checkpoints.keras_hub")
FOLDERS = (SAVED_MODEL, PRESET)

# The weights of a Hugging Face folder: one file or several with an index, as safetensors or as pickles.
HF_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
# Files that identify folders with other kinds of weights.
UNSUPPORTED = {
    "tf_model.h5": "a Hugging Face model only for Keras",
    "flax_model.msgpack": "a Hugging Face model only for Flax",
}


def folder_format(path: str) -> Format | None:
    """Return the format of a folder, given its path or that of its `sign` file; None for other folders."""
    if files.is_folder(path):
        return next((row for row in FOLDERS if files.exists(os.path.join(path, row.sign))), None)
    return next((row for row in FOLDERS if row.sign == os.path.basename(path) and files.exists(path)), None)


def is_object_checkpoint(prefix: str) -> bool:
    """Return True if a prefix is that of an object-based checkpoint, as Keras writes."""
    path = prefix + OBJECT_CHECKPOINT.sign
    if files.is_folder(prefix) or not files.exists(path):
        return False
    files.check_regular(path)
    with files.open_file(path, "rb") as source:
        return _GRAPH_NAME in source.read(1 << 16)


def config_format(path: str) -> Format | None:
    """Return the format of a config file; None for our own and Hugging Face's."""
    for row in (OBJECT_CHECKPOINT, SAVED_MODEL):
        if os.path.basename(path).endswith(row.config):
            return row
    return PRESET if files.exists(path) and "class_name" in text_files.read_json(path, "model config") else None


def is_foreign_config(path: str) -> bool:
    """Return True if a config file is not in our own format and has to be converted."""
    return config_format(path) is not None or is_config(text_files.read_json(path, "model config"), path)


def load_module(row: Format) -> ModuleType:
    """Import the module that reads a format."""
    return importlib.import_module(row.module)


def find_vocabulary(folder: str) -> str | None:
    """Return the path of the vocabulary in a folder of these formats; None if there is none."""
    row = folder_format(folder) if files.is_folder(folder) else None
    assets = os.path.join(folder, row.vocabulary) if row else ""
    names = files.list_folder(assets) if row and files.is_folder(assets) else []
    found = [name for name in names if name.endswith(_VOCABULARY_SUFFIXES) and name != MERGES_FILE]
    return os.path.join(assets, found[0]) if len(found) == 1 else None


def model_folder(vocab_file: str) -> str:
    """Return the folder of the model that a vocabulary belongs to: the file's, unless a format has a subfolder."""
    folder = os.path.dirname(vocab_file)
    for row in FOLDERS:
        parent = folder.removesuffix(row.vocabulary)
        if parent != folder and folder_format(parent or os.curdir) is row:
            return os.path.dirname(parent)
    return folder


def vocabulary_folders(folder: str) -> list[str]:
    """Return the place of the vocabulary in a folder of these formats, for messages; empty for other folders."""
    row = folder_format(folder) if files.is_folder(folder) else None
    return [f"one in {row.vocabulary}"] if row else []


def text_settings(folder: str) -> tuple[dict[str, bool], str]:
    """Return the casing settings in a folder and the name of their file; empty for other folders."""
    row = folder_format(folder) if files.is_folder(folder) else None
    return load_module(row).text_settings(folder) if row else ({}, "")
