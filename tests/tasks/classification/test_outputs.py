"""The scores of each class: their names, whatever the labels are, and what `eval_results.txt` keeps of them."""

import numpy as np

from official_bert.tasks.classification.datasets.labels import Dataset
from official_bert.tasks.classification.outputs import class_scores
from official_bert.training.results import read_results
from official_bert.training.summaries import write_results


def test_labels_of_any_characters_have_scores_that_can_be_read_back(tmp_path):
    labels = ("a = b", "a\tb", "a\\tb", "two\nlines", "zu h\xe4ufig", "\x1b[31m", " ", "f1")
    shown = ("a = b", r"a\tb", r"a\\tb", r"two\nlines", "zu h\xe4ufig", r"\x1b[31m", " ", "f1")
    gold = np.arange(len(labels))
    probabilities = np.eye(len(labels), dtype=np.float32)[[0, 0, *gold[2:]]]  # all right but the second
    predictions = {"label_ids": gold, "probabilities": probabilities}
    scores = class_scores(Dataset("custom", {}, labels), predictions, "_mismatched")
    path = str(tmp_path / "eval_results.txt")
    write_results(path, scores)
    read = read_results(path)
    assert read == scores and len(read) == 4 * len(labels)
    assert [read[f"eval_recall_{label}_mismatched"] for label in shown] == [1, 0, *[1] * 6]
    assert [read[f"eval_count_{label}_mismatched"] for label in shown] == [1] * 8
    assert read["eval_precision_a = b_mismatched"] == 0.5


def test_several_labels_have_the_scores_of_their_decisions_and_numbers_none():
    predictions = {"label_ids": np.array([[1, 0], [1, 1]]), "probabilities": np.float32([[0.9, 0.6], [0.2, 0.4]])}
    scores = class_scores(Dataset("custom", {}, ("a", "b"), "multi_label"), predictions)
    assert [scores[f"eval_{name}_a"] for name in ("precision", "recall", "count")] == [1, 0.5, 2]
    assert [scores[f"eval_{name}_b"] for name in ("precision", "recall", "f1", "count")] == [0, 0, 0, 1]
    assert class_scores(Dataset("custom", {}, (), "regression"), predictions) == {}
