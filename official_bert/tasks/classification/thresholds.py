"""`thresholds.json` beside a checkpoint: the probabilities above which its labels are predicted."""

import dataclasses
import json
import os
from collections.abc import Mapping

import numpy as np
from absl import logging

from official_bert.checkpoints.state_file import find_checkpoint, model_folders, step_of
from official_bert.metrics.classification import best_threshold
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.classification.datasets.labels import Dataset

THRESHOLDS_FILE = "thresholds.json"


def check_tunable(dataset: Dataset) -> None:
    """Raise unless predictions of a data set can be made by thresholds.

    Raises:
      UserError: it has neither two labels nor several per example.
    """
    if not _names(dataset):
        raise UserError(
            "tune_thresholds needs two labels, or several per text with multi_label=True; the labels of "
            f"{dataset.name} are {format_names(dataset.labels)}"
        )


def with_tuned_thresholds(dataset: Dataset, predictions: Mapping[str, np.ndarray]) -> Dataset:
    """Return a copy of a data set with the thresholds that maximize the macro F1 of predictions.

    Args:
      dataset: has two labels, or several per example.
      predictions: label_ids int [N] or [N, C] and probabilities float32 [N, C].
    """
    labels, probabilities = predictions["label_ids"], predictions["probabilities"]
    if dataset.problem == "multi_label":
        columns = zip(labels.T, probabilities.T, strict=True)
        thresholds = [best_threshold(is_labelled, column) for is_labelled, column in columns]
    else:
        thresholds = [best_threshold(labels == 1, probabilities[:, 1], counts_others=True)]
    return dataclasses.replace(dataset, thresholds=tuple(thresholds))


def write_thresholds(checkpoint: str, dataset: Dataset) -> None:
    """Write the thresholds of a data set beside the checkpoint that they were tuned for."""
    path = os.path.join(os.path.dirname(checkpoint), THRESHOLDS_FILE)
    thresholds = dict(zip(_names(dataset), dataset.thresholds, strict=True))
    with writing.atomic_write(path) as sink:
        json.dump({"global_step": step_of(checkpoint), "thresholds": thresholds}, sink, ensure_ascii=False)
    logging.info("wrote the thresholds of %s to %s", format_names(thresholds), path)


def with_stored_thresholds(dataset: Dataset, checkpoint: str) -> Dataset:
    """Return a copy of a data set with the thresholds beside a checkpoint; without them, the data set itself.

    Thresholds of another step are ignored with a warning.

    Args:
      dataset: provides the labels.
      checkpoint: path of the weights; see `find_checkpoint`.

    Raises:
      UserError: the file is damaged, or has other labels.
    """
    checkpoint = find_checkpoint(checkpoint, "checkpoint")
    path = os.path.join(model_folders(checkpoint)[0], THRESHOLDS_FILE)
    if not files.exists(path):
        return dataset
    stored = text_files.read_json(path, "thresholds")
    thresholds, names = stored.get("thresholds"), list(_names(dataset))
    if (
        not isinstance(thresholds, dict)
        or list(thresholds) != names
        or not all(type(value) in (int, float) and 0 <= value <= 1 for value in thresholds.values())
    ):
        raise UserError(
            f"{path} does not fit: it must have a threshold from 0 to 1 for {format_names(names)}; delete it, or tune "
            "them again (tune_thresholds)"
        )
    if stored.get("global_step") != step_of(checkpoint):
        logging.warning(
            "%s is of step %s and is not used with %s; tune the thresholds again (tune_thresholds)",
            path,
            stored.get("global_step"),
            checkpoint,
        )
        return dataset
    logging.info("using the thresholds of %s", path)
    return dataclasses.replace(dataset, thresholds=tuple(thresholds.values()))


def _names(dataset: Dataset) -> tuple[str, ...]:
    """Return the labels that can have a threshold."""
    if dataset.problem == "multi_label":
        return dataset.labels
    return dataset.labels[1:] if len(dataset.labels) == 2 else ()
