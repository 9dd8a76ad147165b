"""Scores and calibration, compared with scikit-learn, SciPy and manual sums, and divisions by zero."""

import functools
import warnings

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from official_bert.metrics import classification
from official_bert.metrics.classification import (
    METRICS,
    PROBABILITY_METRICS,
    best_threshold,
    class_counts,
    confidence_bins,
    confusion_matrix,
    expected_calibration_error,
)

pytestmark = pytest.mark.filterwarnings("ignore:A single label was found:UserWarning")  # by scikit-learn

PEERS = {
    "accuracy": sklearn.metrics.accuracy_score,
    "f1": lambda labels, predictions: sklearn.metrics.f1_score(labels, predictions, zero_division=0),
    "matthews_correlation": sklearn.metrics.matthews_corrcoef,
    "pearson": lambda labels, predictions: scipy.stats.pearsonr(labels, predictions).statistic,
    "spearman": lambda labels, predictions: scipy.stats.spearmanr(labels, predictions).statistic,
    "macro_f1": functools.partial(sklearn.metrics.f1_score, average="macro", zero_division=0),
    "micro_f1": functools.partial(sklearn.metrics.f1_score, average="micro", zero_division=0),
}


def class_pairs(rng, num_classes):
    """Return true and predicted classes: rare and missing ones, good and bad predictions."""
    shares = rng.dirichlet([0.5] * num_classes)
    labels = rng.choice(num_classes, rng.integers(1, 60), p=shares)
    guesses = rng.choice(num_classes, len(labels))
    return labels, np.where(rng.random(len(labels)) < rng.random(), labels, guesses)


@pytest.mark.parametrize(
    ("name", "most"),
    [("accuracy", 3), ("f1", 3), ("matthews_correlation", 3), ("matthews_correlation", 8), ("macro_f1", 8)],
)
def test_scores_are_those_of_scikit_learn(name, most):
    rng = np.random.default_rng(most)
    for _ in range(30):
        labels, predictions = class_pairs(rng, rng.integers(2, most))
        assert METRICS[name](labels, predictions) == pytest.approx(PEERS[name](labels, predictions), abs=1e-12)


@pytest.mark.filterwarnings("ignore:No positive class found:UserWarning")  # by scikit-learn
def test_scores_of_klue_are_those_of_its_baseline():
    rng = np.random.default_rng(6)
    for _ in range(20):
        labels, predictions = class_pairs(rng, 6)
        expected = sklearn.metrics.f1_score(labels, predictions, labels=range(1, 6), average="micro", zero_division=0)
        assert METRICS["micro_f1"](labels, predictions) == pytest.approx(expected, abs=1e-12)
        numbers = (labels + rng.random(len(labels)), predictions + rng.random(len(labels)))
        expected = sklearn.metrics.f1_score(*(values >= 3 for values in numbers), zero_division=0)
        assert METRICS["binary_f1"](*numbers) == pytest.approx(expected, abs=1e-12)
        probabilities = rng.dirichlet([0.3] * 6, len(labels)).round(2)  # ties, and classes without examples
        curves = [sklearn.metrics.precision_recall_curve(labels == c, probabilities[:, c])[:2] for c in range(6)]
        expected = np.mean([sklearn.metrics.auc(recall, precision) for precision, recall in curves])
        assert PROBABILITY_METRICS["auprc"](labels, probabilities) == pytest.approx(expected, abs=1e-12)


def assert_scored_as_scikit_learn(counts, labels, predictions):
    expected = sklearn.metrics.precision_recall_fscore_support(labels, predictions, labels=range(5), zero_division=0)
    np.testing.assert_allclose([counts.precision, counts.recall, counts.f1, counts.gold], expected, atol=1e-12)


def test_confusion_matrix_and_scores_of_each_class_are_those_of_scikit_learn():
    rng = np.random.default_rng(3)
    for _ in range(20):
        labels, predictions = class_pairs(rng, 5)
        expected = sklearn.metrics.confusion_matrix(labels, predictions, labels=range(5))
        np.testing.assert_array_equal(confusion_matrix(labels, predictions, 5), expected)
        assert_scored_as_scikit_learn(class_counts(labels, predictions, 5), labels, predictions)


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_correlations_are_those_of_scipy(name):
    rng = np.random.default_rng(4)
    for _ in range(60):
        labels = rng.integers(0, 26, rng.integers(3, 60)) / 5  # ties, as between human scores
        labels[0] += 1  # never constant
        predictions = labels * rng.normal() + rng.normal(size=len(labels)) * rng.choice([0.1, 1, 10])
        if rng.random() < 0.5:
            predictions = np.append(predictions.round()[:-1], 99)
        predictions = predictions.astype(rng.choice([np.float32, np.float64]))
        expected = PEERS[name](labels, predictions.astype(np.float64))
        assert METRICS[name](labels, predictions) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("name", ["macro_f1", "micro_f1"])
