"""Models that users have trained with Keras: saved like runs; functional ones read texts and are exported, too.

The folder of a functional model has it in Keras's format, the vocabulary, and a description like that of an export.
"""

import dataclasses
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state

from official_bert.checkpoints.bundle import GLOBAL_STEP, check_declared, check_stored
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.checkpoints.hdf5 import list_datasets
from official_bert.checkpoints.locate import latest_checkpoint
from official_bert.config.text_settings import TextSettings
from official_bert.data.pipeline import DatasetTokenizer
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import ClassificationModel, EncoderModel, MultipleChoiceModel
from official_bert.serving.exports import write_description
from official_bert.serving.servable import Servable
from official_bert.serving.signatures import Arrays, Reader, Reading
from official_bert.serving.text_model import IDS_SCHEMA, Tensors, TrainedModel
from official_bert.serving.versions import DESCRIPTION_FILE, KERAS_FILE, is_functional
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.task_registry import TASKS, TaskRow
from official_bert.tokenization import Tokenizer, load_tokenizer
from official_bert.tokenization.sequences import truncate_and_join
from official_bert.training.devices import require_backend
from official_bert.training.run_folder import (
    BERT_CONFIG_FILE,
    MODEL_FILES,
    RUN_CONFIG_FILE,
    read_run_config,
    write_labels,
    write_run_config,
)

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
        super().__init__(model, encoder.config, tokenize.tokenizer, max_seq_length=tokenize.max_seq_length)
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

    def numbers(self, inputs: Tensors) -> Tensors:
        """Return the outputs of the model by name, each [B, ...]; numbers of 16 bits as float32."""
        outputs = self._run_model(inputs)
        return {name: tf.cast(x, tf.float32) if x.dtype.is_floating else x for name, x in outputs.items()}

    def predict(self, inputs: Tensors) -> Tensors:
        """Return the outputs, and the labels of their columns."""
        found = self.numbers(inputs)
        names = {f"{name}{_LABELS}": (labels, found[name]) for name, labels in self._labels.items()}
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
        if name not in sizes:
            raise UserError(f"labels: the model has no output {name!r:.80}, only {format_names(sizes)}")
        if not _are_names(names) or tuple(sizes[name]) != (len(names),):
            raise UserError(
                f"labels={names!r:.80}: the output {name!r} has the shape {[None, *sizes[name]]}; give a distinct name "
                "for each column"
            )
    return {name: list(names) for name, names in (labels or {}).items()}


def _are_names(labels: Sequence[str]) -> bool:
    """Return True if labels are distinct strings."""
    is_list = not isinstance(labels, str) and all(isinstance(label, str) for label in labels)
    return is_list and len(set(labels)) == len(labels)


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


class FunctionalReader(Reader):
    def encode(self, *texts: str) -> Reading:
        first, second = (*map(self.tokenizer.encode, texts), [])[:2]
        ids = truncate_and_join(first, second, self.specials, max_seq_length=self.max_seq_length).inputs
        missing = self.max_seq_length - len(ids["input_ids"]) if self.said["padding"] == "max_length" else 0
        padding = dict.fromkeys(ids, bytes(missing)) | {"input_ids": [self.specials.pad_id] * missing}
        return Reading([{name: values + padding[name] for name, values in ids.items()}])

    def named(self, outputs: Arrays) -> Arrays:
        found = self.said["output_labels"].items()
        labels = {name: np.array([label.encode() for label in names], object) for name, names in found}
        names = {f"{name}{_LABELS}": np.broadcast_to(of, outputs[name].shape) for name, of in labels.items()}
        return {**outputs, **names}


READER = FunctionalReader


