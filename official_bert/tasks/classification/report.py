"""Evaluation report of a classifier, and the thresholds of multi-label predictions."""

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from official_bert.checkpoints.locate import locate, step_of
from official_bert.metrics.classification import best_threshold, class_counts
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.classification.data import LABEL_DELIMITER, Dataset, TextExample
from official_bert.training.job import reliability_section
from official_bert.visualization import report_page

THRESHOLDS_FILE = "thresholds.json"
# N: examples, C: labels.


def check_tunable(dataset: Dataset) -> None:
    if not _names(dataset):
        raise UserError(
            "tune_thresholds needs two labels, or several per text with multi_label=True; the labels of "
            f"{dataset.name} are {format_names(dataset.labels)}"
        )


def with_tuned_thresholds(dataset: Dataset, predictions: Mapping[str, np.ndarray]) -> Dataset:
    """Return a copy of a data set with the thresholds that maximize the macro F1 of predictions."""
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
    content = {"global_step": step_of(checkpoint), "thresholds": thresholds}
    writing.write_file(path, json.dumps(content, ensure_ascii=False))
    logging.info("wrote the thresholds of %s to %s", format_names(thresholds), path)


def with_stored_thresholds(dataset: Dataset, checkpoint: str) -> Dataset:
    """Return a copy of a data set with the thresholds beside a checkpoint; without them, the data set itself.

    Thresholds of another step are ignored with a warning.
    """
    source = locate(checkpoint, "checkpoint")
    checkpoint, path = source.prefix, os.path.join(source.folders[0], THRESHOLDS_FILE)
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
        message = "%s is of step %s and is not used with %s; tune the thresholds again (tune_thresholds)"
        logging.warning(message, path, stored.get("global_step"), checkpoint)
        return dataset
    logging.info("using the thresholds of %s", path)
    return dataclasses.replace(dataset, thresholds=tuple(thresholds.values()))


def _names(dataset: Dataset) -> tuple[str, ...]:
    """Return the labels that can have a threshold."""
    if dataset.problem == "multi_label":
        return dataset.labels
    return dataset.labels[1:] if len(dataset.labels) == 2 else ()


def report_sections(
    dataset: Dataset,
    examples: Sequence[TextExample],
    predictions: Mapping[str, np.ndarray],
    *,
    scores: Mapping[str, Any],
    lengths: Sequence[int],
) -> list[report_page.Section]:
    details = {"regression": _of_regression, "multi_label": _of_multi_label, "single_label": _of_single_label}
    labels, probabilities = predictions["label_ids"], predictions["probabilities"]
    sections = details[dataset.problem](dataset, labels, probabilities, examples, lengths)
    return [report_page.Scores(title="Scores", values=scores), *sections]


def _of_single_label(
    dataset: Dataset,
    labels: np.ndarray,
    probabilities: np.ndarray,
    examples: Sequence[TextExample],
    lengths: Sequence[int],
) -> list[report_page.Section]:
    predicted = dataset.decide(probabilities)
    confidences = probabilities[np.arange(len(predicted)), predicted]
    is_correct = labels == predicted

    def mistake(row: int) -> report_page.Mistake:
        facts = {
            "gold": dataset.labels[labels[row]],
            "predicted": dataset.labels[predicted[row]],
            "probability": f"{confidences[row]:.4f}",
            "of the gold label": f"{probabilities[row, labels[row]]:.4f}",
        }
        return _mistake(facts, examples[row])

    return [
        report_page.confusion_section("Confusion matrix", dataset.labels, labels, predicted),
        report_page.scores_by_name(
            "By label", "label", dataset.labels, *class_counts(labels, predicted, len(dataset.labels))
        ),
        reliability_section(
            confidences, is_correct, "A prediction is the label of a text; its confidence is that label's probability."
        ),
        report_page.accuracy_by_length(lengths, is_correct),
        report_page.mistakes_section(mistake, confidences, is_correct, "by the probability of the wrong label"),
    ]


