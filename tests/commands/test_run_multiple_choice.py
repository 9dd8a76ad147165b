"""`run_multiple_choice` on generated data: training, evaluation, prediction, export, distillation, invalid flags."""

import json
import random

import numpy as np
import pytest

from official_bert.inference.predictor import Predictor
from official_bert.tasks.multiple_choice.options import MultipleChoiceConfig
from tests.commands.conftest import converted, json_lines, results_of, table
from tests.conftest import prints_error, run_here


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, vocab_file):
    """Folder of examples with two kinds of words as right and wrong choices; in `dev.jsonl`, some have five."""
    folder, rng = tmp_path_factory.mktemp("choices"), random.Random(2)
    with open(vocab_file, encoding="utf-8") as source:
        words = [line.strip() for line in source if line.strip().isalpha() and len(line) > 4]
    for name, count, most in (("train", 64, 4), ("dev", 24, 5)):
        rows = []
        for number in range(count):
            choices = rng.sample(words[10:20], rng.randrange(2, most + 1))
            label = rng.randrange(len(choices))
            choices[label] = rng.choice(words[:10])
            rows.append({"id": f"n{number}", "c": " ".join(rng.sample(words, 3)), "o": choices, "l": label})
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def settings(data_dir, one_layer_model, tmp_path):
    return {
        **one_layer_model, "data_dir": str(data_dir), "train_file": "train.jsonl", "eval_file": "dev.jsonl",
        "context_column": "c", "choice_columns": "o", "label_column": "l", "output_dir": str(tmp_path / "out"),
        "max_seq_length": 16, "train_batch_size": 16, "learning_rate": 1e-3, "do_train": True,
    }  # fmt: skip


def run(settings, **more):
    run_here("run_multiple_choice", **settings | more)


@pytest.mark.slow
def test_a_run_learns_predicts_and_exports(settings, data_dir, tmp_path):
    export = {"do_export": True, "export_dir": str(tmp_path / "serving"), "export_format": "tflite"}
    options = {"num_train_epochs": 8.0, "eval_steps": 16, "gradient_accumulation_steps": 2, **export}
    run(settings, **options, do_eval=True, do_predict=True, predict_file="dev.jsonl")
    scores = results_of(settings)
    assert scores["global_step"] == 32
    assert scores["eval_accuracy"] > 0.8
    header, *rows = table(settings["output_dir"], "predictions.tsv")
    assert header == ["id", "prediction", "choice", "probability", "p0", "p1", "p2", "p3", "p4"]
    assert {len(row) for row in rows} == {len(header)}
    examples = json_lines(data_dir / "dev.jsonl")
    assert [row[0] for row in rows] == [example["id"] for example in examples]
    hits = [int(row[1]) == example["l"] for row, example in zip(rows, examples, strict=True)]
    assert np.mean(hits) == pytest.approx(scores["eval_accuracy"])
    assert "Most confident mistakes" in (tmp_path / "out" / "report.html").read_text()

    theirs = converted(settings["output_dir"], tmp_path / "hf")
    assert json.loads((theirs / "config.json").read_text())["architectures"] == ["BertForMultipleChoice"]
    texts = [(example["c"], example["o"]) for example in examples]
    for folder in (settings["output_dir"], export["export_dir"], theirs):
        for row, found in zip(rows, Predictor(folder)(texts), strict=True):
            assert row[1:3] == [str(found.number), found.text]
            shown = [float(cell) for cell in row[4 : 4 + len(found.probabilities)]]
            np.testing.assert_allclose(found.probabilities, shown, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context_column": None}, "--task_name=custom needs --context_column"),
        ({"choice_columns": None}, "--task_name=custom needs --choice_columns"),
        ({"train_file": None}, "--do_train needs --train_file"),
        ({"label_column": None}, "--do_train needs --label_column"),
        ({"question_column": "o"}, "the flags name the column o twice"),
        ({"task_name": "swag"}, "--context_column"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(settings, changes, message):
    with prints_error(message):
        MultipleChoiceConfig(**settings | changes)
