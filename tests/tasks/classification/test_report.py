"""Sections of a classifier's report, compared with counting one example at a time."""

import numpy as np
import pytest

from official_bert.metrics.classification import METRICS, confusion_matrix
from official_bert.tasks.classification.data import Dataset, TextExample
from official_bert.tasks.classification.report import report_sections
from official_bert.visualization.report_page import NUM_MISTAKES, report_page
from tests.reports import data_of

NAMES = ("bad", "good", "so-so")


def sections(problem, labels, probabilities, *, names=NAMES, lengths=None):
    """Return the sections by title, after a round trip through a page."""
    count = len(labels)
    texts = [(f"text {i}", f"second {i}" if i % 2 else None) for i in range(count)]
    made = report_sections(
        Dataset("made", {}, names, problem),
        [TextExample("dev-1", *pair, None, f"a, b.tsv, line {i}") for i, pair in enumerate(texts)],
        {"label_ids": np.asarray(labels), "probabilities": np.asarray(probabilities, np.float32)},
        scores={"eval_loss": 0.5},
        lengths=[7] * count if lengths is None else lengths,
    )
    return {section["title"]: section for section in data_of(report_page("made", made))["sections"]}


def test_single_labels():
    rng = np.random.default_rng(1)
    shares = rng.random([200, 3]).astype(np.float32)
    labels, probabilities = rng.integers(0, 3, 200), shares / shares.sum(axis=1, keepdims=True)
    lengths = rng.integers(3, 100, 200)
    found = sections("single_label", labels, probabilities, lengths=lengths)
    predicted = probabilities.argmax(axis=1)
    assert found["Confusion matrix"]["counts"] == confusion_matrix(labels, predicted, 3).tolist()
    assert found["Confusion matrix"]["names"] == list(NAMES)
    f1s = {name: float(f1) for name, *_, f1 in found["By label"]["rows"]}
    expected = [METRICS["f1"](labels == label, predicted == label) for label in range(3)]
    assert f1s == pytest.approx(dict(zip(NAMES, expected, strict=True)), abs=6e-4)
    is_right = labels == predicted
    bins = found["Calibration"]["bins"]
    assert sum(count for _, _, count, _, _ in bins) == 200
    assert sum(count * accuracy for _, _, count, _, accuracy in bins) == pytest.approx(sum(is_right))
    for low, (title, counts, text) in zip(range(0, 100, 10), found["Length"]["bars"], strict=True):
        is_in = lengths // 10 == low // 10
        assert (title, counts) == (f"{low}–{low + 9}", [sum(is_in & is_right), sum(is_in & ~is_right)])
        assert text == f"{100 * counts[0] / sum(counts):.1f}%"

    wrong = sorted(np.flatnonzero(~is_right), key=lambda row: -probabilities[row].max())
    mistakes = found["Most confident mistakes"]["mistakes"]
    assert [facts["example"] for facts, _ in mistakes] == [f"line {row}" for row in wrong[:NUM_MISTAKES]]
    facts, row = mistakes[0][0], wrong[0]
    assert (facts["gold"], facts["predicted"]) == (NAMES[labels[row]], NAMES[predicted[row]])
    assert facts["probability"] == f"{probabilities[row].max():.4f}"
    assert facts["of the gold label"] == f"{probabilities[row, labels[row]]:.4f}"
    texts = [parts[0][0] for _, parts in mistakes[0][1]]
    assert texts == [f"text {row}", *([f"second {row}"] if row % 2 else [])]
    assert found["Most confident mistakes"]["note"].startswith(f"{len(wrong)} of 200 examples are wrong.")


def test_several_labels():
    rng = np.random.default_rng(3)
    labels, probabilities = rng.random([80, 3]) < 0.4, rng.random([80, 3])
    found = sections("multi_label", labels.astype(np.int32), probabilities)
    assert "Confusion matrix" not in found
    f1s = [float(row[-1]) for row in found["By label"]["rows"]]
    assert np.mean(f1s) == pytest.approx(METRICS["macro_f1"](labels, probabilities > 0.5), abs=6e-4)
    assert sum(part[2] for part in found["Calibration"]["bins"]) == 240
    assert not any(part[2] for part in found["Calibration"]["bins"][:5])  # decisions are at least 0.5
    num_right = sum((row == (share > 0.5)).all() for row, share in zip(labels, probabilities, strict=True))
    assert found["Length"]["bars"] == [["7", [num_right, 80 - num_right], f"{100 * num_right / 80:.1f}%"]]

    def worst(row):
        pairs = zip(labels[row], probabilities[row].astype(np.float32), strict=True)
        return max((1 - share if label else share for label, share in pairs if label != (share > 0.5)), default=None)

    order = sorted((row for row in range(80) if worst(row) is not None), key=lambda row: -worst(row))
    mistakes = found["Most confident mistakes"]["mistakes"]
    assert [facts["example"] for facts, _ in mistakes] == [f"line {row}" for row in order[:NUM_MISTAKES]]
    for (facts, _), row in zip(mistakes, order, strict=False):
        chosen = {"gold": labels[row], "predicted": probabilities[row] > 0.5}
        for name, flags in chosen.items():
            expected = [label for label, flag in zip(NAMES, flags, strict=True) if flag]
            assert facts[name] == (",".join(expected) or "(none)")


def test_numbers():
    rng = np.random.default_rng(4)
    labels, predicted = (5 * rng.random(60)).astype(np.float32), (5 * rng.random([60, 1])).astype(np.float32)
    found = sections("regression", labels, predicted, names=())
    assert not {"Confusion matrix", "Calibration", "By label"} & found.keys()
    errors = predicted[:, 0].astype(float) - labels
    table = {name: float(value) for name, value in found["Errors"]["rows"]}
    assert table["mean"] == pytest.approx(errors.mean(), abs=6e-4)
    assert table["root of the mean square"] == pytest.approx(np.sqrt(np.mean(errors**2)), abs=6e-4)
    assert table["largest"] == pytest.approx(max(abs(errors)), abs=6e-4)
    np.testing.assert_allclose(
        found["Predicted over gold"]["points"], np.stack([labels, predicted[:, 0]], axis=1), rtol=1e-3
    )
    mistakes = found["Largest errors"]["mistakes"]
    assert [facts["example"] for facts, _ in mistakes] == [f"line {i}" for i in np.argsort(-abs(errors))[:NUM_MISTAKES]]
    assert found["Length"]["bars"] == [["7", [60], f"{abs(errors).mean():.2f}"]]


@pytest.mark.parametrize("problem", ["single_label", "multi_label", "regression"])
@pytest.mark.parametrize("value", [1.0, np.nan, 0.5])
def test_a_single_example_and_what_is_no_number_give_a_page(problem, value):
    labels = {"single_label": [1], "multi_label": [[0, 1]], "regression": [1.0]}[problem]
    found = sections(problem, labels, [[value]] if problem == "regression" else [[0.0, value]], names=("a", "b"))
    assert found["Scores"]["values"] == [["eval_loss", "0.5", "0.5"]]
    if problem != "regression" and value == 1.0:
        assert found["Most confident mistakes"]["mistakes"] == []
