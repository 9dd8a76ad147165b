"""The labels that a finished run leaves in its output folder."""

import json

import pytest

from official_bert.support.errors import UserError
from official_bert.training.run_folder import (
    LABELS_FILE,
    check_label_order,
    check_same_labels,
    read_labels,
    read_trained_labels,
    write_labels,
)


def test_labels_come_back_in_order(tmp_path):
    labels = ("O", "B-위치", 'I-"quoted"', "B-PER")
    write_labels(str(tmp_path), labels)
    assert read_labels(str(tmp_path)) == list(labels)
    text = (tmp_path / LABELS_FILE).read_text(encoding="utf-8")
    assert json.loads(text) == list(labels)
    assert "위치" in text


def test_a_folder_without_labels_has_none(tmp_path):
    assert read_labels(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("text", "message"), [('["O", 1]', "damaged"), ('{"O": 0}', "must be a list"), ('["O"', "not JSON")]
)
def test_damaged_labels_are_refused(tmp_path, text, message):
    (tmp_path / LABELS_FILE).write_text(text)
    with pytest.raises(UserError, match=message) as error:
        read_labels(str(tmp_path))
    assert LABELS_FILE in str(error.value)


def test_other_labels_than_those_of_the_checkpoints_are_refused(tmp_path):
    check_same_labels(str(tmp_path), ["O", "B-PER"])  # the labels are unknown
    write_labels(str(tmp_path), ["O", "B-PER"])
    check_same_labels(str(tmp_path), ("O", "B-PER"))
    for other in (["B-PER", "O"], ["O"]):
        with pytest.raises(UserError, match="the tags are .* checkpoints in .* were trained with 'O', 'B-PER'"):
            check_same_labels(str(tmp_path), other, noun="tags")


def test_weights_that_are_not_trained_further_keep_their_labels(tmp_path):
    output_dir, init_checkpoint = str(tmp_path / "out"), str(tmp_path / "other" / "model.ckpt-3")
    assert read_trained_labels(output_dir, None) is None
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"id2label": {"1": "b", "0": "a"}}')  # from Hugging Face
    assert read_trained_labels(output_dir, init_checkpoint) == ["a", "b"]
    check_label_order(init_checkpoint, ["a", "b"])
    check_label_order(init_checkpoint, ["yes", "no"])  # either other names or other labels
    with pytest.raises(UserError, match=r"the labels are 'b', 'a', but .* the order 'a', 'b'; give them in that order"):
        check_label_order(init_checkpoint, ["b", "a"])
    (tmp_path / "out").mkdir()
    write_labels(output_dir, ["c"])
    assert read_trained_labels(output_dir, init_checkpoint) == ["c"]
