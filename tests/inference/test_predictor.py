"""`Predictor` on exports and on output folders."""

import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_bert.config import bert_config
from official_bert.inference import predictor
from official_bert.inference.predictor import Predictor
from official_bert.support.errors import UserError
from tests.exports import LABELS, TOLERANCE, predicted, predicted_pairs


@pytest.mark.slow
def test_predictions_from_python(reviews, version, monkeypatch):
    pairs = [tuple(pair) for pair in predicted_pairs(reviews)]
    expected = predicted(reviews["output_dir"])
    for predict in map(Predictor, (version, reviews["output_dir"])):
        long, short = predict([("the town " * number, "") for number in (150_000, 40)])  # 32 positions of each are read
        assert long.probability == pytest.approx(short.probability, abs=TOLERANCE)
        result = predict(pairs * 4)
        assert len(result) == 4 * len(pairs)  # more than one batch
        for found, row in zip(result, np.tile(expected, (4, 1)), strict=True):
            assert found.label == sorted(LABELS)[row.argmax()]
            assert found.probability == pytest.approx(row.max(), abs=TOLERANCE)
            assert [found.probabilities[label] for label in sorted(LABELS)] == pytest.approx(row, abs=TOLERANCE)
            assert list(found.probabilities) == sorted(found.probabilities, key=found.probabilities.get, reverse=True)
    predict = Predictor(pathlib.Path(reviews["export_dir"]))
    assert predict(pairs[0]) == predict([pairs[0]])[0]
    assert predict([]) == []
    assert predict(("lone \ud800 surrogate", "")) == predict(("lone  surrogate", ""))
    assert predict(list(map(list, pairs[:2]))) == predict(pair for pair in pairs[:2])
    for wrong in (None, 5, b"bytes", {"a": "b"}):
        with pytest.raises(UserError, match="is not a text; give a string, a tuple of two, or a list of them"):
            predict(wrong)
    for wrong in ("one text", ("a", "b", "c"), ("a", 7), [None], [{"a": 1, "b": 2}]):
        with pytest.raises(UserError, match="text 0 is .*, but this model reads text_a and text_b, each a string"):
            predict(wrong)
    monkeypatch.setattr(predict._model, "text_names", ["text"])
    for wrong in (["b"], (["b"],), ("b", "c"), 7):
        with pytest.raises(UserError, match="text 1 is .*, but this model reads text, a string"):
            predict(["a", wrong])


@pytest.mark.slow
def test_texts_of_similar_length_are_predicted_together_within_the_limit(version, monkeypatch):
    predict = Predictor(version)
    texts = [("the town " * number, "") for number in (30, 1, 2, 1, 30, 2)]
    expected, real, batches = predict(texts), predict._model.answer, []

    def spied(texts):
        batches.append(list(map(len, texts["text_a"])))
        return real(texts)

    monkeypatch.setattr(predict._model, "answer", spied)
    monkeypatch.setattr(bert_config, "_MOST_NUMBERS", 3 * 22 * 3072)  # three texts of 18 characters and 4 positions
    found = predict(texts)
    assert batches == [[9, 9, 18], [18, 270], [270]]  # of the last texts the model reads 32 positions
    assert [one.probability for one in found] == pytest.approx([one.probability for one in expected], abs=TOLERANCE)
    monkeypatch.setattr(predictor, "BATCH_SIZE", 2)
    monkeypatch.setattr(bert_config, "_MOST_NUMBERS", 1 << 26)
    predict(texts)
    assert batches[3:] == [[9, 9], [18, 18], [270, 270]]


@pytest.mark.slow
def test_damaged_exports_without_checksums_are_named(version, tmp_path):
    def replace_first(folder, old, new):
        path = folder / "saved_model.pb"
        content = path.read_bytes()
        assert old in content
        path.write_bytes(content.replace(old, new, 1))

    for name, damage in {
        "no variables": lambda folder: shutil.rmtree(folder / "variables"),
        "cut off": lambda folder: os.truncate(folder / "saved_model.pb", 10_000),
        "cut off variables": lambda folder: os.truncate(folder / "variables" / "variables.data-00000-of-00001", 9_000),
        "no such output": lambda folder: replace_first(folder, b"Reshape:output:0", b"Reshape:output:q"),  # KeyError
        "no operation": lambda folder: replace_first(folder, b"\x12\x08GatherV2", b"\x12\x08GatherV7"),  # RuntimeError
    }.items():
        shutil.copytree(version, tmp_path / name)
        os.remove(tmp_path / name / "checksums.json")
        damage(tmp_path / name)
        with pytest.raises(UserError, match="cannot be loaded .* is it damaged"):
            Predictor(tmp_path / name)
    foreign = tf.Module()
    foreign.double = tf.function(lambda x: {"y": 2 * x}, input_signature=[tf.TensorSpec([None])])
    tf.saved_model.save(foreign, str(tmp_path / "foreign"), {"text": foreign.double})
    with pytest.raises(UserError, match="foreign is not a model that was exported"):
        Predictor(tmp_path / "foreign")


def test_folders_that_hold_no_model(reviews, tmp_path):
    for content, message in (
        (None, "contains neither an exported model nor the run_config.json of a run"),
        (pathlib.Path(reviews["output_dir"], "run_config.json").read_text(), "there is no checkpoint in"),
        ('{"task": "rhymes", "flags": {}}', "unknown task 'rhymes'; a newer version of official-bert has it"),
    ):
        if content:
            (tmp_path / "run_config.json").write_text(content)
        with pytest.raises(UserError, match=message):
            Predictor(str(tmp_path))
    for folder, options, message in (
        (tmp_path / "absent", {}, "there is no folder .*absent"),
        (reviews["output_dir"], {"use_best_checkpoint": True}, "no checkpoint in .*best; train with eval_steps first"),
        (reviews["output_dir"], {"vocab_file": "moved.txt"}, "moved.txt"),
        (reviews["export_dir"], {"vocab_file": "a"}, "is an export, which has all its files; leave out 'vocab_file'"),
        (reviews["output_dir"], {"top_k": 3}, "top_k is for words of .* a classifier gives all probabilities"),
    ):
        with pytest.raises(UserError, match=message):
            Predictor(folder, **options)


@pytest.mark.slow
def test_files_that_have_moved_since_training_may_be_given(reviews, tmp_path):
    shutil.copytree(reviews["output_dir"], tmp_path / "out")
    for name in ("bert_config.json", "vocab.txt"):  # earlier versions did not keep them there
        os.remove(tmp_path / "out" / name)
    settings = json.loads((tmp_path / "out" / "run_config.json").read_text())
    for name in ("vocab_file", "bert_config_file"):
        settings["flags"][name] = f"moved/{name}"
    (tmp_path / "out" / "run_config.json").write_text(json.dumps(settings))
    message = "was trained with moved/bert_config_file, which no longer exists; give its new path with bert_config_fil"
    with pytest.raises(UserError, match=message):
        Predictor(tmp_path / "out")
    paths = {name: reviews[name] for name in ("vocab_file", "bert_config_file")}
    found = Predictor(tmp_path / "out", **paths)(tuple(predicted_pairs(reviews)[0]))
    assert found.probability == pytest.approx(predicted(reviews["output_dir"])[0].max(), abs=TOLERANCE)
