"""`SentenceHead`: the pooling, dense layers and normalization of a sentence-transformers folder or a run."""

import functools
import hashlib
import itertools
import os
from collections.abc import Callable
from typing import NamedTuple, TypedDict

import numpy as np

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.opening import open_checkpoint
from official_bert.checkpoints.safetensors import read_tensors
from official_bert.checkpoints.state_file import model_folders
from official_bert.config.sentence_modules import (
    Prompts,
    SentenceModules,
    has_modules,
    longest_text,
    read_modules,
    read_prompts,
)
from official_bert.data.retrieval import BM25, Bm25Weights
from official_bert.metrics.retrieval import normalized
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.pooling import num_vectors
from official_bert.modeling.sentence import SentenceModel
from official_bert.options.option import config_from_saved
from official_bert.support import text_files
from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.options import SentenceEncoderConfig
from official_bert.training.run_folder import RunConfig, read_run_config

_ACTIVATIONS = {"Tanh": np.tanh, "Identity": np.asarray, "ReLU": functools.partial(np.maximum, 0)}
_KERAS_NAMES = {"Tanh": "tanh", "Identity": "linear", "ReLU": "relu"}
_MANY_LAYERS = 4  # enough for all poolings, whose number of vectors does not depend on it
_VECTOR = "sentence_embedding"  # default input and output of a dense layer


class _Dense(NamedTuple):
    """A dense layer: `weight` float32 [out, in], `bias` float32 [out], and its activation with the name in Keras."""

    weight: np.ndarray
    bias: np.ndarray
    activation: Callable[[np.ndarray], np.ndarray]
    activation_name: str

    def __call__(self, vector: np.ndarray) -> np.ndarray:
        return self.activation(self.weight @ vector + self.bias)


class SentenceHead:
    """The head that computes the vector of a text from poolings of the last layer; its files are read when needed.

    Its properties and methods raise UserError if a file is missing or damaged, a module is not supported, or sizes do
    not match.
    """

    def __init__(self, folder: str, hidden_size: int):
        """Store the arguments; nothing is read yet."""
        self._folder, self._hidden_size = folder, hidden_size

    @functools.cached_property
    def _modules(self) -> SentenceModules:
        return read_modules(self._folder)

    @functools.cached_property
    def _layers(self) -> list[_Dense | None]:
        """The dense layers; None stands for normalization to length 1."""
        width, layers = self._pooled_width, []
        for folder in self._modules.after:
            layers.append(folder and _read_dense(folder, width))
            width = len(layers[-1].bias) if folder else width
        return layers

    @property
    def poolings(self) -> tuple[str, ...]:
        """The poolings, as in `VectorSettings.pooling`; their P vectors are concatenated."""
        return self._modules.poolings

    @property
    def width(self) -> int:
        """D, the size of the vector."""
        widths = [len(layer.bias) for layer in self._layers if layer]
        return widths[-1] if widths else self._pooled_width

    @property
    def _pooled_width(self) -> int:
        return self._hidden_size * sum(num_vectors(pooling, _MANY_LAYERS) for pooling in self.poolings)

    @property
    def bm25(self) -> Bm25Weights | None:
        """The weights for the pooling "bm25", if it is among the poolings."""
        return None

    @functools.cached_property
    def max_seq_length(self) -> int | None:
        """Maximum number of wordpieces per text; None if the folder does not say."""
        return longest_text(self._folder)

    @functools.cached_property
    def prompts(self) -> Prompts:
        """The prefixes of texts."""
        return read_prompts(self._folder)

    @property
    def fingerprint(self) -> str:
        """A digest of everything that affects the vectors."""
        digest = hashlib.sha256(repr(self.poolings).encode() + self.prompts.default.encode())
        for weights in self.bm25 or ():
            digest.update(np.ascontiguousarray(weights))
        for layer in self._layers:
            parts = (layer.weight.tobytes(), layer.bias.tobytes(), repr(layer.activation).encode()) if layer else ()
            digest.update(b"dense" + b"".join(parts) if layer else b"normalized")
        return digest.hexdigest()

    def on_encoder(self, encoder: BertEncoder) -> SentenceModel:
        """Create a sentence model from an encoder and the weights of this head."""
        layers_after = [layer and (len(layer.bias), layer.activation_name) for layer in self._layers]
        model = SentenceModel(encoder, poolings=self.poolings, layers_after=layers_after)
        for variables, layer in zip(model.dense_layers, filter(None, self._layers), strict=True):
            variables.set_weights([layer.weight.T, layer.bias])
        return model

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """Map the vectors of the poolings, float32 [P, hidden size], to the text's vector, float32 [D]."""
        vector = vectors.reshape(-1)
        for layer in self._layers:
            vector = layer(vector) if layer else normalized(vector).astype(np.float32)
        return vector


