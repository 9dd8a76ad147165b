"""Exports of every script predict the same as the script."""

import json
import os
import random

import numpy as np
import pytest
import tensorflow as tf

from official_bert.inference.predictor import Predictor
from official_bert.serving.servable import IDS_SCHEMA
from tests.conftest import GOLDEN, golden_arrays, run_here
from tests.exports import LABELS, TOLERANCE, ask, assert_are_records, predicted
from tests.sentences import sentence

SPAN_LENGTHS = {"max_seq_length": 64, "doc_stride": 24, "max_query_length": 16}

KINDS = {
    "several labels": {"multi_label": True, "label_column": "tags"},
    "windows": {
        "long_text": "window",
        "window_pooling": "max",
        "doc_stride": 7,
        "max_windows": 4,
        "max_seq_length": 16,
    },
    "features": {"trainable_encoder": False, "feature_layers": "weighted_sum"},
}


# Each is trained, exported and called in a separate process.
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_classifier(files_of_model, one_layer_config_file, tmp_path, kind):
    rng = random.Random(2)
    for split, count in (("train", 24), ("test", 7)):
        with open(tmp_path / f"{split}.jsonl", "w") as sink:
            for number in range(count):
                row = {
                    "text": sentence(rng, number % 2, num_words=60), "other": sentence(rng, number % 3 > 1),
                    "score": number % 5, "tags": list(LABELS[: number % 4]), "label": LABELS[number % 3],
                }  # fmt: skip
                sink.write(json.dumps(row) + "\n")
    flags = {
        **files_of_model, "task_name": "custom", "data_dir": str(tmp_path), "text_a_column": "text",
        "text_b_column": "other", "label_column": "label", "train_file": "train.jsonl", "predict_file": "test.jsonl",
        "output_dir": str(tmp_path / "out"), "export_dir": str(tmp_path / "serving"), "max_seq_length": 32,
        "train_batch_size": 8, "learning_rate": 1e-3, "num_train_epochs": 1.0, **KINDS[kind],
    }  # fmt: skip
    if "feature_layers" not in flags:
        flags["bert_config_file"] = one_layer_config_file
    run_here("run_classifier", **flags, do_train=True, do_predict=True, do_export=True)
    expected = predicted(flags["output_dir"])
    rows = [json.loads(line) for line in (tmp_path / "test.jsonl").read_text().splitlines()]
    inputs = [(row["text"], row["other"]) for row in rows]

    results = Predictor(flags["export_dir"])(inputs)
    loaded = tf.saved_model.load(os.path.join(flags["export_dir"], "1")).signatures
    columns = [tf.constant(column) for column in zip(*inputs, strict=True)]
    ids = loaded["tokenize"](text_a=columns[0], text_b=columns[1])
    from_ids = loaded["serving_default"](**ids)
    labels = json.loads((tmp_path / "out" / "labels.json").read_text())
    found = [[result.probabilities[label] for label in labels] for result in results]
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    np.testing.assert_allclose(from_ids["probabilities"], expected, atol=TOLERANCE)
    if kind == "windows":
        assert ids["input_ids"].shape[1] > 2 * 16
        records = assert_are_records(ids, str(tmp_path / "out" / "predict.tf_record"), 16 * flags["max_windows"])
        answers = loaded["examples"](examples=tf.constant(records))
        np.testing.assert_allclose(answers["probabilities"], expected, atol=TOLERANCE)


@pytest.mark.slow
@pytest.mark.endurance
def test_question_answering_gives_what_run_squad_predicted(files_of_model, one_layer_config_file, tmp_path, caplog):
    flags = {
        **files_of_model, **SPAN_LENGTHS, "bert_config_file": one_layer_config_file,
        "init_checkpoint": str(GOLDEN / "squad" / "model.ckpt"),
        "predict_file": str(GOLDEN / "inputs" / "squad_v1.json"), "output_dir": str(tmp_path / "out"),
        "answer_alignment": "offsets", "export_dir": str(tmp_path / "serving"),
    }  # fmt: skip
    run_here("run_squad", **flags, do_predict=True, do_export=True, export_top_k=3)
    assert "answer_alignment" not in caplog.text
    predictions = json.loads((tmp_path / "out" / "predictions.json").read_text())
    best = json.loads((tmp_path / "out" / "nbest_predictions.json").read_text())
    content = json.loads((GOLDEN / "inputs" / "squad_v1.json").read_text())
    rows = [
        (entry["id"], entry["question"], paragraph["context"])
        for article in content["data"]
        for paragraph in article["paragraphs"]
        for entry in paragraph["qas"]
    ]
    names, questions, contexts = zip(*rows, strict=True)
    texts = {"question": questions, "context": contexts}
    answer, ids = ask(str(tmp_path / "serving" / "1"), [["text", texts], ["tokenize", texts]], tmp_path)
    assert np.array(answer["answers"]).shape == (len(rows), 3)
    for row, name in enumerate(names):
        assert answer["answers"][row][0] == predictions[name]
        start, end = answer["starts"][row][0], answer["ends"][row][0]
        assert contexts[row][start:end] == predictions[name]
        wanted = [entry["probability"] for entry in best[name][:3]]
        assert answer["probabilities"][row] == pytest.approx(wanted, abs=TOLERANCE)

    flat = {name: [row for rows in values for row in rows] for name, values in ids.items()}
    is_window = [mask[0] == 1 for mask in flat["input_mask"]]
    flat = {name: [row for row, kept in zip(rows, is_window, strict=True) if kept] for name, rows in flat.items()}
    assert_are_records(flat, str(tmp_path / "out" / "eval.tf_record"), 64)
    scores = tf.saved_model.load(str(tmp_path / "serving" / "1")).signatures["serving_default"](
        **{name: tf.constant(rows) for name, rows in flat.items()}
    )
    assert scores["start_logits"].shape == np.array(flat["input_ids"]).shape
    trained_answers = Predictor(str(tmp_path / "serving"))(list(zip(questions, contexts, strict=True)))
    assert [found[0].text for found in trained_answers] == list(predictions.values())


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
