"""The files of a model's folder by which its format is known, and the modules of a sentence-transformers folder.

The formats of TensorFlow 2 are read by modules that need TensorFlow or h5py and are imported when a model is read. Each
has these functions: `config_values` translates the format's config file to our keys; `read_model` lists the weights of
a prefix from `locate`; and `text_settings`, in formats that are folders, reads the casing.
"""

import importlib
import os
from collections.abc import Mapping
from types import ModuleType
from typing import NamedTuple, TypedDict

from official_bert.families.family import is_config
from official_bert.support import files, text_files
from official_bert.support.errors import UserError, import_tensorflow

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

# The weights of a Hugging Face folder, in order of preference: one file, or several with an index.
HF_WEIGHTS = (
    *("model.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json"),
    *("tf_model.h5", "tf_model.h5.index.json"),
)
# Files that identify folders with other kinds of weights.
UNSUPPORTED = {
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
    if row in (OBJECT_CHECKPOINT, SAVED_MODEL):
        import_tensorflow(f"a model with {row.sign}", ", or use model.safetensors")
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


MODEL = "model"  # value of `pooling`: use the modules of the folder
MODULES_FILE = "modules.json"
# The poolings of sentence-transformers and their older keys, in the order in which these are concatenated.
OLDER_KEYS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
DENSE, LAYER_NORM, NORMALIZE = "Dense", "LayerNorm", "Normalize"  # modules after the pooling
_ENCODERS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta")
_NO_LENGTH = 10**6  # `model_max_length` is astronomical in tokenizers without a limit
_MAX_MODULES = 32
SPLADE = "splade"
SPLADE_KEYS = ("pooling_strategy", "activation_function")
# Our names of a SpladePooling, with the values of its keys; the first ones are the defaults.
SPLADE_POOLINGS = {
    SPLADE: ("max", "relu"),
    "splade_sum": ("sum", "relu"),
    "splade_log1p": ("max", "log1p_relu"),
    "splade_sum_log1p": ("sum", "log1p_relu"),
}
_TRANSFORMERS = ("Transformer", "MLMTransformer")


class _Module(TypedDict):
    type: str
    path: str


_Pooling = TypedDict(
    "_Pooling",
    {"pooling_mode": str | list[str], "include_prompt": bool, **dict.fromkeys(OLDER_KEYS.values(), bool)},
    total=False,
)


class _Length(TypedDict, total=False):
    model_max_length: float | None


class _Prompts(TypedDict, total=False):
    default_prompt_name: str | None
    prompts: dict[str, str] | None


class EncoderSettings(TypedDict, total=False):
    """The text settings of sentence-transformers."""

    max_seq_length: float | None
    do_lower_case: bool | None


class SentenceModules(NamedTuple):
    """The computation of a text's vector from the encoder's outputs."""

    poolings: tuple[str, ...]  # some of `OLDER_KEYS`, of the last layer; several are concatenated in this order
    after: tuple[tuple[str, str], ...]  # each further module: `DENSE`, `LAYER_NORM` or `NORMALIZE`, and its folder


def has_modules(folder: str) -> bool:
    """Return True if a folder is a sentence-transformers model."""
    return files.exists(os.path.join(folder, MODULES_FILE))


def is_sentence_encoder(folder: str) -> bool:
    """Return True if a model's modules begin with an encoder and a pooling, whatever class its `config.json` names."""
    return has_modules(folder) and [kind for kind, _ in _modules(folder)[:2]] == ["Transformer", "Pooling"]


def encoder_folder(folder: str) -> str:
    """Return the folder of the encoder and tokenizer; for most models it is the model's folder itself."""
    named = (path for kind, path in _modules(folder) if kind in _TRANSFORMERS) if has_modules(folder) else ()
    return next(iter(named), folder)


def read_modules(folder: str) -> SentenceModules:
    """Read the modules after the encoder."""
    (first, *_), *others = _modules(folder)
    if first in _TRANSFORMERS and [kind for kind, _ in others] == ["SpladePooling"]:
        return SentenceModules((_splade(others[0][1]),), ())
    if first != "Transformer" or not others or others[0][0] != "Pooling":
        raise _unsupported(folder, "does not begin with a Transformer and a Pooling")
    for kind, _ in others[1:]:
        if kind not in (DENSE, LAYER_NORM, NORMALIZE):
            raise _unsupported(folder, f"has a {kind:.80}")
    return SentenceModules(_poolings(others[0][1]), tuple(others[1:]))


def longest_text(folder: str) -> int | None:
    """Return the number of wordpieces to which the model truncates texts; None if its files do not specify it."""
    folder = encoder_folder(folder)
    tokenizer_file = os.path.join(folder, "tokenizer_config.json")
    length = read_encoder_settings(folder).get("max_seq_length")
    if length is None and files.exists(tokenizer_file):
        length = text_files.read_json_as(tokenizer_file, "tokenizer config", _Length).get("model_max_length")
    if length is not None and length < 1:
        raise UserError(f"{folder}: the maximum number of wordpieces is {length!r:.80}; it must be a positive number")
    return int(length) if length is not None and length <= _NO_LENGTH else None


class Prompts(NamedTuple):
    """Prefixes of texts."""

    by_name: Mapping[str, str]  # prefixes that a user may choose
    default: str  # prefix of every text without a choice; "" for none
    are_pooled: bool = True  # whether pooling includes the wordpieces of the prefix


NO_PROMPTS = Prompts({}, "")


def read_prompts(folder: str) -> Prompts:
    file = os.path.join(folder, "config_sentence_transformers.json")
    kind = "settings of sentence-transformers"
    settings = text_files.read_json_as(file, kind, _Prompts) if files.exists(file) else {}
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts") or {}
    default = "" if name is None else prompts.get(name)
    if default is None:
        raise UserError(f"{file}: the default_prompt_name is {name!r:.80}, which is not one of its prompts")
    pooling = next((path for kind, path in _modules(folder) if kind.endswith("Pooling")), None)
    if pooling is None:
        raise _unsupported(folder, "has no Pooling")
    return Prompts(prompts, default, _read_pooling(pooling).get("include_prompt", True))


def read_encoder_settings(folder: str) -> "EncoderSettings":
    """Read `sentence_bert_config.json`, the text settings of sentence-transformers; empty if there is no such file."""
    paths = (os.path.join(folder, f"sentence_{name}_config.json") for name in _ENCODERS)
    found = next(filter(files.exists, paths), None)
    kind = "settings of sentence-transformers"
    return {} if found is None else text_files.read_json_as(found, kind, EncoderSettings)


def _modules(folder: str) -> list[tuple[str, str]]:
    """Return the type and folder of each module, in order."""
    file = os.path.join(folder, MODULES_FILE)
    modules = text_files.read_json_list(file, "list of modules")
    if not 0 < len(modules) <= _MAX_MODULES:
        raise UserError(f"{file} names {len(modules):,} modules; it must name 1 to {_MAX_MODULES}")
    text_files.check_json(modules, list[_Module], file)
    found = []
    for module in modules:
        kind, path = module["type"], module["path"]
        if os.path.isabs(path) or ".." in path.replace("\\", "/").split("/") or not (path + "x").isprintable():
            raise UserError(f"{file} names the path {path!r:.80}; only folders within this one are read")
        found.append((kind.rpartition(".")[2], os.path.join(folder, path) if path.strip("./") else folder))
    return found


def _read_pooling(folder: str) -> "_Pooling":
    return text_files.read_json_as(os.path.join(folder, "config.json"), "settings of the pooling", _Pooling)


def _poolings(folder: str) -> tuple[str, ...]:
    values = _read_pooling(folder)
    chosen = values.get("pooling_mode", [name for name, key in OLDER_KEYS.items() if values.get(key)] or "mean")
    chosen = [chosen] if isinstance(chosen, str) else chosen
    if not 0 < len(chosen) <= len(OLDER_KEYS):
        raise UserError(f"{folder}: the pooling is {chosen!r:.80}; it must be 1 to {len(OLDER_KEYS)} names")
    for name in chosen:
        if name not in OLDER_KEYS:
            raise _unsupported(folder, f"has the pooling {name!r:.80}")
    return tuple(chosen)


def _splade(folder: str) -> str:
    file = os.path.join(folder, "config.json")
    values = text_files.read_json(file, "settings of the pooling")
    chosen = tuple(map(values.get, SPLADE_KEYS, SPLADE_POOLINGS[SPLADE]))
    name = next((name for name, row in SPLADE_POOLINGS.items() if row == chosen), None)
    if name is None:
        raise _unsupported(folder, f"pools with {chosen!r:.80}")
    return name


def _unsupported(source: str, what: str) -> UserError:
    return UserError(f"{source} {what}, which is not supported; use another pooling, such as pooling=mean")
