"""Finds runs and finished models of other formats, loads them and their exports for `Predictor`, and exports them."""

import dataclasses
import os
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import keras

from official_bert.checkpoints.loading import open_checkpoint
from official_bert.checkpoints.locate import (
    BEST_FOLDER,
    find_config,
    hugging_face_folder,
    latest_checkpoint,
    locate,
    read_state,
)
from official_bert.checkpoints.safetensors import architecture_of
from official_bert.config.bert_config import BertConfig
from official_bert.config.model_formats import PRESET_TASK_FILE, described
from official_bert.config.sentence_modules import is_sentence_encoder
from official_bert.config.text_settings import TextSettings
from official_bert.inference.text_encoder import TextEncoder
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import PLAIN, UNPADDED, EncoderOptions
from official_bert.options.option import config_from_saved
from official_bert.options.training import JAX
from official_bert.serving.engine_model import USUAL_SIZES, EngineModel
from official_bert.serving.signatures import EXAMPLES, TEXT, Arrays, RequestError
from official_bert.serving.text_model import TextModel, TrainedModel
from official_bert.serving.versions import NUM_POSITIONS, description, find_export, folder_of_model
from official_bert.support import files, text_files
from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.head import find_head
from official_bert.tasks.task_registry import TASKS, TaskRow, task_of_export, task_of_run
from official_bert.tokenization import FullTokenizer, load_tokenizer
from official_bert.training.devices import dtype_policy, require_backend
from official_bert.training.model_files import find_text_flags, read_model_files
from official_bert.training.run_folder import (
    BERT_CONFIG_FILE,
    LABELS_FILE,
    RUN_CONFIG_FILE,
    RunConfig,
    check_same_model,
    find_model_files,
    read_labels,
    read_run_config,
)

if TYPE_CHECKING:
    from official_bert.data.pipeline import DatasetTokenizer

_HF_CONFIG_FILE = "config.json"


class FinishedRun(NamedTuple):
    """A run, or a finished model with a head, described as the run that would have made it."""

    path: str  # its folder
    settings: RunConfig
    task: TaskRow

    @property
    def is_own(self) -> bool:
        """True for a run of this package."""
        return os.path.basename(self.settings.path) == RUN_CONFIG_FILE


def find_run(path: str) -> FinishedRun | None:
    """Find the run in a folder, or the Hugging Face model with a head; None for other folders."""
    settings = read_run_config(path) or _run_of_finished_model(path)
    task = task_of_run(settings.task, settings.flags) if settings else None
    if settings and settings.task and task is None:
        raise UserError(f"{settings.path}: unknown task {settings.task!r}; a newer version of official-bert has it")
    return FinishedRun(path, settings, task) if task else None


def read_trained(
    run: FinishedRun, use_best_checkpoint: bool, changes: Mapping[str, Any], encoder_options: EncoderOptions = UNPADDED
) -> TrainedModel:
    path = run.path
    folder = os.path.join(path, BEST_FOLDER) if use_best_checkpoint else path
    checkpoint = latest_checkpoint(folder) or hugging_face_folder(folder)
    if checkpoint is None and not run.is_own:
        checkpoint = locate(folder, "path").prefix
    if checkpoint is None:
        advice = "train with eval_steps first" if use_best_checkpoint else "train first"
        raise UserError(f"there is no checkpoint in {folder}; {advice}")
    flags = {**run.settings.flags, "output_dir": path, **find_model_files(path, run.settings, changes), **changes}
    if flags.get("vocab_file") is None and flags.get("spm_model_file") is None:
        raise UserError(f"{path} has no vocabulary, and its run does not record one; give vocab_file")
    config = config_from_saved(run.task.config_class, flags, run.settings.path)
    bert_config, tokenizer = read_model_files(config, is_trained=True)
    check_same_model(path, bert_config, tokenizer.vocabulary)
    return TrainedModel(config, bert_config, tokenizer, checkpoint, encoder_options)


