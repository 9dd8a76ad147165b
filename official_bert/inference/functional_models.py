"""Functional Keras models of users: from raw texts to their outputs, saved in a folder, and exported.

The folder has the model in Keras's format, the vocabulary, and a description like that of an export.
"""

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state

from official_bert.checkpoints.bundle import check_declared, check_stored
from official_bert.checkpoints.hdf5 import list_datasets
from official_bert.config.text_settings import TextSettings
from official_bert.data.pipeline import DatasetTokenizer
from official_bert.modeling.encoder import BertEncoder
from official_bert.serving.exports import write_description
from official_bert.serving.servable import IDS_SCHEMA, Servable, Tensors
from official_bert.serving.versions import DESCRIPTION_FILE
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.task_registry import TaskRow
from official_bert.tokenization import load_tokenizer

KERAS_FILE = "model.keras"
_KERAS_JSON, _KERAS_WEIGHTS = ("config.json", "metadata.json"), "model.weights.h5"  # its members
_LABELS = "_labels"  # after the name of an output
# A row like those of tasks, for exports; no script trains these models.
KERAS = TaskRow(name="keras", config_class=type(None), model_class=keras.Model, module=__name__)


_Settings = TypedDict("_Settings", {**TextSettings.__annotations__, "output_labels": dict[str, list[str]]}, total=False)


class _Description(_Settings):
    max_seq_length: int
    padding: str
    text_names: list[str]


class FunctionalServable(Servable):
    """A functional model on an encoder, with the `DatasetTokenizer` that makes its inputs."""

    task = KERAS.name

    def __init__(
        self,
        model: keras.Model,
        tokenize: DatasetTokenizer,
        text_names: Sequence[str],
        labels: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    ):
        """Create the servable; `labels` are the names of the columns of its output, or by name those of several."""
        if not isinstance(tokenize, DatasetTokenizer):
            raise UserError(f"tokenizer is {tokenize!r:.80}; give the DatasetTokenizer that makes the model's inputs")
        if isinstance(text_names, str) or len(text_names) not in (1, 2) or len(set(text_names)) < len(text_names):
            raise UserError(f'text_names={text_names!r:.80}; give one name, as ["text"], or two for pairs of texts')
        encoder, inputs, outputs = _parts_of(model)
        encoder.config.check_length(tokenize.max_seq_length, "the model")
        common = {"max_seq_length": tokenize.max_seq_length, "name": KERAS.name}
        super().__init__(model, encoder.config, tokenize.tokenizer, **common)
        self.text_names = tuple(text_names)
        self._tokenizer, self._encoder = lambda: tokenize, lambda: encoder

        def run_model(ids: Tensors) -> Tensors:
            found = model(keras.tree.map_structure(ids.__getitem__, inputs), training=False)
            return found if isinstance(found, dict) else dict(zip(outputs, keras.tree.flatten(found), strict=True))

        self._run_model = run_model
        tensors = model.output.values() if isinstance(model.output, dict) else model.outputs
        sizes = {name: tensor.shape[1:] for name, tensor in zip(outputs, tensors, strict=True)}
        self._labels = _checked_labels(labels, sizes)

    @property
    def details(self) -> Mapping[str, Any]:
        return {"padding": self._tokenizer().padding, "output_labels": dict(self._labels)}

    def tokenize(self, **texts: tf.Tensor) -> Tensors:
        encode, tokenizer = self._graph_tokenizer().encode_beginnings, self._tokenizer()
        encoded = [encode(texts[name], self.max_seq_length) for name in self.text_names]
        return tokenizer.join(*encoded, is_padded=tokenizer.padding == "max_length")

    def predict(self, inputs: Tensors) -> Tensors:
        """Return the outputs of the model by name, each [B, ...]; numbers of 16 bits as float32."""
        outputs = self._run_model(inputs)
        found = {name: tf.cast(x, tf.float32) if x.dtype.is_floating else x for name, x in outputs.items()}
        names = {f"{name}{_LABELS}": (labels, outputs[name]) for name, labels in self._labels.items()}
        return found | {name: tf.broadcast_to(labels, tf.shape(x)) for name, (labels, x) in names.items()}


def _checked_labels(
    labels: Sequence[str] | Mapping[str, Sequence[str]] | None, sizes: Mapping[str, Sequence[int]]
) -> dict[str, list[str]]:
    """Return the labels of each output that has some; `sizes` are the shapes of the outputs without the batch."""
    if labels is not None and not isinstance(labels, Mapping):
        if len(sizes) > 1:
            raise UserError(
                f"labels: the model has the outputs {format_names(sizes)}; give a dict from output to names"
            )
        labels = dict.fromkeys(sizes, labels)
    for name, names in (labels or {}).items():
        are_names = not isinstance(names, str) and all(isinstance(label, str) for label in names)
        if name not in sizes:
            raise UserError(f"labels: the model has no output {name!r:.80}, only {format_names(sizes)}")
        if not are_names or tuple(sizes[name]) != (len(set(names)),) or len(set(names)) != len(names):
            raise UserError(
                f"labels={names!r:.80}: the output {name!r} has the shape {[None, *sizes[name]]}; give a distinct name "
                "for each column"
            )
    return {name: list(names) for name, names in (labels or {}).items()}


