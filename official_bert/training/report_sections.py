"""Sections of the evaluation report that several tasks share; see `visualization/report_page.py`."""

from collections.abc import Sequence

import numpy as np

from official_bert.metrics.calibration import confidence_bins, expected_calibration_error
from official_bert.visualization.report_page import Bar, Bars, Mistake, Mistakes, Reliability, length_bins, percent


def reliability_section(confidences: np.ndarray, is_correct: np.ndarray, note: str) -> Reliability:
    """Compare the confidences of predictions with their accuracy.

    Args:
      confidences: float [N], the probability of each prediction.
      is_correct: bool [N].
      note: what a prediction is.
    """
    are_numbers = np.isfinite(confidences)
    # A float32 softmax may exceed 1 by rounding.
    bins = confidence_bins(np.clip(confidences[are_numbers], 0, 1), is_correct[are_numbers])
    error = expected_calibration_error(bins)
    note = (
        f"Expected calibration error {error:.4f}: the mean distance between confidence and accuracy over {len(bins)} "
        f"intervals (Guo et al. 2017). Below the dashed line the model is overconfident. {note}"
    )
    return Reliability(title="Calibration", bins=bins, note=note)


def accuracy_by_length(lengths: Sequence[int], is_correct: np.ndarray) -> Bars:
    """Count correct predictions by the length of their texts.

    Args:
      lengths: the number of wordpieces of each of N texts.
      is_correct: bool [N].
    """
    places, names = length_bins(lengths)
    totals = np.bincount(places, minlength=len(names)).tolist()
    hits = np.bincount(places[is_correct], minlength=len(names)).tolist()
    bars = [
        Bar(name, (num_right, total - num_right), percent(num_right / total) if total else "")
        for name, num_right, total in zip(names, hits, totals, strict=True)
    ]
    note = "Above each bar: the fraction of correct predictions. Lengths are those before truncation."
    return Bars(title="Length", parts=("right", "wrong"), bars=bars, axis="wordpieces", note=note)


def mistakes_section(mistakes: Sequence[Mistake], num_wrong: int, num_examples: int, order: str) -> Mistakes:
    """List the most confident mistakes.

    Args:
      mistakes: the first ones.
      num_wrong: number of all mistakes.
      num_examples: number of examples.
      order: their order, such as "by the probability of the wrong label".
    """
    note = f"{num_wrong:,} of {num_examples:,} examples are wrong."
    if num_wrong > len(mistakes):
        note = f"{note} These are the first {len(mistakes)} {order}."
    return Mistakes(title="Most confident mistakes", mistakes=mistakes, note=note)
