"""KerasHub presets of BERT, ALBERT and DistilBERT, including classifier and masked-LM heads.

A preset is a folder with `config.json`, `model.weights.h5` and the tokenizer; the head of a task is in `task.json` and
`task.weights.h5`. Names in weight files are the class names of layers, numbered if a class occurs several times.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import h5py
import numpy as np
from absl import logging

from official_bert.checkpoints.keras_layers import layer_variables, without_heads
from official_bert.config.bert_config import BertConfig
from official_bert.families.family_registry import FAMILY_KEY
from official_bert.support import files, text_files
from official_bert.support.errors import UserError

_CONFIG_FILE, _WEIGHTS_FILE = "config.json", "model.weights.h5"
_TASK_FILE, _TASK_WEIGHTS_FILE = "task.json", "task.weights.h5"
_TOKENIZER_FILE = "tokenizer.json"
_KEYS = {
    "vocabulary_size": "vocab_size",
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
_EMBEDDINGS, _POOLER = "bert/embeddings/", "bert/pooler/dense"
_TABLES = {
    "layers/reversible_embedding": f"{_EMBEDDINGS}word_embeddings",
    "layers/position_embedding": f"{_EMBEDDINGS}position_embeddings",
    "layers/embedding": f"{_EMBEDDINGS}token_type_embeddings",
    "layers/layer_normalization": f"{_EMBEDDINGS}LayerNorm",
}


class _Backbone(NamedTuple):
    """A backbone class: config keys with fixed values, and layers other than the transformer's."""

    values: Mapping[str, Any]
    layers: Mapping[str, str]


_BACKBONES = {
    "BertBackbone": _Backbone({"hidden_act": "gelu"}, _TABLES | {"layers/dense": _POOLER}),
    "AlbertBackbone": _Backbone(
        {FAMILY_KEY: "albert", "hidden_act": "gelu"},
        _TABLES | {"layers/dense": "bert/encoder/embedding_hidden_mapping_in", "layers/dense_1": _POOLER},
    ),
    "DistilBertBackbone": _Backbone(
        {FAMILY_KEY: "distilbert", "hidden_act": "gelu_erf", "type_vocab_size": 0},
        {
            "layers/token_and_position_embedding/token_embedding": f"{_EMBEDDINGS}word_embeddings",
            "layers/token_and_position_embedding/position_embedding": f"{_EMBEDDINGS}position_embeddings",
            "layers/layer_normalization": f"{_EMBEDDINGS}LayerNorm",
        },
    ),
}
_MASKED_LM = {
    "layers/masked_lm_head/_intermediate_dense": "cls/predictions/transform/dense",
    "layers/masked_lm_head/_intermediate_layer_norm": "cls/predictions/transform/LayerNorm",
    "layers/masked_lm_head": "cls/predictions/output_bias",
}
_CLASSIFIER = {"layers/dense": "output"}
_TASKS = {
    "BertTextClassifier": _CLASSIFIER,
    "AlbertTextClassifier": _CLASSIFIER,
    "DistilBertTextClassifier": {"layers/dense": _POOLER, "layers/dense_1": "output"},
    "BertMaskedLM": _MASKED_LM,
    "AlbertMaskedLM": _MASKED_LM,
    "DistilBertMaskedLM": _MASKED_LM,
}
_VARIABLE = re.compile(r"(.+)/vars/([01])")
_LAYER = re.compile(r"layers/transformer_encoder(?:_(\d+))?/_(?:self_attention_layer/(\w+)_dense|(\w+))")
_PARTS = {
    "output": "attention_output",
    "self_attention_layer_norm": "attention_norm",
    "feedforward_intermediate_dense": "intermediate",
    "feedforward_output_dense": "output",
    "feedforward_layer_norm": "output_norm",
}


def config_values(path: str) -> dict[str, Any]:
    """Translate the `config.json` of a preset.

    Returns:
      The keys of our config file.

    Raises:
      UserError: the file is damaged, or of another class.
    """
    config = text_files.read_json(path, "model config")
    name, theirs = config.get("class_name"), config.get("config")
    if name not in _BACKBONES or not isinstance(theirs, dict):
        raise UserError(
            f"it describes a Keras {name!s:.40}; of KerasHub's presets, only {', '.join(_BACKBONES)} can be read: "
            "give the original release of the model (bert_model.ckpt) or its Hugging Face folder"
        )
    values = {ours: theirs[key] for key, ours in _KEYS.items() if key in theirs} | _BACKBONES[name].values
    if "dropout" in theirs:
        values |= dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), theirs["dropout"])
    return values