def _parts_of(model: keras.Model) -> tuple[BertEncoder, Any, Sequence[str]]:
    """Return the encoder of a functional model, its inputs' names in their structure, and its outputs' names."""
    if not hasattr(model, "output_names"):
        kind = type(model).__name__
        raise UserError(
            f"the model is a {kind}, not a functional model: for the models of this package give the folder of "
            "save_model; around others make one, keras.Model(inputs, model(inputs)), on keras.Input tensors"
        )
    encoder = next((layer for layer in model._flatten_layers() if isinstance(layer, BertEncoder)), None)
    if encoder is None:
        raise UserError("the model has no BertEncoder among its layers")
    if isinstance(model.input, dict):
        inputs: Any = {name: name for name in model.input}
    else:
        inputs = keras.tree.map_structure(lambda tensor: tensor.name, model.input)
    if not {"input_ids"} <= (names := set(keras.tree.flatten(inputs))) <= set(IDS_SCHEMA.names):
        raise UserError(
            f"the model's inputs are {format_names(sorted(names))}; they must be those of the encoder, "
            f"{format_names(IDS_SCHEMA.names)}"
        )
    outputs = list(model.output) if isinstance(model.output, dict) else model.output_names
    if len(set(outputs)) < len(model.outputs):
        raise UserError(f"the model's outputs are {format_names(outputs)}; give a dict with a name for each")
    for tensor in model.outputs:
        if tensor.shape[:1] != (None,):
            raise UserError(f"an output of the model has the shape {list(tensor.shape)}; it must be [batch, ...]")
    return encoder, inputs, outputs


def results(outputs: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Convert the outputs of a `FunctionalServable` to one dict per example."""
    named = {name for name in outputs if f"{name}{_LABELS}" in outputs and outputs[f"{name}{_LABELS}"].dtype == object}
    names = sorted(outputs.keys() - {f"{name}{_LABELS}" for name in named})  # a SavedModel does not preserve order
    rows = [dict(zip(names, row, strict=True)) for row in zip(*map(outputs.__getitem__, names), strict=True)]
    for name in named:
        for row, labels in zip(rows, outputs[f"{name}{_LABELS}"], strict=True):
            row[name] = dict(zip((label.decode() for label in labels), row[name].tolist(), strict=True))
    return rows


def folder_of_model(path: str) -> str:
    """Return the folder of a .keras file of `save_model`; other paths unchanged."""
    if not path.endswith(os.path.splitext(KERAS_FILE)[1]) or files.is_folder(path):
        return path
    folder = os.path.dirname(path) or "."
    if os.path.basename(path) != KERAS_FILE or not is_functional(folder):
        raise UserError(
            f"{path}: a .keras file has no vocabulary; save the model with save_model(folder, model, tokenizer), and "
            "give that folder"
        )
    return folder


def is_functional(folder: str) -> bool:
    """Return True for a folder in which `save_model` saved a functional model."""
    return all(files.exists(os.path.join(folder, name)) for name in (KERAS_FILE, DESCRIPTION_FILE))


def load_functional(folder: str) -> FunctionalServable | None:
    """Load a functional model from its folder; return None for other folders."""
    if not is_functional(folder):
        return None
    path, description_file = (os.path.join(folder, name) for name in (KERAS_FILE, DESCRIPTION_FILE))
    said = text_files.read_json_as(description_file, "description of the model", _Description)
    _check_declared(path)
    try:
        model = keras.models.load_model(path, compile=False)
        settings = {name: said[name] for name in TextSettings._fields if name in said}
        tokenizer = load_tokenizer(folder, **settings)
        tokenize = DatasetTokenizer(tokenizer, max_seq_length=said["max_seq_length"], padding=said["padding"])
        return FunctionalServable(model, tokenize, said["text_names"], said.get("output_labels"))
    except UserError:
        raise
    except Exception as error:  # any kind: the file determines which layers are made, and of what
        raise _not_loaded(path, error) from error


def _not_loaded(path: str, error: Exception) -> UserError:
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    return UserError(f"{path} cannot be loaded ({reason:.300}); import the modules with its own layers first")


def _without_optimizer(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != "compile_config"}


def _check_declared(path: str) -> None:
    """Raise UserError unless the weights of the model's layers are in its file; none is allocated or read."""
    with files.open_file(path, "rb") as source:
        num_bytes = files.size(path)
        try:
            archive = zipfile.ZipFile(source)
            check_stored(path, archive.infolist(), num_bytes)
            if max(archive.getinfo(name).file_size for name in _KERAS_JSON) > text_files.MAX_SETTINGS_BYTES:
                raise UserError(f"{path} has a configuration that is too large for a model")
            with archive.open(_KERAS_WEIGHTS) as weights:
                list_datasets(path, weights, num_bytes)
            config = json.loads(archive.read(_KERAS_JSON[0]), object_hook=_without_optimizer)
            try:
                with keras.StatelessScope(initialize_variables=False):  # variables without values
                    model = keras.saving.deserialize_keras_object(config)
            finally:  # or Keras makes their values later
                global_state.set_global_attribute("uninitialized_variables", [])
            declared = {
                str(index): (tuple(x.shape), np.dtype(x.dtype).itemsize) for index, x in enumerate(model.variables)
            }
        except UserError:
            raise
        except Exception as error:  # any kind, as below
            raise _not_loaded(path, error) from error
    check_declared(path, declared, num_bytes)


def save_functional(
    folder: str,
    model: keras.Model,
    tokenizer: Any,
    *,
    text_names: Sequence[str] = ("text",),
    labels: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    **flags: Any,
) -> str:
    if flags:
        raise UserError(f"{format_names(sorted(flags))}: a functional model has no such option; leave it out")
    servable = FunctionalServable(model, tokenizer, text_names, labels)
    with writing.complete_folder(folder, "folder") as partial:
        with writing.atomic_write(os.path.join(partial, servable.vocabulary.file_name), "wb") as sink:
            sink.write(servable.vocabulary.file_content)
        model.save(os.path.join(partial, KERAS_FILE))
        write_description(partial, servable)
        load_functional(partial)  # refuses what could not be read back
    return folder
