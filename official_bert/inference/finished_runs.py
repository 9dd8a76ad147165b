"""Loads models from the output folders of runs and from exports, exports runs, and saves models like runs."""

import dataclasses
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from official_bert.checkpoints.bundle import GLOBAL_STEP
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.checkpoints.loading import open_checkpoint
from official_bert.checkpoints.locate import (
    BEST_FOLDER,
    find_config,
    hugging_face_folder,
    latest_checkpoint,
    locate,
    read_state,
)
from official_bert.checkpoints.model_garden import signatures
from official_bert.checkpoints.safetensors import architecture_of
from official_bert.config.bert_config import BertConfig
from official_bert.config.model_formats import PRESET_TASK_FILE, described
from official_bert.config.sentence_modules import is_sentence_encoder
from official_bert.config.text_settings import TextSettings
from official_bert.data.pipeline import DatasetTokenizer
from official_bert.inference.functional_models import (
    KERAS,
    FunctionalServable,
    folder_of_model,
    load_functional,
    save_functional,
)
from official_bert.inference.text_encoder import TextEncoder
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.encoder_options import UNPADDED, EncoderOptions
from official_bert.modeling.heads import ClassificationModel, EncoderModel, MultipleChoiceModel
from official_bert.options.option import config_from_saved
from official_bert.serving.exports import export_run, write_export
from official_bert.serving.saved_model import load_version
from official_bert.serving.servable import Servable, TrainedModel
from official_bert.serving.signatures import EXAMPLES, TEXT
from official_bert.serving.versions import DESCRIPTION_FILE, SAVED_MODEL_FILE, description, find_version, model_file
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.sentence_encoder.head import find_head
from official_bert.tasks.task_registry import TASKS, TaskRow, task_of_export, task_of_run
from official_bert.tokenization import FullTokenizer, Tokenizer, load_tokenizer
from official_bert.training.devices import require_backend
from official_bert.training.model_files import find_text_flags, read_model_files
from official_bert.training.run_folder import (
    BERT_CONFIG_FILE,
    LABELS_FILE,
    MODEL_FILES,
    RUN_CONFIG_FILE,
    RunConfig,
    check_same_model,
    find_model_files,
    read_labels,
    read_run_config,
    write_labels,
    write_run_config,
)

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


def load(
    run: FinishedRun, *, use_best_checkpoint: bool, changes: Mapping[str, Any], encoder_options: EncoderOptions
) -> Servable:
    servable = run.task.servable_module.servable_of_run(_read(run, use_best_checkpoint, changes, encoder_options))
    servable.takes_one_text = run.task.name == "classification" and not run.is_own
    return servable


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
        raise _no_model(path, f"neither an exported model nor the {RUN_CONFIG_FILE} of a run")
    changes = {**form, "do_export": True, "export_dir": os.fspath(export_dir)}
    return export_run(run.task.servable_module.servable_of_run, _read(run, use_best_checkpoint, changes))


def _read(
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


def load_text_encoder(
    path: str, *, use_best_checkpoint: bool, changes: Mapping[str, Any], encoder_options: EncoderOptions
) -> TextEncoder:
    """Load the encoder and tokenizer of a run or of a model without a task; see `load` for the arguments."""
    if find_config(path) is None:
        encoder = f"nor an encoder with its {BERT_CONFIG_FILE} or {_HF_CONFIG_FILE}"
        raise _no_model(path, f"neither an exported model nor the {RUN_CONFIG_FILE} of a run, {encoder}")
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


def _no_model(path: str, lacks: str) -> UserError:
    if read_state(path):
        advice = f"official_bert.save_model({path!r}, trainer.model, tokenizer, labels=...)"
        return UserError(
            f"{path} contains checkpoints, as a Trainer writes them, but {lacks}; complete it with {advice}"
        )
    return UserError(f"{path} {described(path) or f'contains {lacks}; check the path'}")


def find_export(path: str) -> str | None:
    """Return the folder of an exported version, or of the highest in a folder of versions; None if there is none."""
    if not files.is_folder(path):
        raise UserError(f"there is no folder {path}; give an export or the output folder of a run")
    version = find_version(path)
    return None if version == path and model_file(path) == SAVED_MODEL_FILE and _is_encoder(path) else version


def _is_encoder(folder: str) -> bool:
    """Return True for a SavedModel from TensorFlow Hub; a damaged one is treated, and reported, as an export."""
    if files.exists(os.path.join(folder, DESCRIPTION_FILE)):
        return False
    try:
        return {TEXT, EXAMPLES}.isdisjoint(signatures(os.path.join(folder, SAVED_MODEL_FILE)))
    except UserError:
        return False


def load_exported(folder: str) -> tuple[Any, TaskRow, list[str]]:
    export = load_version(folder)
    predict = export.signatures.get(TEXT)
    if predict:
        said, inputs = description(folder), predict.structured_input_signature[1]
        names = said.get("text_names", [])
        task = KERAS if said.get("task") == KERAS.name else task_of_export(said.get("task"), predict.structured_outputs)
        if task and set(names) == set(inputs):
            return export, task, names
    if EXAMPLES in export.signatures and not predict:
        raise UserError(
            f"{folder} reads ids, not texts, since its tokenizer has no TensorFlow operations; give the run's "
            "folder, or call its signatures with the ids of official_bert.load_tokenizer"
        )
    raise UserError(f"{folder} is not a model that was exported with do_export")


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
    return load_exported(version)[0]


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
        task.servable_module.servable_of_run(TrainedModel(written, bert_config, tokenizer, checkpoint))
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
    are_names = not isinstance(labels, str) and all(isinstance(label, str) for label in labels)
    if not are_names or len(set(labels)) != num_outputs or len(labels) != num_outputs:
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
