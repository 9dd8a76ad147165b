"""KerasHub presets of all families but CamemBERT, including classifier and masked-LM heads.

A preset is a folder with `config.json`, `model.weights.h5` and the tokenizer; the head of a task is in `task.json` and
`task.weights.h5`. Names in weight files are the class names of layers, numbered if a class occurs several times.
"""

import collections
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
from absl import logging

from official_bert.checkpoints.bundle import StoredArray, Weights, find_layer_variable, to_ours
from official_bert.checkpoints.hdf5 import list_datasets
from official_bert.config.bert_config import BertConfig
from official_bert.config.model_formats import PRESET_TASK_FILE
from official_bert.families.family import FAMILY_KEY, family_of_keys
from official_bert.support import files, text_files
from official_bert.support.errors import UserError, format_arrays

_CONFIG_FILE, _WEIGHTS_FILE = "config.json", "model.weights.h5"
_TASK_WEIGHTS_FILE = "task.weights.h5"
_TOKENIZER_FILE = "tokenizer.json"
_KEYS = {
    "vocabulary_size": "vocab_size",
    "vocab_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
    "embedding_dim": "embedding_size",
    "num_groups": "num_hidden_groups",
    "num_inner_repetitions": "inner_group_num",
}
_WORDS, _POSITIONS, _SEGMENTS = (f"bert/embeddings/{name}_embeddings" for name in ("word", "position", "token_type"))
_NORM = "bert/embeddings/LayerNorm"
_PROJECTION, _POOLER = "bert/encoder/embedding_hidden_mapping_in", "bert/pooler/dense"
_LEFT_OUT = ""

# Layers outside of the transformer's, in the order of their numbers: class and our name.
_Layers = Sequence[tuple[str, str]]
_TABLES: _Layers = (
    ("reversible_embedding", _WORDS),
    ("position_embedding", _POSITIONS),
    ("embedding", _SEGMENTS),
    ("layer_normalization", _NORM),
)
_TWO_TABLES: _Layers = (
    ("token_and_position_embedding/token_embedding", _WORDS),
    ("token_and_position_embedding/position_embedding", _POSITIONS),
    ("layer_normalization", _NORM),
)


class _Backbone(NamedTuple):
    values: Mapping[str, Any]  # config keys with fixed values
    layers: _Layers  # layers other than the transformer's
    zeros: tuple[str, ...] = ()  # tables that are zero in the released model, and missing here


def _roberta(family: str) -> _Backbone:
    values = {FAMILY_KEY: family, "hidden_act": "gelu_erf", "layer_norm_eps": 1e-5, "type_vocab_size": 1}
    return _Backbone(values, _TWO_TABLES, (_SEGMENTS,))


_BACKBONES = {
    "BertBackbone": _Backbone({"hidden_act": "gelu"}, (*_TABLES, ("dense", _POOLER))),
    "AlbertBackbone": _Backbone(
        {FAMILY_KEY: "albert", "hidden_act": "gelu"}, (*_TABLES, ("dense", _PROJECTION), ("dense", _POOLER))
    ),
    "DistilBertBackbone": _Backbone(
        {FAMILY_KEY: "distilbert", "hidden_act": "gelu_erf", "type_vocab_size": 0}, _TWO_TABLES
    ),
    # Released ELECTRAs have no pooler, and ours ends in another activation.
    "ElectraBackbone": _Backbone(
        {FAMILY_KEY: "electra", "hidden_act": "gelu"}, (*_TABLES, ("dense", _PROJECTION), ("dense", _LEFT_OUT))
    ),
    "RobertaBackbone": _roberta("roberta"),
    "XLMRobertaBackbone": _roberta("xlm-roberta"),
}
_MASKED_LM: _Layers = (
    ("masked_lm_head/_intermediate_dense", "cls/predictions/transform/dense"),
    ("masked_lm_head/_intermediate_layer_norm", "cls/predictions/transform/LayerNorm"),
    ("masked_lm_head", "cls/predictions/output_bias"),
)
_CLASSIFIER: _Layers = (("dense", "output"),)
_TASKS = {
    "BertTextClassifier": _CLASSIFIER,
    "AlbertTextClassifier": _CLASSIFIER,
    **dict.fromkeys(
        ("DistilBertTextClassifier", "RobertaTextClassifier", "XLMRobertaTextClassifier"),
        (("dense", _POOLER), *_CLASSIFIER),
    ),
    **{name.replace("Backbone", "MaskedLM"): _MASKED_LM for name in _BACKBONES},
}
_VARIABLE = re.compile(r"layers/(.+)/vars/([01])")
_LAYER = re.compile(r"layers/transformer_encoder(?:_(\d+))?/_([\w/]+)/vars/([01])")
_PARTS = {
    "self_attention_layer/query_dense": "query",
    "self_attention_layer/key_dense": "key",
    "self_attention_layer/value_dense": "value",
    "self_attention_layer/output_dense": "attention_output",
    "self_attention_layer_norm": "attention_norm",
    "feedforward_intermediate_dense": "intermediate",
    "feedforward_output_dense": "output",
    "feedforward_layer_norm": "output_norm",
}


class _Part(TypedDict):
    class_name: str