def read_model(folder: str, config: BertConfig) -> dict[str, np.ndarray]:
    """Read the weights of a preset under our names.

    Raises:
      UserError: a file is missing or damaged, or contains another model; the message names the file.
    """
    config_file = os.path.join(folder, _CONFIG_FILE)
    config_values(config_file)  # raises for another class
    layers = _BACKBONES[_class_of(config_file)].layers
    arrays = _read_weights(os.path.join(folder, _WEIGHTS_FILE), layers, config)
    head = os.path.join(folder, _TASK_WEIGHTS_FILE)
    if files.exists(head):
        task_file = os.path.join(folder, _TASK_FILE)
        task = _class_of(task_file)
        if task not in _TASKS:
            raise UserError(
                f"{task_file} describes a {task!s:.40}, whose head is not supported; to read only the encoder, remove "
                f"{_TASK_WEIGHTS_FILE} from a copy of the folder"
            )
        arrays |= _read_weights(head, _TASKS[task], config)
    return arrays


def text_settings(folder: str) -> tuple[dict[str, bool], str]:
    """Return the casing recorded in a preset's tokenizer, and the file that records it.

    Raises:
      UserError: the file is damaged.
    """
    path = os.path.join(folder, _TOKENIZER_FILE)
    config = text_files.read_json(path, "tokenizer").get("config") if files.exists(path) else None
    if not (isinstance(config, dict) and isinstance(lower := config.get("lowercase"), bool)):
        return {}, ""
    strips = config.get("strip_accents") is True
    if strips and not lower:
        logging.warning("%s: strip_accents is true without lowercase; only lowercasing strips accents here", path)
    return {"do_lower_case": lower} | ({"strip_accents": strips} if lower else {}), _TOKENIZER_FILE


def _class_of(path: str) -> Any:
    return text_files.read_json(path, "part of a preset").get("class_name") if files.exists(path) else None


def _read_weights(path: str, layers: Mapping[str, str], config: BertConfig) -> dict[str, np.ndarray]:
    """Read the arrays of one file under our names."""
    arrays: dict[str, np.ndarray] = {}

    def take(place: str, item: h5py.Group | h5py.Dataset) -> None:
        if not isinstance(item, h5py.Dataset) or place.startswith("optimizer/"):
            return
        found = _our_name(place, layers, config)
        if found is None:
            raise UserError(f"{path} has {place}, which {config.family.title} does not have; is it of another class?")
        name, part = found
        array = without_heads(item[()], part)
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            raise UserError(f"{path}: {place} is not finite floating-point data; is it quantized or damaged?")
        arrays[name] = (array.T if name == "output_weights" else array).astype(np.float32)

    with files.open_file(path, "rb") as source:
        try:
            h5py.File(source, "r").visititems(take)
        except (OSError, RuntimeError, KeyError) as error:
            raise UserError(f"{path} is damaged, truncated or not a Keras weights file: {error}") from error
    return arrays


def _our_name(place: str, layers: Mapping[str, str], config: BertConfig) -> tuple[str, str] | None:
    """Return our name of an array and its part of the layer; None if the model has no such array."""
    variable = _VARIABLE.fullmatch(place)
    if variable is None:
        return None
    owner, index = variable[1], int(variable[2])
    if match := _LAYER.fullmatch(owner):
        part, number = _PARTS.get(match[2] or match[3], match[2]), int(match[1] or 0)
        name = layer_variables(config.family).get((part, index))
        known = name is not None and number < len(config.layer_numbers)
        return (name.format(*config.layer_numbers[number]), part) if known else None
    name = layers.get(owner)
    if name is None:
        return None
    if name.endswith("LayerNorm"):
        return f"{name}/{('gamma', 'beta')[index]}", ""
    if name == "output":
        return f"{name}_{('weights', 'bias')[index]}", ""
    return (f"{name}/{('kernel', 'bias')[index]}" if "dense" in name or "mapping" in name else name), ""
