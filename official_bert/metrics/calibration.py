"""Calibration: the agreement of the confidence of predictions with their accuracy."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class ConfidenceBin(NamedTuple):
    """The predictions with a confidence in an interval.

    Attributes:
      low: lower bound, exclusive except for 0.
      high: upper bound, inclusive.
      count: number of predictions.
      confidence: mean confidence; 0 if there are no predictions.
      accuracy: fraction of correct predictions; 0 if there are none.
    """

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


def confidence_bins(
    confidences: npt.ArrayLike, is_correct: npt.ArrayLike, *, num_bins: int = 10
) -> list[ConfidenceBin]:
    """Sort predictions into confidence intervals of equal width, as for a reliability diagram.

    Args:
      confidences: float [N], each from 0 to 1.
      is_correct: bool [N].
      num_bins: number of intervals, from 0 to 1.

    Raises:
      ValueError: the shapes differ, or a confidence is not from 0 to 1.
    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", section 2.
    """
    confidences, is_correct = np.asarray(confidences, np.float64), np.asarray(is_correct, bool)
    if confidences.shape != is_correct.shape:
        raise ValueError(f"confidences are of shape {confidences.shape}, is_correct of shape {is_correct.shape}")
    if not ((confidences >= 0) & (confidences <= 1)).all():
        raise ValueError("a confidence is not from 0 to 1")
    edges = np.linspace(0, 1, num_bins + 1)
    places = np.clip(np.searchsorted(edges, confidences, side="left") - 1, 0, num_bins - 1)  # [N]
    counts = np.bincount(places, minlength=num_bins)
    sums = np.bincount(places, weights=confidences, minlength=num_bins)
    hits = np.bincount(places, weights=is_correct, minlength=num_bins)
    divisors = np.maximum(counts, 1)
    columns = (edges[:-1], edges[1:], counts, sums / divisors, hits / divisors)
    return [ConfidenceBin(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]


def expected_calibration_error(bins: Sequence[ConfidenceBin]) -> float:
    """Return the mean distance between confidence and accuracy over all predictions; 0.0 if there are none.

    Args:
      bins: as returned by `confidence_bins`.

    Returns:
      A number from 0 to 1.
    Source: Guo et al. 2017, equation 3.
    """
    total = sum(part.count for part in bins)
    return sum(part.count * abs(part.accuracy - part.confidence) for part in bins) / max(total, 1)
