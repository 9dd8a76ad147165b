"""`labels.json` of an output folder: what each output of a trained model stands for; needs no TensorFlow."""

import json
import os
from collections.abc import Iterable

from official_bert.support import files, text_files
from official_bert.support.errors import UserError

LABELS_FILE = "labels.json"


def write_labels(output_dir: str, labels: Iterable[str]) -> None:
    """Writes `labels.json`, the names of the labels in the order of the model's outputs."""
    with files.atomic_write(os.path.join(output_dir, LABELS_FILE)) as sink:
        json.dump(list(labels), sink, ensure_ascii=False)


def read_labels(output_dir: str) -> list[str] | None:
    """Reads what `write_labels` wrote; None if there is nothing.

    Raises:
      UserError: the file is damaged.
    """
    path = os.path.join(output_dir, LABELS_FILE)
    if not files.exists(path):
        return None
    labels = text_files.read_json_list(path, "list of labels")
    if not all(isinstance(label, str) for label in labels):
        raise UserError(f"{path} is damaged: it must be a JSON list of labels; restore it")
    return labels