def test_multi_label_scores_equal_those_of_scikit_learn(name):
    rng = np.random.default_rng(5)
    for _ in range(20):
        shape = (rng.integers(1, 30), rng.integers(2, 6))
        labels, predictions = rng.random(shape) < rng.random(), rng.random(shape) < rng.random(shape[1])
        assert METRICS[name](labels, predictions) == pytest.approx(PEERS[name](labels, predictions), abs=1e-12)
    labels, predictions = rng.integers(0, 2, size=(2, 20, 5))
    assert_scored_as_scikit_learn(class_counts(labels, predictions, 5), labels, predictions)


@pytest.mark.parametrize(
    ("name", "labels", "predictions"),
    [
        ("accuracy", [], []), ("f1", [0, 0], [0, 0]), ("pearson", [], []), ("spearman", [1.0, 2.0], [0.0, 0.0]),
        ("matthews_correlation", [0, 1, 1], [1, 1, 1]), ("matthews_correlation", [1, 1, 1], [0, 1, 1]),
        ("pearson", [1.0, 2.0, 3.0], [0.1] * 3),  # the mean of three 0.1 is not 0.1
        ("pearson", [0.1] * 3, [1.0, 2.0, 3.0]),
        ("macro_f1", [[False, False]], [[False, False]]), ("micro_f1", [[False, False]], [[False, False]]),
    ],
)  # fmt: skip
def test_undefined_scores_are_zero_without_a_warning(name, labels, predictions):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        score = METRICS[name](labels, predictions)
    assert score == 0.0 and isinstance(score, float)


def test_means_of_two_scores():
    labels, predictions = [1, 1, 1, 0, 0], [1, 0, 1, 1, 0]  # 2 hits, 1 missed, 1 false, 1 true negative
    assert classification.accuracy_f1_mean(labels, predictions) == pytest.approx((3 / 5 + 4 / 6) / 2)
    assert classification.pearson_spearman_mean([0, 0, 1], [0, 1, 10]) == pytest.approx(
        (classification.pearson([0, 0, 1], [0, 1, 10]) + np.sqrt(3) / 2) / 2
    )


def test_many_huge_and_tiny_values_do_not_overflow():
    labels = np.array([1.0, 2.0, 4.0])
    for scale in (1e-200, 1e200):
        assert classification.pearson(labels, labels * scale) == pytest.approx(1)
    labels = np.tile(np.array([0, 1], np.int8), 200_000)
    assert classification.matthews_correlation(labels, labels) == pytest.approx(1)
    assert confusion_matrix(np.array([127, 0], np.int8), np.array([127, 0], np.int8), 128)[127, 127] == 1


def test_shapes_that_differ_are_refused():
    for score in METRICS.values():
        with pytest.raises(ValueError, match=r"labels are of shape \(3, 1\), predictions of shape \(3,\)"):
            score(np.zeros((3, 1)), np.zeros(3))


@pytest.mark.parametrize(("counts_others", "metric"), [(False, "f1"), (True, "macro_f1")])
def test_no_threshold_is_better_than_the_best(counts_others, metric):
    rng = np.random.default_rng(5)
    for _ in range(60):
        labels = rng.random(rng.integers(1, 30)) < rng.random()
        probabilities = np.float32(rng.beta(0.5, 0.5, len(labels))).round(rng.integers(1, 4))  # with ties

        def score(threshold, labels=labels, probabilities=probabilities):
            scores = class_counts(labels.astype(int), (probabilities > threshold).astype(int), 2).f1
            return scores[1] if metric == "f1" else scores.mean()

        found = best_threshold(labels, probabilities, counts_others=counts_others)
        others = [0, 0.5, 1, *np.unique(probabilities)]
        best = max(map(score, others))
        assert score(found) == pytest.approx(best, abs=1e-12)
        if score(0.5) == pytest.approx(best, abs=1e-12):
            assert found == 0.5
        assert min(abs(found - probabilities)) > 1e-4 or found in (0, 0.5, 1)  # between two probabilities
    low = np.float32(0.3)
    high = np.nextafter(low, np.float32(1))
    assert low <= np.float32(best_threshold([False, True], [low, high])) < high


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
    for confidences in ([0.5], [0.5, 1.1], [0.5, np.nan], [-0.1, 0.5]):
        with pytest.raises(ValueError, match="confidence"):
            confidence_bins(confidences, [True, False])
