"""Exports runs, and loads the exports that TensorFlow computes."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from official_bert.data.pipeline import DatasetTokenizer
from official_bert.inference.finished_runs import find_run, no_model, read_trained
from official_bert.inference.user_models import KERAS, FunctionalServable, load_functional
from official_bert.serving.engine_model import USUAL_SIZES
from official_bert.serving.exports import export_run, write_export
from official_bert.serving.saved_model import call_signature, load_version
from official_bert.serving.servable import Servable
from official_bert.serving.signatures import EXAMPLES, TEXT, Arrays, RequestError
from official_bert.serving.versions import NUM_POSITIONS, description, find_export, folder_of_model
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.tasks.task_registry import task_of_export
from official_bert.training.devices import require_backend
from official_bert.training.run_folder import RUN_CONFIG_FILE


def export(
    model: str | os.PathLike[str] | keras.Model,
    export_dir: str | os.PathLike[str],
    *,
    tokenizer: DatasetTokenizer | None = None,
    text_names: Sequence[str] = ("text",),
    labels: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    export_format: str = "saved_model",
    export_precision: str = "float32",
    export_parallelism: int = 0,
    use_best_checkpoint: bool = False,
) -> str:
    """Export a run, a folder of `save_model`, a fine-tuned Hugging Face model or a functional Keras model.

    Examples:
      >>> export("out/reviews", "serving/reviews")
      'serving/reviews/1'
      >>> export(keras.Model(inputs, outputs), "serving/own", tokenizer=DatasetTokenizer("encoder"))
      'serving/own/1'

    Args:
      model: the output folder of a run or of `save_model`, or a Hugging Face folder with a fine-tuned head; or a
        functional model with a `BertEncoder` and the inputs of the encoder. Its outputs are named as in the model: by
        the keys of a dict, or by the layers that compute them.
      tokenizer: for a functional model, what makes its inputs from texts.
      text_names: for a functional model, the name of the text in requests, or two names for a model of pairs.
      labels: for a functional model, the names of the columns of its output, or a dict from outputs to such names.
      export_dir: folder for versions of the exported model; its name becomes the model's name.
      export_format: "saved_model" for TensorFlow, "tflite" for LiteRT, or "onnx" for ONNX Runtime and OpenVINO;
        `Predictor` and `serve` read texts with all of them.
      export_precision: number format of the weights: "float32", "bfloat16" (saved_model), "float16" (tflite) or "int8"
        (tflite, onnx). A functional model is exported as "saved_model" with its own number formats.
      export_parallelism: number of parts that each layer of a saved_model is split into; 0 for 2 where possible.
      use_best_checkpoint: whether to export the best checkpoint instead of the last.

    Returns:
      The folder of the new version.

    Raises:
      UserError: the folder has no trained model, an option is invalid, or the export cannot be written.
    """
    require_backend("export")
    form = {"export_format": export_format, "export_precision": export_precision}
    form["export_parallelism"] = export_parallelism
    if isinstance(model, keras.Model):
        servable: Servable | None = FunctionalServable(model, tokenizer, text_names, labels)
    else:
        if tokenizer is not None or labels is not None:
            raise UserError(f"{os.fspath(model)} has its own tokenizer and labels; leave out tokenizer and labels")
        path = folder_of_model(files.local_folder(os.fspath(model)))
        servable = load_functional(path)
    if servable is not None:
        if (*form.values(), use_best_checkpoint) != ("saved_model", "float32", 0, False):
            raise UserError("a functional model is exported as saved_model with its own number formats; leave them out")
        return write_export(os.fspath(export_dir), servable)
    run = find_run(path)
    if run is None:
        raise no_model(path, f"neither an exported model nor the {RUN_CONFIG_FILE} of a run")
    changes = {**form, "do_export": True, "export_dir": os.fspath(export_dir)}
    return export_run(run.task.servable_module.servable_of_run, read_trained(run, use_best_checkpoint, changes))


class SavedModel:
    """An exported model that TensorFlow computes, with the attributes of `EngineModel`."""

    text_encoder, takes_one_text = None, False

    def __init__(self, folder: str):
        """Load a version of an export."""
        self.export, said = load_version(folder), description(folder)
        self._signatures, self.text_names = self.export.signatures, said.get("text_names", [])
        self.num_positions = said.get(NUM_POSITIONS, said.get("max_seq_length", USUAL_SIZES.max_length))
        predict, name = self._signatures.get(TEXT), said.get("task")
        if not predict and EXAMPLES in self._signatures:
            raise UserError(
                f"{folder} reads ids, not texts, since its tokenizer has no TensorFlow operations; give the run's "
                "folder, or call its signatures with the ids of official_bert.load_tokenizer"
            )
        row = KERAS if name == KERAS.name else predict and task_of_export(name, predict.structured_outputs)
        if not row or set(self.text_names) != set(predict.structured_input_signature[1]):
            raise UserError(f"{folder} is not a model that was exported with do_export")
        self.task, self.results = row.name, row.reader_module.results

    @property
    def has_results_of_ids(self) -> bool:
        outputs = (self._signatures[name].structured_outputs.keys() for name in (TEXT, EXAMPLES))
        return len(set(map(frozenset, outputs))) == 1

    def answer(self, texts: Mapping[str, Sequence[bytes]]) -> Arrays:
        return call_signature(TEXT, self._signatures[TEXT], texts)

    def answer_records(self, records: Sequence[bytes]) -> Arrays:
        try:
            return call_signature(EXAMPLES, self._signatures[EXAMPLES], {"examples": records})
        except RequestError as error:
            raise UserError(f"it does not fit the model: {error}") from error


def load_export(path: str | os.PathLike[str]) -> Any:
    """Load an exported model with its signatures, as TensorFlow does, and check that its files are intact.

    Args:
      path: a version of the model, or the folder of its versions, of which the highest is loaded.

    Returns:
      The result of `tf.saved_model.load`; call it as `load_export(path).signatures["text"](text=...)`.

    Raises:
      UserError: there is no export that takes texts, or it is damaged.
    """
    version = find_export(os.fspath(path))
    if version is None:
        raise UserError(f"{os.fspath(path)} is not an export; check the path")
    return SavedModel(version).export  # checked to read texts
