"""`labels.json` of an output folder: what each output of a trained model stands for; needs no TensorFlow."""

import json
import os
from collections.abc import Iterable, Sequence

from official_bert.families.hugging_face import label_names
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError, format_names

LABELS_FILE = "labels.json"
_HF_CONFIG_FILE = "config.json"


def write_labels(output_dir: str, labels: Iterable[str]) -> None:
    """Write `labels.json`, the names of the labels in the order of the model's outputs."""
    with writing.atomic_write(os.path.join(output_dir, LABELS_FILE)) as sink:
        json.dump(list(labels), sink, ensure_ascii=False)


def read_labels(output_dir: str) -> list[str] | None:
    """Read what `write_labels` wrote, or the labels of a Hugging Face `config.json`; None if there is nothing.

    Raises:
      UserError: the file is damaged.
    """
    path, hf_path = (os.path.join(output_dir, name) for name in (LABELS_FILE, _HF_CONFIG_FILE))
    if not files.exists(path):
        return label_names(text_files.read_json(hf_path, "model config"), hf_path) if files.exists(hf_path) else None
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
      labels: those of this run, in the order of the model's outputs.
      noun: what the task calls them.
      other: what to use instead of the folder, for the message.

    Raises:
      UserError: they differ, or the file is damaged.
    """
    trained = read_labels(output_dir)
    if trained is not None and trained != list(labels):
        raise UserError(
            f"the {noun} are {format_names(labels)}, but the checkpoints in {output_dir} were trained with "
            f"{format_names(trained)} ({LABELS_FILE}); use those, or {other}"
        )