def _run_of_finished_model(path: str) -> RunConfig | None:
    """Describe a finished model as an equivalent run; None if the folder has no model with a head.

    The head of a Hugging Face model is that of its class. Of other formats, those models count that have a
    `labels.json`, which names their outputs, and presets of KerasHub for masked LM.
    """
    folder = hugging_face_folder(path)
    if folder is not None:
        config_file = os.path.join(folder, _HF_CONFIG_FILE)
        config_file = config_file if files.exists(config_file) else None
    else:
        signs = (os.path.join(path, name) for name in (LABELS_FILE, PRESET_TASK_FILE))
        config_file = find_config(path) if any(map(files.exists, signs)) else None
    if config_file is None:
        return None
    bert_config = BertConfig.from_json_file(config_file)
    theirs = bert_config.family.hugging_face
    if folder is not None:
        values = text_files.read_json(config_file, "model config")
        heads = () if is_sentence_encoder(path) else theirs.heads_of_class(architecture_of(folder))
    else:
        labels = read_labels(path)
        values = {"num_labels": len(labels or ())}
        names = open_checkpoint(path, "path", bert_config).shapes
        possible = theirs.heads if labels else (TASKS["pretraining"].hf_head,)
        heads = [head for head in possible if any(rule.source in names for rule in theirs.parts.get(head, ()))]
    task = next((row for row in TASKS.values() if row.hf_head in heads), None)
    if task is None:
        return None
    flags = {
        "bert_config_file": config_file,
        **find_text_flags(path, {}),
        "do_export": True,  # nothing else runs
        "export_dir": path,
        "data_dir": path,
        **task.hf_flags(values, bert_config.max_length),
    }
    return RunConfig(config_file, task.name, flags, vocabulary=None, num_devices=None)


def _load_text_encoder(
    path: str, *, use_best_checkpoint: bool, changes: Mapping[str, Any], encoder_options: EncoderOptions
) -> TextEncoder:
    """Load the encoder and tokenizer of a run or of a model without a task."""
    if find_config(path) is None:
        encoder = f"nor an encoder with its {BERT_CONFIG_FILE} or {_HF_CONFIG_FILE}"
        raise no_model(path, f"neither an exported model nor the {RUN_CONFIG_FILE} of a run, {encoder}")
    folder = os.path.join(path, BEST_FOLDER) if use_best_checkpoint else path
    encoder = BertEncoder.from_checkpoint(folder, bert_config=changes.get("bert_config_file"), **vars(encoder_options))
    vocab_file = changes.get("vocab_file")
    given = {name: changes[name] for name in TextSettings._fields if name in changes}
    if vocab_file is None:
        tokenizer = load_tokenizer(path, **given)
    else:
        tokenizer = FullTokenizer(vocab_file, **TextSettings().updated(**given)._asdict())
    encoder.config.check_vocabulary(tokenizer.vocabulary, f"the model in {path}")
    tokenizer.num_segments = encoder.config.num_segments
    return TextEncoder(encoder, tokenizer, head=find_head(path, encoder))


def no_model(path: str, lacks: str) -> UserError:
    if read_state(path):
        advice = f"official_bert.save_model({path!r}, trainer.model, tokenizer, labels=...)"
        return UserError(
            f"{path} contains checkpoints, as a Trainer writes them, but {lacks}; complete it with {advice}"
        )
    return UserError(f"{path} {described(path) or f'contains {lacks}; check the path'}")


def model_of(model: TextModel, folder: str | None = None, row: TaskRow | None = None) -> EngineModel:
    """Return a model that reads texts as an export for an engine does, and is computed by Keras.

    Args:
      folder: that of a run or another model, which may have a sentence encoder's head; None for vectors without one.
    """
    reader = (row or TASKS[model.task]).reader_module
    found = EngineModel(model.described, model.tokenizer, model.engine(), reader)
    head = None if folder is None else find_head(folder, model.encoder)
    found.text_encoder = TextEncoder(model.encoder, model.tokenizer, head=head)
    return found


