"""Confidence and accuracy by interval, compared with counting one prediction at a time."""

import numpy as np
import pytest

from official_bert.metrics.classification import confidence_bins, expected_calibration_error


def test_bins_and_error_are_those_of_counting_one_by_one():
    rng = np.random.default_rng(1)
    confidences = np.concatenate([rng.random(500).round(2), [0.0, 0.1, 0.5, 1.0]])
    is_correct = rng.random(len(confidences)) < confidences**2
    members = [[] for _ in range(10)]
    for confidence, hit in zip(confidences, is_correct, strict=True):
        # An upper end belongs to its interval; 0 belongs to the first one.
        members[max(0, int(np.ceil(round(100 * confidence) / 10)) - 1)].append((confidence, hit))
    bins = confidence_bins(confidences, is_correct)
    assert [part.count for part in bins] == [len(part) for part in members]
    assert [part.high for part in bins] == pytest.approx([(number + 1) / 10 for number in range(10)])
    assert [part.low for part in bins[1:]] == [part.high for part in bins[:-1]]
    error = 0
    for part, expected in zip(bins, members, strict=True):
        mean, share = np.mean(expected, axis=0)
        assert (part.confidence, part.accuracy) == pytest.approx((mean, share))
        error += len(expected) / len(confidences) * abs(mean - share)
    assert expected_calibration_error(bins) == pytest.approx(error)
    assert expected_calibration_error(confidence_bins([], [])) == 0


@pytest.mark.parametrize("confidences", [[0.5], [0.5, 1.1], [0.5, np.nan], [-0.1, 0.5]])
def test_other_numbers_are_refused(confidences):
    with pytest.raises(ValueError, match="confidence"):
        confidence_bins(confidences, [True, False])
