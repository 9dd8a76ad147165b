"""Exports of every script predict the same as the script."""

import json
import os
import random

import numpy as np
import pytest
import tensorflow as tf

from official_bert.serving.servable import IDS_SCHEMA
from tests.conftest import GOLDEN, golden_arrays, run_here
from tests.exports import LABELS, TOLERANCE, assert_are_records, predicted
from tests.sentences import sentence

SPAN_LENGTHS = {"max_seq_length": 64, "doc_stride": 24, "max_query_length": 16}
WINDOWS = {"long_text": "window", "window_pooling": "max", "doc_stride": 7, "max_windows": 4, "max_seq_length": 16}


@pytest.mark.endurance
def test_a_classifier_of_windows(one_layer_model, tmp_path):
    rng = random.Random(2)
    for split, count in (("train", 24), ("test", 7)):
        with open(tmp_path / f"{split}.jsonl", "w") as sink:
            for number in range(count):
                row = {
                    "text": sentence(rng, number % 2, num_words=60), "other": sentence(rng, number % 3 > 1),
                    "score": number % 5, "label": LABELS[number % 3],
                }  # fmt: skip
                sink.write(json.dumps(row) + "\n")
    flags = {
        **one_layer_model, "task_name": "custom", "data_dir": str(tmp_path), "text_a_column": "text",
        "text_b_column": "other", "label_column": "label", "train_file": "train.jsonl", "predict_file": "test.jsonl",
        "output_dir": str(tmp_path / "out"), "export_dir": str(tmp_path / "serving"), "train_batch_size": 8,
        "learning_rate": 1e-3, "num_train_epochs": 1.0, **WINDOWS,
    }  # fmt: skip
    run_here("run_classifier", **flags, do_train=True, do_predict=True, do_export=True)
    expected = predicted(flags["output_dir"])
    rows = [json.loads(line) for line in (tmp_path / "test.jsonl").read_text().splitlines()]
    inputs = [(row["text"], row["other"]) for row in rows]

    loaded = tf.saved_model.load(os.path.join(flags["export_dir"], "1")).signatures
    columns = [tf.constant(column) for column in zip(*inputs, strict=True)]
    answers = loaded["text"](text_a=columns[0], text_b=columns[1])
    ids = loaded["tokenize"](text_a=columns[0], text_b=columns[1])
    from_ids = loaded["serving_default"](**ids)
    np.testing.assert_allclose(answers["probabilities"], expected, atol=TOLERANCE)
    np.testing.assert_allclose(from_ids["probabilities"], expected, atol=TOLERANCE)
    assert ids["input_ids"].shape[1] > 2 * 16
    records = assert_are_records(ids, str(tmp_path / "out" / "predict.tf_record"), 16 * flags["max_windows"])
    answers = loaded["examples"](examples=tf.constant(records))
    np.testing.assert_allclose(answers["probabilities"], expected, atol=TOLERANCE)


@pytest.mark.slow
def test_position_scores_are_those_of_the_reference(files_of_model, tmp_path, caplog):
    flags = {
        **files_of_model, **SPAN_LENGTHS, "init_checkpoint": str(GOLDEN / "squad" / "model.ckpt"),
        "output_dir": str(tmp_path / "out"), "export_dir": str(tmp_path / "serving"),
    }  # fmt: skip
    run_here("run_squad", **flags, do_export=True)
    assert "its best answer differs from that in predictions.json for some questions" in caplog.text
    assert "export with answer_alignment=offsets" in caplog.text
    golden, inputs = golden_arrays("squad/activations.npz"), golden_arrays("pretraining_model/activations.npz")
    inputs = {name: inputs[f"in/{name}"] for name in IDS_SCHEMA.names}
    signature = tf.saved_model.load(str(tmp_path / "serving" / "1")).signatures["serving_int64"]
    scores = signature(**{name: tf.constant(values, tf.int64) for name, values in inputs.items()})
    is_token = inputs["input_mask"] == 1
    for name in ("start_logits", "end_logits"):
        np.testing.assert_allclose(scores[name].numpy()[is_token], golden[name][is_token], atol=TOLERANCE)
        assert (scores[name].numpy()[~is_token] < -1e6).all()
