"""Tuned thresholds: the decisions that they make, and the file beside the checkpoint."""

import json

import numpy as np
import pytest

from official_bert.support.errors import UserError
from official_bert.tasks.classification.data import Dataset
from official_bert.tasks.classification.reader import results
from official_bert.tasks.classification.records import class_scores, predicted_label
from official_bert.tasks.classification.report import (
    check_tunable,
    with_stored_thresholds,
    with_tuned_thresholds,
    write_thresholds,
)

TWO = Dataset("custom", {}, ("bad", "good"))
SEVERAL = Dataset("custom", {}, ("a", "b", "c"), "multi_label")
OF_TWO = {
    "label_ids": np.array([0, 0, 1, 1]),
    "probabilities": np.float32([[0.9, 0.1], [0.7, 0.3], [0.6, 0.4], [0, 1]]),
}
OF_SEVERAL = {
    "label_ids": np.array([[0, 1, 0], [1, 1, 0], [1, 0, 0]]),
    "probabilities": np.float32([[0.1, 0.9, 0.2], [0.2, 0.8, 0.3], [0.4, 0.7, 0.9]]),
}


def test_tuned_thresholds_decide_what_is_scored_and_written():
    two, several = with_tuned_thresholds(TWO, OF_TWO), with_tuned_thresholds(SEVERAL, OF_SEVERAL)
    assert two.thresholds == pytest.approx([0.35])
    assert several.thresholds == pytest.approx([0.15, 0.75, 0.5])  # no example has the last label
    assert [predicted_label(TWO, row) for row in OF_TWO["probabilities"]] == ["bad", "bad", "bad", "good"]
    assert [predicted_label(two, row) for row in OF_TWO["probabilities"]] == ["bad", "bad", "good", "good"]
    assert [predicted_label(several, row) for row in OF_SEVERAL["probabilities"]] == ["b", "a,b", "a,c"]
    assert class_scores(TWO, OF_TWO)["eval_recall_good"] == 0.5
    assert class_scores(two, OF_TWO)["eval_recall_good"] == 1


def test_models_with_thresholds_answer_with_their_decisions():
    classes = np.array([[b"bad", b"good"], [b"good", b"bad"]], object)
    probabilities = np.float32([[0.75, 0.25], [0.25, 0.75]])
    outputs = {"classes": classes, "probabilities": probabilities}
    assert [result.label for result in results(outputs)] == ["bad", "good"]
    first, second = results({**outputs, "predicted": np.int32([1, 1])})
    assert first == ("good", 0.25, {"bad": 0.75, "good": 0.25})
    assert second == ("good", 0.75, {"good": 0.75, "bad": 0.25})
    first, second = results({**outputs, "is_predicted": np.array([[True, True], [True, False]])})
    assert first == ("bad", 0.75, {"bad": 0.75, "good": 0.25}, ["bad", "good"])
    assert second == ("good", 0.75, {"good": 0.75, "bad": 0.25}, ["bad"])


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "model.ckpt-20.index").touch()
    return str(tmp_path / "model.ckpt-20")


@pytest.mark.parametrize(("dataset", "predictions"), [(TWO, OF_TWO), (SEVERAL, OF_SEVERAL)])
def test_thresholds_belong_to_a_checkpoint(checkpoint, tmp_path, caplog, dataset, predictions):
    assert with_stored_thresholds(dataset, checkpoint) is dataset
    tuned = with_tuned_thresholds(dataset, predictions)
    write_thresholds(checkpoint, tuned)
    assert with_stored_thresholds(dataset, checkpoint) == tuned
    (tmp_path / "model.ckpt-30.index").touch()
    assert with_stored_thresholds(dataset, str(tmp_path / "model.ckpt-30")) is dataset
    assert "thresholds.json is of step 20 and is not used with " in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        *("{}", '{"thresholds": {"bad": 0.5}}', '{"thresholds": {"good": 1.5}}', '{"thresholds": {"good": true}}'),
        '{"thresh',
    ],
)
def test_a_damaged_file_is_named(checkpoint, tmp_path, content):
    (tmp_path / "thresholds.json").write_text(content)
    with pytest.raises(UserError, match=r"thresholds.json (does not fit: .* for 'good'; delete it|is not JSON)"):
        with_stored_thresholds(TWO, checkpoint)


def test_three_labels_of_which_one_is_chosen_have_no_thresholds(checkpoint, tmp_path):
    dataset = Dataset("custom", {}, ("a", "b", "c"))
    with pytest.raises(UserError, match="needs two labels, or several .* the labels of custom are 'a', 'b', 'c'"):
        check_tunable(dataset)
    (tmp_path / "thresholds.json").write_text(json.dumps({"global_step": 20, "thresholds": {"b": 0.5, "c": 0.5}}))
    with pytest.raises(UserError, match="does not fit"):
        with_stored_thresholds(dataset, checkpoint)
