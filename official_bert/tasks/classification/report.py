"""Evaluation report of a classifier: see `visualization/report_page.py`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from official_bert.metrics.classification import class_counts
from official_bert.tasks.classification.datasets.labels import Dataset
from official_bert.tasks.classification.datasets.layouts import TextExample
from official_bert.training.report_sections import accuracy_by_length, mistakes_section, reliability_section
from official_bert.visualization.report_page import (
    NUM_MISTAKES,
    Bar,
    Bars,
    Mistake,
    Mistakes,
    Part,
    Scatter,
    Scores,
    Section,
    Table,
    Text,
    confusion_section,
    length_bins,
    scatter_points,
    scores_by_name,
)

# N: examples, C: labels.


def report_sections(
    dataset: Dataset,
    examples: Sequence[TextExample],
    predictions: Mapping[str, np.ndarray],
    *,
    scores: Mapping[str, Any],
    lengths: Sequence[int],
) -> list[Section]:
    """Compute the sections of a report.

    Args:
      dataset: provides the class names and the problem type.
      examples: the N examples.
      predictions: label_ids [N] or [N, C] and probabilities float32 [N, C], from `ClassificationTask.predictions`.
      scores: name to number, as in `eval_results.txt`.
      lengths: number of wordpieces per example.
    """
    labels, probabilities = predictions["label_ids"], predictions["probabilities"]
    if dataset.problem == "regression":
        details = _of_regression(labels, probabilities[:, 0], examples, lengths)
    elif dataset.problem == "multi_label":
        details = _of_multi_label(dataset, labels.astype(bool), probabilities, examples, lengths)
    else:
        details = _of_single_label(dataset, labels, probabilities, examples, lengths)
    return [Scores(title="Scores", values=scores), *details]


def _of_single_label(
    dataset: Dataset,
    labels: np.ndarray,
    probabilities: np.ndarray,
    examples: Sequence[TextExample],
    lengths: Sequence[int],
) -> list[Section]:
    predicted = dataset.decide(probabilities)
    confidences = probabilities[np.arange(len(predicted)), predicted]
    is_correct = labels == predicted
    rows = np.flatnonzero(~is_correct)
    order = rows[np.argsort(-confidences[rows], kind="stable")][:NUM_MISTAKES]
    mistakes = [
        Mistake(
            {
                "gold": dataset.labels[labels[row]],
                "predicted": dataset.labels[predicted[row]],
                "probability": f"{confidences[row]:.4f}",
                "of the gold label": f"{probabilities[row, labels[row]]:.4f}",
                "example": examples[row].guid,
            },
            _texts(examples[row]),
        )
        for row in order
    ]
    return [
        confusion_section("Confusion matrix", dataset.labels, labels, predicted),
        scores_by_name("By label", "label", dataset.labels, *class_counts(labels, predicted, len(dataset.labels))),
        reliability_section(
            confidences, is_correct, "A prediction is the label of a text; its confidence is that label's probability."
        ),
        accuracy_by_length(lengths, is_correct),
        mistakes_section(mistakes, len(rows), len(examples), "by the probability of the wrong label"),
    ]


def _of_multi_label(
    dataset: Dataset,
    labels: np.ndarray,
    probabilities: np.ndarray,
    examples: Sequence[TextExample],
    lengths: Sequence[int],
) -> list[Section]:
    predicted = dataset.decide(probabilities)
    confidences, is_correct = np.where(predicted, probabilities, 1 - probabilities), labels == predicted  # [N, C]
    wrong = np.where(is_correct, -np.inf, np.nan_to_num(confidences))  # [N, C]
    worst = wrong.argmax(axis=-1)
    rows = np.flatnonzero(~is_correct.all(axis=-1))
    order = rows[np.argsort(-wrong[rows, worst[rows]], kind="stable")][:NUM_MISTAKES]

    def names(chosen: np.ndarray) -> str:
        return dataset.label_delimiter.join(np.array(dataset.labels, object)[chosen]) or "(none)"

    mistakes = [
        Mistake(
            {
                "gold": names(labels[row]),
                "predicted": names(predicted[row]),
                "worst": dataset.labels[worst[row]],
                "its probability": f"{probabilities[row, worst[row]]:.4f}",
                "example": examples[row].guid,
            },
            _texts(examples[row]),
        )
        for row in order
    ]
    note = "Each decision whether a text has a label counts as a prediction, so each text has one for every label."
    return [
        scores_by_name("By label", "label", dataset.labels, *class_counts(labels, predicted, len(dataset.labels))),
        reliability_section(confidences.ravel(), is_correct.ravel(), note),
        accuracy_by_length(lengths, is_correct.all(axis=-1)),
        mistakes_section(mistakes, len(rows), len(examples), "by the confidence of the most confident wrong decision"),
    ]


def _of_regression(
    labels: np.ndarray, predicted: np.ndarray, examples: Sequence[TextExample], lengths: Sequence[int]
) -> list[Section]:
    errors = predicted.astype(np.float64) - labels
    sizes = np.abs(errors)
    points, note = scatter_points(labels, predicted)
    order = np.argsort(-np.nan_to_num(sizes), kind="stable")[:NUM_MISTAKES]
    mistakes = [
        Mistake(
            {
                "gold": f"{labels[row]:g}",
                "predicted": f"{predicted[row]:.4g}",
                "error": f"{errors[row]:+.4g}",
                "example": examples[row].guid,
            },
            _texts(examples[row]),
        )
        for row in order
        if sizes[row] != 0
    ]
    places, names = length_bins(lengths)
    by_length = [sizes[places == place] for place in range(len(names))]
    return [
        Scatter(title="Predicted over gold", points=points, note=note),
        Table(
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
        Bars(
            title="Length",
            parts=("examples",),
            bars=[
                Bar(name, (len(of_bin),), f"{of_bin.mean():.2f}" if len(of_bin) else "")
                for name, of_bin in zip(names, by_length, strict=True)
            ],
            axis="wordpieces",
            note="Above each bar: the mean size of the errors.",
        ),
        Mistakes(title="Largest errors", mistakes=mistakes),
    ]


def _texts(example: TextExample) -> list[Text]:
    texts = [example.text_a] if example.text_b is None else [example.text_a, example.text_b]
    return [Text("", [Part(text)]) for text in texts]
