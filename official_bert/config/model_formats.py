"""The files of a model's folder by which its format is known.

The formats of TensorFlow 2 are read by modules that need TensorFlow or h5py and are imported when a model is read. Each
has these functions: `config_values` translates the format's config file to our keys; `read_model` lists the weights of
a prefix from `locate`; and `text_settings`, in formats that are folders, reads the casing.
"""

import os
import re
from collections.abc import Callable, Collection
from types import ModuleType
from typing import NamedTuple

from official_bert import lazy
from official_bert.families.family import is_config
from official_bert.support import files, text_files
from official_bert.support.errors import format_names, import_tensorflow

_GRAPH_NAME = b"_CHECKPOINTABLE_OBJECT_GRAPH"  # first key of an object checkpoint's index, so uncompressed
PRESET_PIECES_FILE, MERGES_FILE = "vocabulary.json", "merges.txt"  # the tokens of a byte-level BPE in a preset
PRESET_TASK_FILE = "task.json"  # describes the head of a preset
_VOCABULARY_SUFFIXES = (".txt", ".model", ".spm", PRESET_PIECES_FILE)


class Format(NamedTuple):
    # the file that identifies a model's folder; for object checkpoints, which can be in any folder, the suffix of
    # their index file
    sign: str
    config: str  # the file with the architecture
    vocabulary: str  # the subfolder with the vocabulary
    module: Callable[[], ModuleType]  # what reads the format


HUGGING_FACE = Format("", "config.json", "", lambda: lazy.safetensors)  # `HF_WEIGHTS` identify it
OBJECT_CHECKPOINT = Format(".index", ".index", "", lambda: lazy.model_garden)
SAVED_MODEL = Format("saved_model.pb", "saved_model.pb", "assets", lambda: lazy.model_garden)
PRESET = Format("model.weights.h5", "config.json", "assets/tokenizer", lambda: lazy.keras_hub)
FOLDERS = (SAVED_MODEL, PRESET)

# The weights of a Hugging Face folder, in order of preference: one file, or several with an index.
HF_WEIGHTS = (
    *("model.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json"),
    *("tf_model.h5", "tf_model.h5.index.json"),
)
ADAPTER_CONFIG_FILE = "adapter_config.json"  # of PEFT
_FLAX_FILE = "flax_model.msgpack"
_DEPTH, _MOST_FOLDERS = 3, 100  # of a search for models


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
        return _GRAPH_NAME in source.read(2 << 20)  # the largest index that is read


def config_format(path: str) -> Format | None:
    """Return the format of a config file; None for our own and Hugging Face's."""
    for row in (OBJECT_CHECKPOINT, SAVED_MODEL):
        if os.path.basename(path).endswith(row.config):
            return row
    return PRESET if files.exists(path) and "class_name" in text_files.read_json(path, "model config") else None


def is_foreign_config(path: str) -> bool:
    """Return True if a config file is not in our own format and has to be converted."""
    return config_format(path) is not None or is_config(text_files.read_json(path, "model config"), path)


def described(folder: str) -> str:
    """Return what a folder is instead of a model, with advice, for a message; "" for models and other folders.

    >>> described("out/trainer")
    "has no model itself, but in 'checkpoint-500', 'checkpoint-1000'; give such a subfolder"
    """
    path = os.path.join(folder, ADAPTER_CONFIG_FILE)
    if not files.is_folder(folder) or _has_weights(folder, files.list_folder(folder)):
        return ""
    if files.exists(path):
        base = text_files.read_json(path, "adapter config").get("base_model_name_or_path")
        return (
            f"is a LoRA adapter of {base or 'another model'!s:.80}; merge it into that model with official-bert "
            "convert_hf_checkpoint (adapter_dir, init_checkpoint and output_dir), and give the result"
        )
    if files.exists(os.path.join(folder, _FLAX_FILE)):
        return (
            f"contains {_FLAX_FILE} and is a Hugging Face model only for Flax, which cannot be read; give the folder "
            f"of the model's original release (bert_model.ckpt.index) or from Hugging Face ({HF_WEIGHTS[0]})"
        )
    found = models_inside(folder)
    return f"has no model itself, but in {format_names(found)}; give such a subfolder" if found else ""


def models_inside(folder: str) -> list[str]:
    """Return the subfolders that contain models, relative to the folder; those with numbers in their order."""
    found, pending, num_seen = [], [("", 0)], 0
    while pending and num_seen < _MOST_FOLDERS:
        (inner, depth), num_seen = pending.pop(0), num_seen + 1
        path = os.path.join(folder, inner)
        names = files.list_folder(path)
        if depth and _has_weights(path, names):
            found.append(inner)
        elif depth < _DEPTH:
            inside = (os.path.join(inner, name) for name in names)
            pending += [(name, depth + 1) for name in inside if files.is_folder(os.path.join(folder, name))]
    return sorted(found, key=lambda name: [(len(part), part) for part in re.split(r"(?<=\D)(?=\d)", name)])


def _has_weights(folder: str, names: Collection[str]) -> bool:
    return any(name in HF_WEIGHTS or name.endswith(".index") for name in names) or folder_format(folder) is not None


def load_module(row: Format) -> ModuleType:
    if row in (OBJECT_CHECKPOINT, SAVED_MODEL):
        import_tensorflow(f"a model with {row.sign}", ", or use model.safetensors")
    return row.module()


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
