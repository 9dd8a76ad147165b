"""`save_model`: saves a model trained with Keras's `fit` like the output of a run."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from official_bert.checkpoints.bundle import GLOBAL_STEP
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.modeling.heads import ClassificationModel, EncoderModel
from official_bert.modeling.multiple_choice import MultipleChoiceModel
from official_bert.support import writing
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.task_registry import TASKS, TaskRow
from official_bert.tokenization import Tokenizer
from official_bert.training.run_folder import BERT_CONFIG_FILE, MODEL_FILES, write_labels, write_run_config


def save_model(
    folder: str | os.PathLike[str],
    model: EncoderModel,
    tokenizer: Tokenizer,
    *,
    labels: Sequence[str] | None = None,
    **flags: Any,
) -> str:
    """Save a model like the output of a script's run, for `Predictor`, export and the scripts.

    Examples:
      >>> save_model("out/reviews", model, tokenizer, labels=["negative", "positive"], max_seq_length=64)
      >>> Predictor("out/reviews")("a fine film").label
      'positive'

    Args:
      folder: where to save; it must be new or empty.
      model: a `ClassificationModel`, `SpanModel`, `TaggingModel`, `MultipleChoiceModel` or `PretrainingModel`.
      tokenizer: the tokenizer that the model was trained with.
      labels: the names of its outputs in order: classes or tags. None for regression (a classifier with a single
        output) and for models that find answers or words.
      **flags: flags of the corresponding script with other values than the defaults, above all `max_seq_length`; for a
        classifier of pairs `text_b_column="text_b"`, for a multi-label classifier `multi_label=True`.

    Returns:
      The folder.

    Raises:
      UserError: the arguments do not match, or the folder has files.
    """
    folder = os.fspath(folder)
    task = next((row for row in TASKS.values() if isinstance(model, row.model_class)), None)
    if task is None:
        known = ", ".join(row.model_class.__name__ for row in TASKS.values())
        raise UserError(
            f"save_model saves {known}, not {type(model).__name__}; for an encoder or other Keras models "
            "use save_checkpoint or save"
        )
    if not isinstance(tokenizer, Tokenizer):
        raise UserError(f"tokenizer is {tokenizer!r:.80}; give the FullTokenizer that the model was trained with")
    _check_labels(task, model, labels)
    bert_config, vocabulary = model.encoder.config, tokenizer.vocabulary
    bert_config.check_vocabulary(vocabulary, "the model")
    config = _config(folder, task, model, tokenizer, is_regression=labels is None, given=flags)
    bert_config.check_length(config.max_seq_length, "the model")

    with writing.complete_folder(folder, "folder") as partial:
        contents = {BERT_CONFIG_FILE: bert_config.to_json_string().encode()}
        contents[vocabulary.file_name] = vocabulary.file_content
        for name, content in contents.items():
            with writing.atomic_write(os.path.join(partial, name), "wb") as sink:
                sink.write(content)
        if labels is not None:
            write_labels(partial, labels)
        write_run_config(partial, config, vocabulary)
        step = np.int64(getattr(getattr(model, "optimizer", None), "iterations", 0))
        arrays = {name: keras.ops.convert_to_numpy(value) for name, value in model.checkpoint_variables().items()}
        checkpoint = CheckpointFolder(partial, keep_max=1, is_new=True).save(int(step), {**arrays, GLOBAL_STEP: step})
        # Refuse what could not be read back.
        task.servable_of_run(dataclasses.replace(config, output_dir=partial), bert_config, tokenizer, checkpoint)
    return folder


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