def load_model(
    path: str, changes: dict[str, Any], *, use_best_checkpoint: bool, mixed_precision: str, top_k: int | None
) -> Any:
    """Load a model for `Predictor`, from a run or an encoder."""
    if keras.backend.backend() != JAX:
        require_backend("Predictor")
    dtype, options = dtype_policy(mixed_precision), PLAIN if keras.backend.backend() == JAX else UNPADDED
    choices = {"use_best_checkpoint": use_best_checkpoint, "encoder_options": dataclasses.replace(options, dtype=dtype)}
    run = find_run(path)
    if top_k is not None:
        changes = {**changes, "export_top_k": top_k, "do_export": True, "export_dir": path}  # the flag needs the others
        if not (run and hasattr(run.task.config_class, "export_top_k")):
            raise UserError("top_k is for words of [MASK] and for answers; a classifier gives all probabilities")
    if run:
        folder = os.path.join(path, BEST_FOLDER) if use_best_checkpoint else path
        model = model_of(run.task.text_model.of_run(read_trained(run, changes=changes, **choices)), folder)
        model.takes_one_text = run.task.name == "classification" and not run.is_own
        return model
    encoder = _load_text_encoder(path, changes=changes, **choices)
    return types.SimpleNamespace(task=None, text_names=(), text_encoder=encoder)


class SavedModel:
    """An exported model that TensorFlow computes, with the attributes of `EngineModel`."""

    text_encoder, takes_one_text = None, False

    def __init__(self, folder: str):
        """Load a version of an export."""
        from official_bert.inference.user_models import KERAS
        from official_bert.serving.saved_model import load_version, signature_of

        self.export, said = load_version(folder), description(folder)
        functions, self.text_names = self.export.signatures, said.get("text_names", [])
        self.num_positions = said.get(NUM_POSITIONS, said.get("max_seq_length", USUAL_SIZES.max_length))
        predict, name = functions.get(TEXT), said.get("task")
        if not predict and EXAMPLES in functions:
            raise UserError(
                f"{folder} reads ids, not texts, since its tokenizer has no TensorFlow operations; give the run's "
                "folder, or call its signatures with the ids of official_bert.load_tokenizer"
            )
        row = KERAS if name == KERAS.name else predict and task_of_export(name, predict.structured_outputs)
        if not row or set(self.text_names) != set(predict.structured_input_signature[1]):
            raise UserError(f"{folder} is not a model that was exported with do_export")
        self.signatures = {name: signature_of(name, functions[name]) for name in (TEXT, EXAMPLES)}
        self.task, self.results = row.name, row.reader_module.results

    @property
    def has_results_of_ids(self) -> bool:
        return self.signatures[TEXT].outputs.keys() == self.signatures[EXAMPLES].outputs.keys()

    def answer(self, texts: Mapping[str, Sequence[bytes]]) -> Arrays:
        return self.signatures[TEXT].compute(texts)

    def answer_records(self, records: Sequence[bytes]) -> Arrays:
        try:
            return self.signatures[EXAMPLES].compute({"examples": records})
        except RequestError as error:
            raise UserError(f"it does not fit the model: {error}") from error


def export(
    model: str | os.PathLike[str] | keras.Model,
    export_dir: str | os.PathLike[str],
    *,
    tokenizer: "DatasetTokenizer | None" = None,
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
    from official_bert.inference.user_models import FunctionalServable, load_functional
    from official_bert.serving.exports import export_run, write_export

    form = {"export_format": export_format, "export_precision": export_precision}
    form["export_parallelism"] = export_parallelism
    if isinstance(model, keras.Model):
        servable: FunctionalServable | None = FunctionalServable(model, tokenizer, text_names, labels)
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
