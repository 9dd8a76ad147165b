"""`labels.json` of an output folder: the labels of a trained model's outputs. Needs no TensorFlow."""

import json
import os
from collections.abc import Iterable, Sequence

from absl import logging

from official_bert.checkpoints.state_file import model_folders
from official_bert.config.model_formats import config_format
from official_bert.families.hugging_face import label_names
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError, format_names

LABELS_FILE = "labels.json"
_HF_CONFIG_FILE = "config.json"


def write_labels(output_dir: str, labels: Iterable[str]) -> None:
    """Write `labels.json`, the label names in the order of the model's outputs."""
    with writing.atomic_write(os.path.join(output_dir, LABELS_FILE)) as sink:
        json.dump(list(labels), sink, ensure_ascii=False)


def read_labels(output_dir: str) -> list[str] | None:
    """Read `labels.json`, or the labels of a Hugging Face `config.json`; None if neither exists.

    Raises:
      UserError: the file is corrupt.
    """
    path, hf_path = (os.path.join(output_dir, name) for name in (LABELS_FILE, _HF_CONFIG_FILE))
    if not files.exists(path):
        if not files.exists(hf_path) or config_format(hf_path) is not None:
            return None
        return label_names(text_files.read_json(hf_path, "model config"), hf_path)
    labels = text_files.read_json_list(path, "list of labels")
    if not all(isinstance(label, str) for label in labels):
        raise UserError(f"{path} is damaged: it must be a JSON list of labels; restore it")
    return labels


def check_same_labels(
    output_dir: str, labels: Sequence[str], *, noun: str = "labels", other: str = "another output_dir"
) -> None:
    """Raise if the checkpoints of an output folder were trained with other labels.

    Args:
      output_dir: a folder with checkpoints.
      labels: the labels of this run, in the order of the model's outputs.
      noun: the task's term for a label.
      other: suggested alternative to the folder, for the message.

    Raises:
      UserError: the labels differ, or the file is corrupt.
    """
    trained = read_labels(output_dir)
    if trained is not None and trained != list(labels):
        raise UserError(
            f"the {noun} are {format_names(labels)}, but the checkpoints in {output_dir} were trained with "
            f"{format_names(trained)} ({LABELS_FILE}); use those, or {other}"
        )


def teacher_label_order(folder: str, labels: Sequence[str], *, noun: str, is_run: bool) -> list[int] | None:
    """Return the number of the teacher's output for each label of the student; None if they are in the same order.

    A run of this package has the labels of its data. Other models may name them in their own way; these are taken in
    order, with a warning.

    Args:
      folder: the teacher's folder.
      labels: the student's labels, in the order of its outputs.
      noun: the task's term for a label.
      is_run: whether the teacher is a run of this package.

    Raises:
      UserError: the labels differ, or the file is corrupt.
    """
    trained = read_labels(folder)
    if trained is None or trained == list(labels):
        return None
    if sorted(trained) == sorted(labels):
        return [trained.index(label) for label in labels]
    if is_run:
        check_same_labels(folder, labels, noun=noun, other="another teacher")
    if len(trained) == len(labels):
        pairs = format_names(f"{theirs} for {ours}" for theirs, ours in zip(trained, labels, strict=True))
        logging.warning("the teacher in %s names its %s otherwise; they are taken in order: %s", folder, noun, pairs)
    return None  # another number of them does not fit the weights


def read_trained_labels(output_dir: str, init_checkpoint: str | None) -> list[str] | None:
    """Read the labels of the weights used without training: the run's own, or the initial checkpoint's.

    Args:
      output_dir: the run's folder.
      init_checkpoint: the checkpoint to use if that folder has none.

    Returns:
      The label names; None if no folder has them.

    Raises:
      UserError: a file is corrupt.
    """
    folders = [output_dir, *([model_folders(init_checkpoint)[-1]] if init_checkpoint else [])]
    return next(filter(None, map(read_labels, folders)), None)


def check_label_order(init_checkpoint: str, labels: Sequence[str], *, noun: str = "labels") -> None:
    """Raise if a checkpoint was trained with the same labels in another order: its outputs would be mislabelled.

    Args:
      init_checkpoint: the checkpoint used without training.
      labels: the labels of the run, in the order of the model's outputs.
      noun: the task's term for a label.

    Raises:
      UserError: the order differs, or a file is corrupt.
    """
    trained = read_labels(model_folders(init_checkpoint)[-1]) or []
    if trained != list(labels) and sorted(trained) == sorted(labels):
        raise UserError(
            f"the {noun} are {format_names(labels)}, but init_checkpoint={init_checkpoint} was trained with them in "
            f"the order {format_names(trained)}; give them in that order, or train"
        )
