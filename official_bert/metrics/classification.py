"""Scores of classification and regression over a whole evaluation set.

N: examples, C: classes. Classes are int [N], each in [0, C); values of regression are finite float [N]. If a formula
divides by zero (no examples, constant values, a class that neither occurs nor is predicted), the score is 0.0, so a
useless model scores low instead of NaN.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


def accuracy(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the fraction of examples whose class is correct."""
    labels, predictions = _pair(labels, predictions)
    return float(np.count_nonzero(labels == predictions) / max(len(labels), 1))


def f1(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the harmonic mean of precision and recall of class 1, the positive one."""
    labels, predictions = _pair(labels, predictions)
    return _f1(labels == 1, predictions == 1)


def accuracy_f1_mean(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the mean of `accuracy` and `f1`, GLUE's score for MRPC and QQP."""
    return (accuracy(labels, predictions) + f1(labels, predictions)) / 2


def confusion_matrix(labels: npt.ArrayLike, predictions: npt.ArrayLike, num_classes: int) -> np.ndarray:
    """Count how often each class (row) was predicted as each class (column): int64 [C, C]."""
    labels, predictions = _pair(labels, predictions)
    cells = labels.astype(np.int64) * num_classes + predictions  # [N]
    return np.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes)  # [C, C]


def matthews_correlation(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the correlation of true and predicted classes; chance gives 0 for any class balance.

    Source: Matthews 1975 for two classes; for more, Gorodkin 2004 (the R_K of GLUE's diagnostic set).
    """
    labels, predictions = _pair(labels, predictions)
    if not labels.size:
        return 0.0
    counts = confusion_matrix(labels, predictions, int(max(labels.max(), predictions.max())) + 1).astype(np.float64)
    total, true, predicted = counts.sum(), counts.sum(axis=1), counts.sum(axis=0)
    scale = math.sqrt((total**2 - true @ true) * (total**2 - predicted @ predicted))
    return float((counts.trace() * total - true @ predicted) / scale) if scale else 0.0


def pearson(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the Pearson (linear) correlation."""
    labels, predictions = _pair(labels, predictions)
    labels, predictions = _direction(labels), _direction(predictions)
    return float(np.clip(labels @ predictions, -1, 1))


def spearman(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the Spearman (rank) correlation; equal values share the mean of their ranks."""
    labels, predictions = _pair(labels, predictions)
    return pearson(_ranks(labels), _ranks(predictions))


def pearson_spearman_mean(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the mean of `pearson` and `spearman`, GLUE's score for STS-B."""
    return (pearson(labels, predictions) + spearman(labels, predictions)) / 2


class ClassCounts(NamedTuple):
    """Counts of each class, int64 [C], and scores computed from them, float64 [C]."""

    gold: np.ndarray  # number of examples of the class
    predicted: np.ndarray  # number of predictions of the class
    correct: np.ndarray  # number of correct predictions of the class

    @property
    def precision(self) -> np.ndarray:
        """Fraction of a class's predictions that are correct; 0.0 if it is not predicted."""
        return self.correct / np.maximum(self.predicted, 1)

    @property
    def recall(self) -> np.ndarray:
        """Fraction of a class's examples that are predicted correctly; 0.0 if it does not occur."""
        return self.correct / np.maximum(self.gold, 1)

    @property
    def f1(self) -> np.ndarray:
        """Harmonic mean of precision and recall; 0.0 if a class neither occurs nor is predicted."""
        return 2 * self.correct / np.maximum(self.gold + self.predicted, 1)


def class_counts(labels: npt.ArrayLike, predictions: npt.ArrayLike, num_classes: int) -> ClassCounts:
    """Count the true, predicted and correct examples of each class; classes are int [N] or bool [N, C]."""
    labels, predictions = _pair(labels, predictions)
    if labels.ndim == 2:
        labels, predictions = labels.astype(bool), predictions.astype(bool)
        return ClassCounts(*(np.count_nonzero(x, axis=0) for x in (labels, predictions, labels & predictions)))
    correct = labels[labels == predictions]
    return ClassCounts(
        *(np.bincount(x.astype(np.int64), minlength=num_classes) for x in (labels, predictions, correct))
    )


def macro_f1(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the mean F1 of the classes, as scikit-learn's `f1_score(average="macro")`.

    A class that neither occurs nor is predicted is left out if classes are int [N], and counts as 0.0 if bool [N, C].
    """
    labels, predictions = _pair(labels, predictions)
    if not labels.size:
        return 0.0
    if labels.ndim == 2:
        return float(class_counts(labels, predictions, labels.shape[1]).f1.mean())
    counts = class_counts(labels, predictions, int(max(labels.max(), predictions.max())) + 1)
    return float(counts.f1[counts.gold + counts.predicted > 0].mean())


def micro_f1(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the F1 of all N * C decisions, bool [N, C]; of int [N] that of all classes but 0 ("no relation")."""
    labels, predictions = _pair(labels, predictions)
    num_correct = np.count_nonzero((labels == predictions) & (labels != 0))
    return 2 * num_correct / max(np.count_nonzero(labels) + np.count_nonzero(predictions), 1)


def binary_f1(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the F1 of numbers of at least 3, which KLUE counts as "similar"."""
    labels, predictions = _pair(labels, predictions)
    return _f1(labels >= 3, predictions >= 3)


def auprc(labels: npt.ArrayLike, probabilities: npt.ArrayLike) -> float:
    """Return the mean area under the precision-recall curves of the classes, as KLUE's baseline computes it.

    Labels are int [N], probabilities float [N, C]. Areas are sums of trapezoids; a class without examples has 0.5, as
    its recall is 1 in scikit-learn.
    """
    labels, areas = np.asarray(labels), []
    for number, scores in enumerate(np.asarray(probabilities).T):
        order = np.argsort(-scores, kind="stable")
        last = np.flatnonzero(np.diff(scores[order], append=-1))  # of each run of equal probabilities
        num_hits = np.cumsum(labels[order] == number)[last]
        recall = num_hits / num_hits[-1] if num_hits.any() else np.ones(len(last))
        precision, recall = np.append(1, num_hits / (last + 1)), np.append(0, recall)
        areas.append(np.diff(recall) @ (precision[1:] + precision[:-1]) / 2)
    return float(np.mean(areas))


def best_threshold(labels: npt.ArrayLike, probabilities: npt.ArrayLike, *, counts_others: bool = False) -> float:
    """Return the threshold of probabilities, float32 [N], with the highest F1; the labels are bool [N].

    An example is in the class if its probability is above the threshold: probabilities of 0.1, 0.2 and 0.4, the last
    two in the class, give 0.15. The threshold is a float32 between two probabilities, or 0 or 1 if all or no examples
    should be in the class. It is 0.5 if none is better; otherwise the best one that is closest to it.
    """
    order = np.argsort(probabilities, kind="stable")
    sorted_probabilities = np.asarray(probabilities, np.float32)[order]
    num_positive = np.concatenate([[0], np.cumsum(np.asarray(labels, bool)[order])])  # among the lowest 0 to N
    steps = np.flatnonzero(np.diff(sorted_probabilities)) + 1
    low, high = sorted_probabilities[steps - 1], sorted_probabilities[steps]
    # The middle of two neighbouring floats is one of them.
    middles = np.minimum(low + (high - low) / 2, np.nextafter(high, np.float32(0)))
    thresholds = np.concatenate([np.float32([0.5, 0, 1]), middles])
    num_rejected = np.searchsorted(sorted_probabilities, thresholds, side="right")
    num_examples, total = len(sorted_probabilities), num_positive[-1]
    missed = num_positive[num_rejected]
    scores = 2 * (total - missed) / np.maximum(total + num_examples - num_rejected, 1)
    if counts_others:
        scores += 2 * (num_rejected - missed) / np.maximum(num_examples - total + num_rejected, 1)
    best = thresholds[scores == scores.max()]
    return float(best[np.abs(best - 0.5).argmin()])


# Metrics by the names that data sets declare and runs report.
_ALL = (
    *(accuracy, f1, accuracy_f1_mean, matthews_correlation, pearson, spearman, pearson_spearman_mean),
    *(macro_f1, micro_f1, binary_f1),
)
METRICS = {metric.__name__: metric for metric in _ALL}
PROBABILITY_METRICS = {"auprc": auprc}  # these compare classes with probabilities
_NUM_BINS = 10  # of confidences


def _pair(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    if labels.shape != predictions.shape:  # broadcasting would give a meaningless number
        raise ValueError(f"labels are of shape {labels.shape}, predictions of shape {predictions.shape}")
    return labels, predictions


def _f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    total = np.count_nonzero(labels) + np.count_nonzero(predictions)
    return 2 * np.count_nonzero(labels & predictions) / max(total, 1)  # a total of 0 means no hits either


def _direction(values: np.ndarray) -> np.ndarray:
    """Return the deviations from the mean, float64 [N], scaled to length 1; zeros if all values are equal."""
    values = values.astype(np.float64)
    if (values == values[:1]).all():  # rounding of the mean could make the deviations nonzero
        return np.zeros_like(values)
    deviations = values - values.mean()
    deviations /= np.abs(deviations).max()  # squares of tiny or huge values would underflow or overflow
    return deviations / np.linalg.norm(deviations)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value, float64 [N], from 1."""
    _, position, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[position]


class ConfidenceBin(NamedTuple):
    """The predictions with a confidence in an interval."""

    low: float  # lower bound, exclusive except for 0
    high: float  # upper bound, inclusive
    count: int  # number of predictions
    confidence: float  # mean confidence; 0 if there are no predictions
    accuracy: float  # fraction of correct predictions; 0 if there are none


def confidence_bins(
    confidences: npt.ArrayLike, is_correct: npt.ArrayLike, *, num_bins: int = 10
) -> list[ConfidenceBin]:
    """Sort predictions into confidence intervals of equal width, as for a reliability diagram.

    Confidences are float [N], each from 0 to 1, and correctness is bool [N]. Source: Guo et al. 2017, "On Calibration
    of Modern Neural Networks", section 2.
    """
    confidences, is_correct = np.asarray(confidences, np.float64), np.asarray(is_correct, bool)
    if confidences.shape != is_correct.shape:
        raise ValueError(f"confidences are of shape {confidences.shape}, is_correct of shape {is_correct.shape}")
    if not ((confidences >= 0) & (confidences <= 1)).all():
        raise ValueError("a confidence is not from 0 to 1")
    edges = np.linspace(0, 1, _NUM_BINS + 1)
    places = np.clip(np.searchsorted(edges, confidences, side="left") - 1, 0, _NUM_BINS - 1)  # [N]
    counts = np.bincount(places, minlength=_NUM_BINS)
    sums = np.bincount(places, weights=confidences, minlength=_NUM_BINS)
    hits = np.bincount(places, weights=is_correct, minlength=_NUM_BINS)
    divisors = np.maximum(counts, 1)
    columns = (edges[:-1], edges[1:], counts, sums / divisors, hits / divisors)
    return [ConfidenceBin(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]


def expected_calibration_error(bins: Sequence[ConfidenceBin]) -> float:
    """Return the mean distance between confidence and accuracy over all predictions; 0.0 if there are none.

    Source: Guo et al. 2017, equation 3.
    """
    total = sum(part.count for part in bins)
    return sum(part.count * abs(part.accuracy - part.confidence) for part in bins) / max(total, 1)