class RunHead(SentenceHead):
    """The head of a run of `run_sentence_encoder`."""

    def __init__(self, checkpoint: str, run: RunConfig, hidden_size: int):
        """Store the arguments; nothing is read yet."""
        super().__init__(os.path.dirname(run.path), hidden_size)
        self._checkpoint, self._run = checkpoint, run

    @functools.cached_property
    def _config(self) -> SentenceEncoderConfig:
        return config_from_saved(SentenceEncoderConfig, self._run.flags, self._run.path)

    @functools.cached_property
    def _reader(self) -> CheckpointReader:
        return open_checkpoint(self._checkpoint, "init_checkpoint")

    @functools.cached_property
    def _layers(self) -> list[_Dense | None]:
        names = (f"sentence/dense_{number}" for number in itertools.count())
        return [layer and self._dense(next(names), layer[1]) for layer in self._config.layers_after]

    def _dense(self, name: str, activation: str) -> _Dense:
        (theirs,) = (other for other, ours in _KERAS_NAMES.items() if ours == activation)
        weight, bias = (self._reader.read(f"{name}/{part}") for part in ("kernel", "bias"))
        return _Dense(weight.T, bias, _ACTIVATIONS[theirs], activation)

    @property
    def poolings(self) -> tuple[str, ...]:
        """See `SentenceHead`."""
        return tuple(self._config.poolings)

    @functools.cached_property
    def bm25(self) -> Bm25Weights | None:
        """See `SentenceHead`."""
        if BM25 not in self.poolings:
            return None
        return Bm25Weights(**{name: self._reader.read(f"sentence/bm25_{name}") for name in Bm25Weights._fields})

    @property
    def max_seq_length(self) -> int:
        """See `SentenceHead`."""
        return self._config.max_seq_length

    @property
    def prompts(self) -> Prompts:
        """See `SentenceHead`."""
        return Prompts(self._config.prompts, self._config.query_prefix)


def find_head(path: str, hidden_size: int) -> SentenceHead | None:
    """Return the head of the sentence encoder at a path, a sentence-transformers folder or a run, or None."""
    folder = model_folders(path, of_encoder=False)[0]
    if has_modules(folder):
        return SentenceHead(folder, hidden_size)
    run = read_run_config(model_folders(path)[-1])
    return RunHead(path, run, hidden_size) if run and run.task == SentenceEncoderConfig.task else None


class _DenseConfig(TypedDict, total=False):
    activation_function: str
    module_input_name: str | None
    module_output_name: str | None
    use_residual: bool | None


def _read_dense(folder: str, width: int) -> _Dense:
    file = os.path.join(folder, "config.json")
    config = text_files.read_json_as(file, "the settings of a dense layer", _DenseConfig)
    named = config.get("activation_function", "Tanh")
    name = named.rpartition(".")[2]
    if name not in _ACTIVATIONS:
        raise UserError(f"{file}: the activation_function is {named!r:.80}; it must be {', '.join(_ACTIVATIONS)}")
    sides = {config.get(f"module_{side}_name") or _VECTOR for side in ("input", "output")}
    if config.get("use_residual") or sides != {_VECTOR}:
        raise UserError(f"{file}: only layers from {_VECTOR} to {_VECTOR} without residual are supported")
    arrays = dict(read_tensors(folder))
    weight = arrays.pop("linear.weight", np.zeros((0, 0), np.float32))
    bias = arrays.pop("linear.bias", np.zeros(weight.shape[:1], np.float32))
    if arrays or weight.shape[1:] != (width,) or not weight.shape[0] or bias.shape != weight.shape[:1]:
        raise UserError(
            f"{folder} must contain one dense layer with {width} inputs; linear.weight has shape {list(weight.shape)} "
            f"and linear.bias {list(bias.shape)}"
        )
    return _Dense(np.asarray(weight), np.asarray(bias), _ACTIVATIONS[name], _KERAS_NAMES[name])
