"""`SentenceHead`: the pooling, dense layers and normalization of a sentence-transformers folder or a run."""

import functools
import hashlib
import os
from collections.abc import Sequence
from typing import Any, TypedDict

import keras
import numpy as np
from absl import logging

from official_bert.checkpoints.loading import load, open_checkpoint
from official_bert.checkpoints.locate import model_folders
from official_bert.checkpoints.safetensors import read_tensors
from official_bert.config import sentence_modules
from official_bert.config.sentence_modules import (
    Prompts,
    has_modules,
    longest_text,
    read_module,
    read_modules,
    read_prompts,
)
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.sentence import SentenceModel
from official_bert.options.option import config_from_saved
from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.options import SentenceEncoderConfig
from official_bert.tokenization import read_vocabulary_file
from official_bert.tokenization.tokenizer_files import try_find_vocabulary
from official_bert.training.run_folder import RunConfig, matches_vocabulary, read_run_config

# The activations, which have PyTorch's default parameters in Keras, by PyTorch's names in lower case.
_ACTIVATIONS = {
    name.replace("_", ""): name
    for name in (
        *("tanh", "relu", "relu6", "silu", "mish", "elu", "selu", "sigmoid", "softplus", "softsign"),
        *("softmax", "log_softmax", "log_sigmoid", "hard_sigmoid", "hard_swish", "hard_tanh", "hard_shrink"),
        *("soft_shrink", "tanh_shrink"),
    )
} | {
    "identity": "linear",
    "gelu": "gelu_erf",
    "celu": "elu",  # by default the same
    "leakyrelu": {"module": "keras.layers", "class_name": "LeakyReLU", "config": {"negative_slope": 0.01}},
}


class SentenceHead:
    """The part of a sentence-transformers model that follows its encoder.

    Its files are read when needed; a file that is missing, damaged or not supported raises UserError.
    """

    def __init__(self, folder: str, encoder: BertEncoder, is_default: bool = True):
        """Without `is_default`, the head is that of SPLADE, for models without modules that have a masked-LM head."""
        self._folder, self._encoder, self.is_default = folder, encoder, is_default

    @functools.cached_property
    def model(self) -> SentenceModel:
        poolings, modules, size = (
            read_modules(self._folder) if self.is_default else ((sentence_modules.SPLADE,), (), None)
        )
        width, layers_after, weights = self._encoder.config.hidden_size * len(poolings), [], []
        for kind, folder in modules:
            if kind == sentence_modules.NORMALIZE:
                layers_after.append(None)
                continue
            layer, arrays = (_read_dense if kind == sentence_modules.DENSE else _read_layer_norm)(folder, width)
            layers_after.append(layer)
            weights.append(arrays)
            width = len(arrays[-1])
        model = SentenceModel(self._encoder, poolings=poolings, layers_after=layers_after, size=size)
        for layer, arrays in zip(model.head_layers, weights, strict=True):
            layer.set_weights(arrays)
        if model.is_sparse:
            folder = sentence_modules.encoder_folder(self._folder)
            load(open_checkpoint(folder, "init_checkpoint"), model.head_weights)
        return model

    @functools.cached_property
    def max_seq_length(self) -> int | None:
        """Maximum number of wordpieces per text; None if the folder does not say."""
        return longest_text(self._folder) if self.is_default else None

    @functools.cached_property
    def other_similarity(self) -> str | None:
        return sentence_modules.other_similarity(self._folder) if self.is_default else None

    @functools.cached_property
    def prompts(self) -> Prompts:
        return read_prompts(self._folder) if self.is_default else sentence_modules.NO_PROMPTS

    @functools.cached_property
    def query_weights(self) -> np.ndarray | None:
        """The weight of each wordpiece in a query, float32 [V]; None for a model that encodes queries, too."""
        folder = sentence_modules.query_folder(self._folder) if self.is_default else None
        if folder is None:
            return None
        read_module(folder, sentence_modules.STATIC_QUERIES, dict[str, Any])
        weights = [np.asarray(array, np.float32) for _, array in read_tensors(folder)]
        if [array.shape for array in weights] != [(self.model.width,)] or not self.model.is_sparse:
            raise UserError(f"{folder} must contain a weight of each of the {self.model.width} components of documents")
        path = try_find_vocabulary(sentence_modules.encoder_folder(self._folder))
        if path is not None and matches_vocabulary(folder, read_vocabulary_file(path)) is False:
            raise UserError(f"the vocabulary of {folder} differs from that of the documents, {path}")
        return weights[0]

    @property
    def fingerprint(self) -> str:
        """A digest of everything that affects the vectors besides the encoder."""
        config = self.model.get_config()
        prompt = self.prompts.default if self.prompts.are_pooled else self.prompts[1:]
        size = [config["size"]] if "size" in config else []
        digest = hashlib.sha256(repr((config["poolings"], config["layers_after"], prompt, *size)).encode())
        for weight in self.model.head_weights:
            digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(weight)))
        return digest.hexdigest()