class _Preset(_Part):
    config: dict[str, Any]


_Sizes = TypedDict("_Sizes", dict.fromkeys(_KEYS, int) | {"dropout": float}, total=False)


def config_values(path: str) -> dict[str, Any]:
    preset = text_files.read_json_as(path, "model config", _Preset)
    name, theirs = preset["class_name"], preset["config"]
    if name not in _BACKBONES:
        raise UserError(
            f"it describes a Keras {name!s:.40}; of KerasHub's presets, only {', '.join(_BACKBONES)} can be read: "
            "give the original release of the model (bert_model.ckpt) or its Hugging Face folder"
        )
    text_files.check_json(theirs, _Sizes, path, "config")
    values = {ours: theirs[key] for key, ours in _KEYS.items() if key in theirs} | _BACKBONES[name].values
    if "max_position_embeddings" in values:
        values["max_position_embeddings"] += family_of_keys(values).config_class.first_position
    if "dropout" in theirs:
        values |= dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), theirs["dropout"])
    return values


def read_model(folder: str, config: BertConfig) -> Weights:
    """List the weights of a preset under our names."""
    config_file = os.path.join(folder, _CONFIG_FILE)
    config_values(config_file)  # raises for another class
    backbone = _BACKBONES[_class_of(config_file)]
    arrays = _read_weights(os.path.join(folder, _WEIGHTS_FILE), backbone.layers, config)
    for name in backbone.zeros:
        arrays[name] = np.zeros([config.type_vocab_size, config.embedding_width], np.float32)
    if _POSITIONS in arrays:  # the first rows belong to no text and are zero in released models, too
        arrays[_POSITIONS] = arrays[_POSITIONS].changed(
            lambda table: np.pad(table, ((config.first_position, 0), (0, 0)))
        )
    head = os.path.join(folder, _TASK_WEIGHTS_FILE)
    if files.exists(head):
        task_file = os.path.join(folder, PRESET_TASK_FILE)
        task = _class_of(task_file)
        if task not in _TASKS:
            raise UserError(
                f"{task_file} describes a {task!s:.40}, whose head is not supported; to read only the encoder, remove "
                f"{_TASK_WEIGHTS_FILE} from a copy of the folder"
            )
        arrays |= _read_weights(head, _TASKS[task], config)
    return Weights(arrays)


def text_settings(folder: str) -> tuple[dict[str, bool], str]:
    """Return the casing recorded in a preset's tokenizer, and the file that records it."""
    path = os.path.join(folder, _TOKENIZER_FILE)
    config = text_files.read_json(path, "tokenizer").get("config") if files.exists(path) else None
    if not (isinstance(config, dict) and isinstance(lower := config.get("lowercase"), bool)):
        return {}, ""
    strips = config.get("strip_accents") is True
    return {"do_lower_case": lower, "strip_accents" if lower else "strip_accents_only": strips}, _TOKENIZER_FILE


def _class_of(path: str) -> str | None:
    return text_files.read_json_as(path, "part of a preset", _Part)["class_name"] if files.exists(path) else None


def _read_weights(path: str, layers: _Layers, config: BertConfig) -> dict[str, StoredArray]:
    """List the arrays of one file under our names."""
    arrays: dict[str, StoredArray] = {}
    names, unknown = _numbered(layers, config), []
    with files.open_file(path, "rb") as source:
        datasets = list_datasets(path, source, files.size(path))
    for place, dataset in datasets.items():
        variable = find_layer_variable(place, _LAYER, _PARTS) or _our_name(place, names)
        if variable == _LEFT_OUT:
            logging.info("%s: left out %s, the pooler, which the released model does not have", path, place)
            continue
        found = variable and to_ours(variable, StoredArray(path, place, *dataset), config)
        if found is None:
            unknown.append(place)
            continue
        name, array = found
        if name in arrays:
            raise UserError(f"{path} has {name} twice: {arrays[name].name} and {place}; is it a mixture of two models?")
        arrays[name] = array
    if unknown:
        raise UserError(
            f"{path} has {format_arrays(unknown)}, which {config.family.title} does not have; is it a model of another "
            "class?"
        )
    return arrays


def _numbered(layers: _Layers, config: BertConfig) -> dict[str, str]:
    """Return our name of each layer, keyed by its name in the file; embeddings of full width may be unprojected."""
    numbers, names = collections.Counter(), {}
    for kind, name in layers:
        if name != _PROJECTION or config.embedding_width != config.hidden_size:
            names[f"{kind}_{numbers[kind]}" if numbers[kind] else kind] = name
            numbers[kind] += 1
    return names


def _our_name(place: str, names: Mapping[str, str]) -> str | None:
    """Return our name of a variable outside of the transformer; None if the model has no such variable."""
    variable = _VARIABLE.fullmatch(place)
    name = names.get(variable[1]) if variable else None
    if not name:
        return name
    index = int(variable[2])
    if name == "output":
        return f"{name}_{('weights', 'bias')[index]}"
    if name.endswith("LayerNorm"):
        return f"{name}/{('gamma', 'beta')[index]}"
    return f"{name}/{('kernel', 'bias')[index]}" if "dense" in name or name == _PROJECTION else name