def _of_multi_label(
    dataset: Dataset,
    labels: np.ndarray,
    probabilities: np.ndarray,
    examples: Sequence[TextExample],
    lengths: Sequence[int],
) -> list[report_page.Section]:
    labels, predicted = labels.astype(bool), dataset.decide(probabilities)
    confidences, is_correct = np.where(predicted, probabilities, 1 - probabilities), labels == predicted  # [N, C]
    wrong = np.where(is_correct, -np.inf, np.nan_to_num(confidences))  # [N, C]
    worst, is_all_correct = wrong.argmax(axis=-1), is_correct.all(axis=-1)

    def names(chosen: np.ndarray) -> str:
        return LABEL_DELIMITER.join(np.array(dataset.labels, object)[chosen]) or "(none)"

    def mistake(row: int) -> report_page.Mistake:
        facts = {
            "gold": names(labels[row]),
            "predicted": names(predicted[row]),
            "worst": dataset.labels[worst[row]],
            "its probability": f"{probabilities[row, worst[row]]:.4f}",
        }
        return _mistake(facts, examples[row])

    order = "by the confidence of the most confident wrong decision"
    note = "Each decision whether a text has a label counts as a prediction, so each text has one for every label."
    return [
        report_page.scores_by_name(
            "By label", "label", dataset.labels, *class_counts(labels, predicted, len(dataset.labels))
        ),
        reliability_section(confidences.ravel(), is_correct.ravel(), note),
        report_page.accuracy_by_length(lengths, is_all_correct),
        report_page.mistakes_section(mistake, wrong.max(axis=-1), is_all_correct, order),
    ]


def _of_regression(
    dataset: Dataset, labels: np.ndarray, numbers: np.ndarray, examples: Sequence[TextExample], lengths: Sequence[int]
) -> list[report_page.Section]:
    predicted = dataset.decide(numbers)
    errors = predicted.astype(np.float64) - labels
    sizes = np.abs(errors)
    points, note = report_page.scatter_points(labels, predicted)
    order = np.argsort(-np.nan_to_num(sizes), kind="stable")[: report_page.NUM_MISTAKES]
    mistakes = [
        _mistake(
            {"gold": f"{labels[row]:g}", "predicted": f"{predicted[row]:.4g}", "error": f"{errors[row]:+.4g}"},
            examples[row],
        )
        for row in order
        if sizes[row] != 0
    ]
    places, names = report_page.length_bins(lengths)
    by_length = [sizes[places == place] for place in range(len(names))]
    return [
        report_page.Scatter(title="Predicted over gold", points=points, note=note),
        report_page.Table(
            title="Errors",
            columns=("predicted minus gold", "value"),
            rows=[
                ("mean", float(errors.mean())),
                ("mean of the sizes", float(sizes.mean())),
                ("root of the mean square", math.sqrt((errors**2).mean())),
                ("median of the sizes", float(np.median(sizes))),
                ("nine in ten are at most", float(np.percentile(sizes, 90))),
                ("largest", float(sizes.max())),
            ],
        ),
        report_page.Bars(
            title="Length",
            parts=("examples",),
            bars=[
                report_page.Bar(name, (len(of_bin),), f"{of_bin.mean():.2f}" if len(of_bin) else "")
                for name, of_bin in zip(names, by_length, strict=True)
            ],
            axis="wordpieces",
            note="Above each bar: the mean size of the errors.",
        ),
        report_page.Mistakes(title="Largest errors", mistakes=mistakes),
    ]


def _mistake(facts: Mapping[str, str], example: TextExample) -> report_page.Mistake:
    texts = [example.text_a] if example.text_b is None else [example.text_a, example.text_b]
    place = {"id": example.id} if example.id else {"example": example.where.rpartition(", ")[2]}  # "line 12"
    return report_page.Mistake({**place, **facts}, [report_page.Text("", [report_page.Part(text)]) for text in texts])