class RunHead(SentenceHead):
    """The head of a run of `run_sentence_encoder`."""

    query_weights = None

    def __init__(self, checkpoint: str, run: RunConfig, encoder: BertEncoder):
        super().__init__(os.path.dirname(run.path), encoder)
        self._checkpoint, self._run = checkpoint, run

    @functools.cached_property
    def _config(self) -> SentenceEncoderConfig:
        return config_from_saved(SentenceEncoderConfig, self._run.flags, self._run.path)

    @functools.cached_property
    def model(self) -> SentenceModel:
        model = SentenceModel(self._encoder, **self._config.model_options)
        load(open_checkpoint(self._checkpoint, "init_checkpoint"), model.head_weights)
        return model

    @property
    def max_seq_length(self) -> int:
        return self._config.max_seq_length

    @property
    def prompts(self) -> Prompts:
        return Prompts(self._config.prompts, self._config.query_prefix)

    def warn_of_other_vectors(self, poolings: Sequence[str]) -> None:
        """Warn if the run was trained for other vectors than these poolings give."""
        if self._config.dense_size or list(poolings) != self._config.poolings:
            logging.warning(
                "%s was trained as a sentence encoder with pooling=%s and dense_size=%d, but this run computes other "
                "vectors; leave out pooling and layers to get the trained ones",
                self._checkpoint,
                ",".join(self._config.poolings),
                self._config.dense_size,
            )


def find_head(path: str, encoder: BertEncoder) -> SentenceHead:
    """Return the head of the sentence encoder at a path, a sentence-transformers folder or a run, or SPLADE's head."""
    folder = model_folders(path, of_encoder=False)[0]
    if has_modules(folder):
        return SentenceHead(folder, encoder)
    run = read_run_config(model_folders(path)[-1])
    is_trained = run and run.task == SentenceEncoderConfig.task
    return RunHead(path, run, encoder) if is_trained else SentenceHead(path, encoder, is_default=False)


class _DenseConfig(TypedDict, total=False):
    activation_function: str


def _read_dense(folder: str, width: int) -> tuple[tuple[int, Any], list[np.ndarray]]:
    """Return the units and the activation, and the weights in the order of Keras."""
    file = os.path.join(folder, "config.json")
    config = read_module(folder, sentence_modules.DENSE, _DenseConfig)
    named = config.get("activation_function", "Tanh")
    name = named.rpartition(".")[2].lower()
    if name not in _ACTIVATIONS:
        raise UserError(f"{file}: the activation_function is {named!r:.80}; it must be {', '.join(_ACTIVATIONS)}")
    arrays = dict(read_tensors(folder))
    weight = arrays.pop("linear.weight", np.zeros((0, 0), np.float32))
    bias = arrays.pop("linear.bias", np.zeros(weight.shape[:1], np.float32))
    if arrays or weight.shape[1:] != (width,) or not weight.shape[0] or bias.shape != weight.shape[:1]:
        raise UserError(
            f"{folder} must contain one dense layer with {width} inputs; linear.weight has shape {list(weight.shape)} "
            f"and linear.bias {list(bias.shape)}"
        )
    return (*bias.shape, _ACTIVATIONS[name]), [np.asarray(weight).T, np.asarray(bias)]


def _read_layer_norm(folder: str, width: int) -> tuple[str, list[np.ndarray]]:
    arrays = dict(read_tensors(folder))
    shapes = {name: array.shape for name, array in arrays.items()}
    if shapes != dict.fromkeys(("norm.weight", "norm.bias"), (width,)):
        raise UserError(f"{folder} must contain norm.weight and norm.bias with {width} values each; it has {shapes}")
    return sentence_modules.LAYER_NORM, [np.asarray(arrays[name]) for name in ("norm.weight", "norm.bias")]