def results(outputs: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Convert the outputs of a `FunctionalServable` to one dict per example."""
    named = {name for name in outputs if f"{name}{_LABELS}" in outputs and outputs[f"{name}{_LABELS}"].dtype == object}
    names = sorted(outputs.keys() - {f"{name}{_LABELS}" for name in named})  # a SavedModel does not preserve order
    rows = [dict(zip(names, row, strict=True)) for row in zip(*map(outputs.__getitem__, names), strict=True)]
    for name in named:
        for row, labels in zip(rows, outputs[f"{name}{_LABELS}"], strict=True):
            row[name] = dict(zip((label.decode() for label in labels), row[name].tolist(), strict=True))
    return rows


def load_functional(folder: str) -> FunctionalServable | None:
    """Load a functional model from its folder; return None for other folders."""
    if not is_functional(folder):
        return None
    require_backend("a functional model")
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


def save_model(
    folder: str | os.PathLike[str],
    model: EncoderModel | keras.Model,
    tokenizer: Tokenizer | DatasetTokenizer,
    *,
    labels: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    **flags: Any,
) -> str:
    """Save a model like the output of a script's run, for `Predictor`, export and the scripts.

    Examples:
      >>> save_model("out/reviews", model, tokenizer, labels=["negative", "positive"], max_seq_length=64)
      >>> Predictor("out/reviews")("a fine film").label
      'positive'

    Args:
      folder: where to save: a new or empty folder, or the output folder of a `Trainer`, which is completed: its
        checkpoints stay, and `Predictor`, `export` and the scripts read it then.
      model: a `ClassificationModel`, `SpanModel`, `TaggingModel`, `MultipleChoiceModel` or `PretrainingModel`; or a
        functional model with a `BertEncoder`, saved in Keras's format.
      tokenizer: the tokenizer that the model was trained with; for a functional model the `DatasetTokenizer`.
      labels: the names of its outputs in order: classes or tags. None for regression (a classifier with a single
        output) and for models that find answers or words. For a functional model, as in `export`.
      **flags: flags of the corresponding script with other values than the defaults, above all `max_seq_length`; for a
        classifier of pairs `text_b_column="text_b"`, for a multi-label classifier `multi_label=True`. For a functional
        model only `text_names`, as in `export`.

    Returns:
      The folder.

    Raises:
      UserError: the arguments do not match, or the folder has files.
    """
    folder = os.fspath(folder)
    task = next((row for row in TASKS.values() if isinstance(model, row.model_class)), None)
    if task is None and hasattr(model, "output_names"):
        return save_functional(folder, model, tokenizer, labels=labels, **flags)
    if task is None:
        known = ", ".join(row.model_class.__name__ for row in TASKS.values())
        raise UserError(
            f"save_model saves {known} and functional models, not {type(model).__name__}; for an encoder or "
            "other Keras models use save_checkpoint or save"
        )
    if not isinstance(tokenizer, Tokenizer):
        raise UserError(f"tokenizer is {tokenizer!r:.80}; give the FullTokenizer that the model was trained with")
    _check_labels(task, model, labels)
    bert_config = model.encoder.config
    bert_config.check_vocabulary(tokenizer.vocabulary, "the model")
    config = _config(folder, task, model, tokenizer, is_regression=labels is None, given=flags)
    bert_config.check_length(config.max_seq_length, "the model")
    _write(folder, task, model, tokenizer, config, labels)
    return folder


def _write(
    folder: str, task: TaskRow, model: EncoderModel, tokenizer: Tokenizer, config: Any, labels: Sequence[str] | None
) -> None:
    bert_config, vocabulary = model.encoder.config, tokenizer.vocabulary
    trained = latest_checkpoint(folder) if read_run_config(folder) is None else None
    with tempfile.TemporaryDirectory() if trained else writing.complete_folder(folder, "folder") as partial:
        config_content = bert_config.to_json_string().encode()
        for name, content in ((BERT_CONFIG_FILE, config_content), (vocabulary.file_name, vocabulary.file_content)):
            writing.write_file(os.path.join(partial, name), content)
        if labels is not None:
            write_labels(partial, labels)
        write_run_config(partial, config, vocabulary)
        checkpoint = trained or _save(partial, model)
        # Refuse what could not be read back.
        written = dataclasses.replace(config, output_dir=partial)
        task.text_model.of_run(TrainedModel(written, bert_config, tokenizer, checkpoint))
        for name in sorted(os.listdir(partial), key=RUN_CONFIG_FILE.__eq__) if trained else ():  # this one last
            with files.open_file(os.path.join(partial, name), "rb") as source:
                content = source.read()
            writing.write_file(os.path.join(folder, name), content)


def _save(folder: str, model: EncoderModel) -> str:
    step = np.int64(getattr(getattr(model, "optimizer", None), "iterations", 0))
    arrays = {name: keras.ops.convert_to_numpy(value) for name, value in model.checkpoint_variables().items()}
    return CheckpointFolder(folder, keep_max=1, is_new=True).save(int(step), {**arrays, GLOBAL_STEP: step})


def _check_labels(task: TaskRow, model: EncoderModel, labels: Sequence[str] | None) -> None:
    """Raise unless `labels` names the outputs of a model exactly if they need names."""
    num_outputs = model.get_config().get("num_outputs")
    if labels is None:
        if num_outputs is not None and not (num_outputs == 1 and isinstance(model, ClassificationModel)):
            raise UserError(f"the model has {num_outputs} outputs; give their names in order: labels=[...]")
        return
    if num_outputs is None:
        raise UserError(f"the outputs of a {task.model_class.__name__} have no labels; leave them out")
    if not _are_names(labels) or len(labels) != num_outputs:
        raise UserError(f"labels={labels!r:.80}; give {num_outputs} distinct names, one per output of the model")


def _config(
    folder: str, task: TaskRow, model: EncoderModel, tokenizer: Tokenizer, *, is_regression: bool, given: dict[str, Any]
) -> Any:
    """Return the flags of the equivalent run."""
    options, file_name = model.get_config(), tokenizer.vocabulary.file_name
    names = {field.name: field.default for field in dataclasses.fields(task.config_class)}
    following = {
        **{
            flag: os.path.join(folder, name)
            for name, flag in MODEL_FILES.items()
            if name in (BERT_CONFIG_FILE, file_name)
        },
        **tokenizer.settings._asdict(),
        **{name: options[name] for name in ("feature_layers", "head", "lstm_units") if name in options},
        "output_dir": folder,
        "do_export": True,
        "export_dir": os.path.join(folder, "export"),
    }
    defaults = {"max_seq_length": min(names["max_seq_length"], model.encoder.max_length)}
    if isinstance(model, (ClassificationModel, MultipleChoiceModel)):
        following["data_dir"] = "."
    if isinstance(model, ClassificationModel):
        following |= {"task_name": "custom", "regression": is_regression}
        defaults["text_a_column"] = "text"
        if options["window_length"]:
            following |= {"long_text": "window", "max_seq_length": options["window_length"]}
            following["window_pooling"] = options["window_pooling"]
    unknown = given.keys() - names.keys()
    if unknown:
        raise UserError(
            f"{format_names(sorted(unknown))}: the script that trains a {task.model_class.__name__} has no such flag"
        )
    fixed = given.keys() & following.keys()
    if fixed:
        raise UserError(
            f"{format_names(sorted(fixed))} follows from the model, the tokenizer and the folder; leave it out"
        )
    return task.config_class(**{**defaults, **given, **following})
