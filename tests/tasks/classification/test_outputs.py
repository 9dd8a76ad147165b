"""The scores of each class, for any label names, and the readable table of predictions."""

import numpy as np

from official_bert.tasks.classification.data import Dataset, TextExample
from official_bert.tasks.classification.records import class_scores, write_readable_table
from official_bert.training.monitoring import write_results
from official_bert.training.run_folder import read_results


def test_labels_of_any_characters_have_scores_that_can_be_read_back(tmp_path):
    labels = ("a = b", "a\tb", "a\\tb", "two\nlines", "zu h\xe4ufig", "\x1b[31m", " ", "f1")
    shown = ("a = b", r"a\tb", r"a\\tb", r"two\nlines", "zu h\xe4ufig", r"\x1b[31m", " ", "f1")
    gold = np.arange(len(labels))
    probabilities = np.eye(len(labels), dtype=np.float32)[[0, 0, *gold[2:]]]  # all right except the second
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


def test_of_many_labels_each_example_has_the_most_likely(tmp_path):
    labels = tuple(f"l{number}" for number in range(101))
    probabilities = np.random.default_rng(1).dirichlet(np.ones(101), 2).astype(np.float32)
    path = tmp_path / "predictions.tsv"
    examples = [TextExample(f"test-{number}", "A.", None, None, "") for number in range(2)]
    write_readable_table(str(path), Dataset("custom", {}, labels), examples, probabilities)
    header, *rows = [line.split("\t") for line in path.read_text().splitlines()]
    assert header[:6] == ["guid", "text_a", "prediction", "probability", "label_1", "probability_1"]
    for row, shares in zip(rows, probabilities, strict=True):
        best = np.argsort(-shares)[:10]
        assert row[2] == row[4] and row[4::2] == [labels[number] for number in best]
        assert row[3] == row[5] and row[5::2] == [f"{share:.6f}" for share in shares[best]]


def test_predictions_keep_the_ids_of_the_table(tmp_path):
    dataset, probabilities = Dataset("custom", {}, ("p", "q")), np.float32([[0.25, 0.75], [1, 0]])
    examples = [
        TextExample(f"test-{number}", "A.", None, None, "", id=name) for number, name in enumerate(["a\tb", ""])
    ]
    path = tmp_path / "predictions.tsv"
    write_readable_table(str(path), dataset, examples, probabilities)
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    assert rows[0] == ["guid", "id", "text_a", "prediction", "probability", "p", "q"]
    assert [row[:4] for row in rows[1:]] == [["test-0", "a\\tb", "A.", "q"], ["test-1", "", "A.", "p"]]
    write_readable_table(str(path), dataset, [example._replace(id=None) for example in examples], probabilities)
    assert path.read_text().startswith("guid\ttext_a\tprediction")
