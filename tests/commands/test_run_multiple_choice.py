"""`run_multiple_choice` on generated data: training, evaluation, prediction, export, distillation, invalid flags."""

import json
import random

import numpy as np
import pytest

from official_bert.inference.predictor import Predictor
from official_bert.support.errors import UserError
from official_bert.tasks.multiple_choice.options import MultipleChoiceConfig
from tests.commands.conftest import json_lines, results_of
from tests.conftest import run_here


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
    options = {"num_train_epochs": 10.0, "eval_steps": 14, "gradient_accumulation_steps": 2}
    run(settings, **options, do_eval=True, do_predict=True, predict_file="dev.jsonl")
    scores = results_of(settings)
    assert scores["global_step"] == 40
    assert scores["eval_accuracy"] > 0.8
    header, *rows = [line.split("\t") for line in (tmp_path / "out" / "predictions.tsv").read_text().splitlines()]
    assert header == ["id", "prediction", "choice", "probability", "p0", "p1", "p2", "p3", "p4"]
    assert {len(row) for row in rows} == {len(header)}
    examples = json_lines(data_dir / "dev.jsonl")
    assert [row[0] for row in rows] == [example["id"] for example in examples]
    hits = [int(row[1]) == example["l"] for row, example in zip(rows, examples, strict=True)]
    assert np.mean(hits) == pytest.approx(scores["eval_accuracy"])
    assert "Most confident mistakes" in (tmp_path / "out" / "report.html").read_text()

    export = str(tmp_path / "serving")
    flags = {**settings, "do_train": False, "init_checkpoint": settings["output_dir"]}
    run(flags, do_export=True, export_dir=export, export_format="tflite")
    model_files = {name: settings[name] for name in ("bert_config_file", "vocab_file")}
    given = {"init_checkpoint": settings["output_dir"], "output_dir": str(tmp_path / "hf"), **model_files}
    run_here("convert_hf_checkpoint", to_hf=True, **given)
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == ["BertForMultipleChoice"]
    texts = [(example["c"], example["o"]) for example in examples]
    for folder in (settings["output_dir"], export, given["output_dir"]):
        predict = Predictor(folder)
        for row, found in zip(rows, predict(texts), strict=True):
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
    with pytest.raises(UserError, match=message):
        MultipleChoiceConfig(**settings | changes)
