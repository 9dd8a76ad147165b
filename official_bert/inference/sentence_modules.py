"""The folders of sentence-transformers: how the vectors of wordpieces become the vector of a text."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from official_bert.checkpoints.safetensors import read_tensors
from official_bert.support import files, text_files
from official_bert.support.errors import UserError

_MODULES_FILE, _TEXT_FILE, _TOKENIZER_FILE = "modules.json", "sentence_bert_config.json", "tokenizer_config.json"
_TRANSFORMER, _POOLING, _DENSE, _NORMALIZE = "Transformer", "Pooling", "Dense", "Normalize"
_POOLINGS = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens"}  # in the order of concatenation; old keys
_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
}


@dataclasses.dataclass(frozen=True)
class SentenceModules:
    """The modules of a sentence encoder.

    Attributes:
      encoder_folder: the folder of the transformer.
      poolings: the poolings of the last layer, whose vectors are concatenated; see `VectorSettings`.
      max_seq_length: maximum number of wordpieces of a text; None for the model's.
      steps: what follows, functions of float32 [N, D].
    """

    encoder_folder: str
    poolings: Sequence[str]
    max_seq_length: int | None
    steps: Sequence[Callable[[np.ndarray], np.ndarray]]

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """Apply the steps that follow pooling to float32 [N, P * D]."""
        for step in self.steps:
            vectors = step(vectors)
        return vectors


def read_sentence_modules(folder: str) -> SentenceModules | None:
    """Read the modules of a folder that sentence-transformers has written; None if it has not.

    Raises:
      UserError: a file is missing or damaged, or a module is of a kind that is not supported.
    """
    path = os.path.join(folder, _MODULES_FILE)
    if not files.exists(path):
        return None
    kinds, folders = [], []
    for module in text_files.read_json_list(path, "list of modules"):
        if not isinstance(module, dict) or not all(isinstance(module.get(key), str) for key in ("type", "path")):
            raise UserError(f"{path}: {module!r:.80} is no module with a type and a path")
        name = module["path"]
        if name in (".", "..") or os.path.basename(name) != name:
            raise UserError(f"{path}: the path {name!r:.80} leads out of the folder")
        kinds.append(module["type"].rpartition(".")[2])
        folders.append(os.path.join(folder, name) if name else folder)
    if kinds[:2] != [_TRANSFORMER, _POOLING] or not {*kinds[2:]} <= {_DENSE, _NORMALIZE}:
        raise UserError(
            f"{path} lists {', '.join(kinds)}; supported are a Transformer and a Pooling, and after them Dense and "
            "Normalize"
        )
    followers = zip(kinds[2:], folders[2:], strict=True)
    return SentenceModules(
        encoder_folder=folders[0],
        poolings=_poolings(folders[1]),
        max_seq_length=_max_seq_length(folders[0]),
        steps=[_dense(path) if kind == _DENSE else _normalize for kind, path in followers],
    )


def _config(folder: str) -> tuple[Mapping[str, Any], str]:
    path = os.path.join(folder, "config.json")
    return text_files.read_json(path, "settings of a module"), path


def _poolings(folder: str) -> list[str]:
    """Return the poolings of a Pooling module, whose newer files name them and whose older ones have a key for each."""
    config, path = _config(folder)
    named = config.get("pooling_mode")
    chosen = [named] if isinstance(named, str) else named
    if chosen is None:
        known = {f"pooling_mode_{key}": pooling for pooling, key in _POOLINGS.items()}
        keys = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
        chosen = [known.get(key, key) for key in keys]
    unknown = [pooling for pooling in chosen if pooling not in _POOLINGS] if isinstance(chosen, list) else [chosen]
    if unknown or not chosen:
        raise UserError(f"{path}: the pooling {unknown!r:.80} is not supported; choose among {', '.join(_POOLINGS)}")
    return [pooling for pooling in _POOLINGS if pooling in chosen]


def _max_seq_length(folder: str) -> int | None:
    """Return the limit of a Transformer module, which newer files keep with the tokenizer."""
    for name, key in ((_TEXT_FILE, "max_seq_length"), (_TOKENIZER_FILE, "model_max_length")):
        path = os.path.join(folder, name)
        config = text_files.read_json(path, "settings of a tokenizer") if files.exists(path) else {}
        if config.get("do_lower_case") is True and name == _TEXT_FILE:
            raise UserError(f"{path}: do_lower_case is true, which lowercases text before the tokenizer; not supported")
        if type(config.get(key)) is int:
            return config[key]
    return None


def _dense(folder: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return what a Dense module computes."""
    config, path = _config(folder)
    name = str(config.get("activation_function")).rpartition(".")[2]
    if name not in _ACTIVATIONS:
        raise UserError(f"{path}: activation_function is {name}; only {', '.join(_ACTIVATIONS)} are supported")
    arrays = dict(read_tensors(folder))
    weight, bias = arrays.get("linear.weight"), arrays.get("linear.bias", np.float32(0))
    if weight is None or weight.shape != (config.get("out_features"), config.get("in_features")):
        raise UserError(f"{folder}: linear.weight does not have the shape that {path} says")
    return lambda vectors: _ACTIVATIONS[name](vectors @ weight.T + bias)


def _normalize(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
