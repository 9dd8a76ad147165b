"""`run_classifier.py` on small generated data: training, evaluation and prediction for every kind of task."""

import json
import pathlib
import random
import re
import shutil

import numpy as np
import pytest

from official_bert.inference.predictor import Predictor
from official_bert.metrics.classification import METRICS, PROBABILITY_METRICS
from official_bert.tasks.classification.datasets import DATASETS
from official_bert.tasks.classification.records import submission_name
from tests.commands.conftest import results_of, table, write_rows
from tests.conftest import endurance, prints_error, run_here, run_script
from tests.reports import data_of, scores_of, sections_of
from tests.sentences import BAD, GOOD, NOUNS, sentence

CUSTOM = {"task_name": "custom", "text_a_column": "sentence", "label_column": "label", "train_file": "train.tsv"}


@pytest.fixture
def settings(sst2, tmp_path):
    return {**sst2, "output_dir": str(tmp_path / "out")}


@pytest.fixture
def own_settings(settings, tmp_path):
    """Flags for the same texts in other columns, two of them labels."""
    for split in ("train", "dev"):
        rows = [
            {"query": f"the {NOUNS[number % 4]}", "text": text, "tags": [GOOD[0]] * int(label), "score": int(label)}
            for number, (text, label) in enumerate(table(settings["data_dir"], f"{split}.tsv")[1:])
        ]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {"eval_file": "dev.jsonl", "predict_file": "dev.jsonl", "data_dir": str(tmp_path)}
    return {**settings, "task_name": "custom", **files}


def run(settings, **more):
    run_here("run_classifier", **{**settings, **more})


def written(settings, name):
    return table(settings["output_dir"], name)


def assert_reported(settings, suffix=""):
    """Assert that the page has only lines of `eval_results.txt`."""
    folder = pathlib.Path(settings["output_dir"])
    lines = [" = ".join(score) for score in scores_of(folder / f"report{suffix}.html").items()]
    assert set(lines) <= set((folder / "eval_results.txt").read_text().splitlines())
    assert len(lines) >= 4


def probabilities(settings, name="test_results.tsv"):
    return np.array(written(settings, name), np.float64)


@pytest.mark.slow
def test_training_evaluation_and_prediction(settings):
    settings["num_train_epochs"] = 12.0
    result = run_script("run_classifier.py", "--do_train", "--do_eval", "--do_predict", "--glue_submission", **settings)
    assert result.code == 0, result
    assert "48 training examples, 72 steps" in result.errors
    assert "23 variables loaded, 2 newly initialized, 39 unused" in result.errors
    assert "newly initialized: output_weights" in result.errors
    scores = results_of(settings)
    of_classes = {f"eval_{score}_{label}" for score in ("precision", "recall", "f1", "count") for label in "01"}
    expected = of_classes | {"eval_accuracy", "eval_loss", "eval_macro_f1", "global_step", "loss"}
    assert list(scores) == sorted(expected)
    assert re.search("INFO +label +precision +recall +f1 +count\n.*INFO +0 .*\n.*INFO +1 ", result.errors)
    logged = re.findall(r"INFO +(\w+) += [\d.]+$", result.errors, re.M)
    assert logged == ["global_step", "loss", "eval_loss", "eval_macro_f1", "eval_accuracy"]
    assert scores["global_step"] == 72
    assert scores["eval_loss"] != scores["loss"]  # 19 examples in batches of 8
    assert "compiling the training step" in result.errors
    assert scores["eval_accuracy"] > 0.9

    bare, (header, *readable) = probabilities(settings), written(settings, "predictions.tsv")
    assert header == ["guid", "text_a", "prediction", "probability", "0", "1"]
    assert [row[1] for row in readable] == [row[1] for row in table(settings["data_dir"], "test.tsv")[1:]]
    for row, shares in zip(readable, bare, strict=True):
        assert row[2] == str(shares.argmax()) and shares.sum() == pytest.approx(1, abs=1e-5)
        np.testing.assert_allclose([float(cell) for cell in row[3:]], [shares.max(), *shares], atol=1e-6)
        assert any(word in row[1] for word in (GOOD if row[2] == "1" else BAD))
    submitted = [[str(number), row[2]] for number, row in enumerate(readable)]
    assert written(settings, "SST-2.tsv") == [["index", "prediction"], *submitted]
    counts = np.array([row[1:] for row in written(settings, "confusion_matrix.tsv")[1:]], int)
    assert np.trace(counts) / 19 == pytest.approx(scores["eval_accuracy"], rel=1e-6)
    assert [scores[f"eval_count_{label}"] for label in "01"] == counts.sum(axis=1).tolist()
    assert_reported(settings)
    folder = pathlib.Path(settings["output_dir"])
    assert json.loads((folder / "labels.json").read_text()) == ["0", "1"]
    assert list(scores_of(folder / "report.html")) == logged[::-1]
    assert data_of((folder / "report.html").read_text())["title"] == "sst-2: dev.tsv, 19 examples"
    report = sections_of(folder / "report.html")
    assert report["Confusion matrix"]["counts"] == counts.tolist()
    assert sum(sum(bar[1]) for bar in report["Length"]["bars"]) == counts.sum() == 19

    # Output of a separate process that only evaluates the same checkpoint, whose folder has all other flags.
    (folder / "eval_results.txt").unlink()
    assert run_script("run_classifier.py", "--do_eval", output_dir=folder).code == 0
    assert results_of(settings) == scores
    flags = json.loads((folder / "run_config.json").read_text())["flags"]
    assert flags["do_train"]  # evaluation does not overwrite what training wrote


@pytest.mark.slow
def test_long_texts_are_read_in_windows(settings, tmp_path):
    rng = random.Random(2)
    fillers = [sentence(rng, True) for _ in range(10)]
    rows = [(" ".join([sentence(rng, label), *fillers[: rng.randrange(8)]]), label) for label in (0, 1) * 5]
    write_rows(tmp_path / "dev.tsv", ("sentence", "label"), rows)
    shutil.copy(f"{settings['data_dir']}/train.tsv", tmp_path)
    settings |= {"data_dir": str(tmp_path), "long_text": "window", "doc_stride": 12}
    run(settings, do_train=True, do_eval=True)
    losses = [results_of(settings)["eval_loss"]]
    for ways in ({"dynamic_padding": False}, {"max_windows": 2}):
        run(settings, **ways, do_eval=True)
        losses.append(results_of(settings)["eval_loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert abs(losses[0] - losses[2]) > 1e-6


@pytest.mark.slow
def test_two_evaluation_parts_are_scored_together(settings, tmp_path):
    rng = random.Random(3)
    labels = ("contradiction", "entailment", "neutral")

    def rows(count):
        return [[i, *"......."[:7], sentence(rng, True), sentence(rng, i % 2), labels[i % 3]] for i in range(count)]

    header = range(11)
    for name, count in (("dev_matched", 9), ("dev_mismatched", 5), ("test_matched", 4), ("test_mismatched", 3)):
        write_rows(tmp_path / f"{name}.tsv", header, rows(count))
    settings = {**settings, "task_name": "mnli", "data_dir": str(tmp_path)}
    run(settings, do_eval=True, do_predict=True, glue_submission=True)
    of_classes = [f"eval_{score}_{label}" for score in ("precision", "recall", "f1", "count") for label in labels]
    of_split = ("eval_accuracy", "eval_loss", "eval_macro_f1", "loss", *of_classes)
    names = {f"{name}{suffix}" for name in of_split for suffix in ("", "_mismatched")}
    assert set(results_of(settings)) == names | {"global_step"}
    counts = {"test_results": 4, "test_results_mismatched": 3, "MNLI-m": 5, "MNLI-mm": 4}
    assert {name: len(written(settings, f"{name}.tsv")) for name in counts} == counts
    assert {row[1] for row in written(settings, "MNLI-m.tsv")[1:]} <= set(labels)
    assert written(settings, "predictions.tsv")[0][:3] == ["guid", "text_a", "text_b"]
    assert_reported(settings)
    assert_reported(settings, "_mismatched")


MULTI_LABEL = {"multi_label": True, "label_column": "tags", "labels": "bright,empty", "text_a_column": "text"}
PAIRS = {"regression": True, "label_column": "score", "text_a_column": "query", "text_b_column": "text"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "num_train_epochs", "least", "columns"),
    [
        # half of its loss is a label that never occurs
        (MULTI_LABEL, 24.0, {"eval_micro_f1": 0.8}, ["bright", "empty"]),
        *endurance((PAIRS | {"ranking": True}, 8.0, {"eval_pearson": 0.7, "eval_ndcg@10": 0.9}, ["prediction"])),
    ],
    ids=["multi_label", "regression"],
)
def test_data_of_ones_own(own_settings, problem, num_train_epochs, least, columns):
    settings = {**own_settings, **problem}
    training = {"train_file": "train.jsonl", "num_train_epochs": num_train_epochs}
    run(settings, **training, do_train=True, do_eval=True, do_predict=True)
    scores = results_of(settings)
    assert all(scores[name] > bound for name, bound in least.items())
    assert written(settings, "predictions.tsv")[0][-len(columns) :] == columns
    assert {len(row) for row in written(settings, "test_results.tsv")} == {len(columns)}
    assert_reported(settings)
    settings.pop("labels", None)  # the labels remain those of training, although no flag gives them now
    run(settings, do_eval=True)
    assert results_of(settings) == scores


def test_a_ranking_needs_a_relevant_text_and_weights_need_classes(settings, tmp_path):
    rows = [(f"the {word} town", word, label, 2.5) for word in ("warm", "cold") for label in ("no", "yes")] * 2
    header = ("sentence1", "sentence2", "label", "score")
    write_rows(tmp_path / "train.tsv", header, rows)
    write_rows(tmp_path / "dev.tsv", header, rows[::2])
    settings |= {"data_dir": str(tmp_path), "do_train": True}
    ranking = {**CUSTOM, "eval_file": "dev.tsv", "text_a_column": "sentence1", "text_b_column": "sentence2"}
    with prints_error("dev.tsv: none of the 2 queries has a relevant text"):
        run({**settings, **ranking}, ranking=True, do_eval=True)
    with prints_error("focal_gamma need classes; the labels of sts-b are numbers"):
        run({**settings, "task_name": "STS-B"}, class_weights="balanced")


@pytest.mark.endurance
def test_classes_of_unequal_size_can_count_the_same(settings, tmp_path):
    """With balanced weights, the probability is a half; without, it would be a tenth."""
    write_rows(tmp_path / "train.tsv", ("sentence", "label"), [("the town", int(i % 10 == 0)) for i in range(160)])
    settings |= {**CUSTOM, "data_dir": str(tmp_path), "predict_file": "train.tsv", "class_weights": "balanced"}
    run(settings, do_train=True, do_predict=True, num_train_epochs=6.0)
    assert probabilities(settings)[0, 1] > 0.3


@pytest.mark.endurance
@pytest.mark.parametrize("problem", ["single_label", "multi_label"])
def test_tuned_thresholds_are_used_by_evaluation_prediction_and_exports(own_settings, tmp_path, problem):
    flags = {"text_a_column": "text", "label_column": "score", **(MULTI_LABEL if problem == "multi_label" else {})}
    settings = {**own_settings, **flags, "train_file": "train.jsonl", "learning_rate": 1e-4}
    run(settings, do_train=True, do_eval=True)
    usual = results_of(settings)
    run(settings, do_eval=True, do_predict=True, tune_thresholds=True)
    tuned = results_of(settings)
    assert tuned["eval_macro_f1"] > usual["eval_macro_f1"] and tuned["eval_loss"] == usual["eval_loss"]
    assert_reported(settings)
    run(settings, do_eval=True, do_export=True, export_dir=str(tmp_path / "export"))
    assert results_of(settings) == tuned

    stored = json.loads((tmp_path / "out" / "thresholds.json").read_text())
    thresholds = np.array(list(stored["thresholds"].values()), np.float32)
    is_predicted = probabilities(settings)[:, -len(thresholds) :] > thresholds  # of the second of two labels, or all
    labels = ["bright", "empty"] if problem == "multi_label" else ["1"]
    decisions = [",".join(np.array(labels)[row]) or ("" if problem == "multi_label" else "0") for row in is_predicted]
    header, *rows = written(settings, "predictions.tsv")
    assert [row[header.index("prediction")] for row in rows] == decisions
    for path in (settings["output_dir"], tmp_path / "export"):
        found = Predictor(path)([row[header.index("text_a")] for row in rows])
        assert [",".join(sorted(one.labels)) if problem == "multi_label" else one.label for one in found] == decisions


@pytest.mark.slow
def test_features_of_other_layers_are_not_taken_for_these(settings, files_of_model):
    """The features of a run are read again in test_run_ner.py."""
    settings, scores = {**settings, **files_of_model, "trainable_encoder": False}, []
    for feature_layers in ("last", "second_to_last"):
        run(settings, do_eval=True, feature_layers=feature_layers)
        scores.append(results_of(settings)["eval_loss"])
    assert scores[0] != scores[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_best_checkpoint": True}, "--use_best_checkpoint with --do_train needs --eval_steps"),
        ({"labels": "0,,1", **CUSTOM}, "--labels=0,,1 contains an empty name"),
        ({"task_name": "mrcp"}, "--task_name=mrcp: unknown task; did you mean mrpc. All tasks: cola, sst-2"),
        ({"task_name": "mrpc"}, "columns, but 5 are required"),
        ({"primary_metric": "f1"}, "--primary_metric=f1 is not one of the scores of this run: 'accuracy', 'macro_f1',"),
        ({"class_weights": "1,2,3"}, "--class_weights=1,2,3 has 3 weights for the 2 labels '0', '1'; give one for"),
        ({"tune_thresholds": True}, "--tune_thresholds needs --do_eval"),
        ({"tune_thresholds": True, "do_train": False, "do_eval": True}, "--tune_thresholds needs a checkpoint in"),
        ({"class_weights": "balanced", **CUSTOM, "labels": "0,1,2"}, "no training example has the label '2'; give"),
        ({"train_batch_size": 1000, "num_train_epochs": 1.0}, "48 examples for --num_train_epochs=1 make less than"),
        ({"use_best_checkpoint": True, "do_train": False, "do_eval": True}, "train with --eval_steps first"),
        ({**CUSTOM, "train_file": None}, "--task_name=custom needs --train_file"),
        ({"task_name": "custom"}, "--task_name=custom needs --text_a_column"),
        ({"trainable_encoder": False, "init_checkpoint": None}, "needs --init_checkpoint"),
        ({"glue_submission": True, "do_predict": True, "task_name": "nsmc"}, "--glue_submission: nsmc is not one of"),
    ],
)
def test_mistakes(settings, changes, message):
    with prints_error(message.replace("(", r"\(")):
        run({"do_train": True, **settings, **changes})


def test_every_data_set_of_glue_has_a_submission_name():
    data_sets = [dataset for dataset in DATASETS.values() if dataset.glue_name]
    names = [submission_name(dataset, split) for dataset in data_sets for split in dataset.test_splits]
    expected = ["AX", "CoLA", "MNLI-m", "MNLI-mm", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B", "WNLI"]
    assert sorted(names) == [f"{name}.tsv" for name in expected]


@pytest.mark.slow
def test_a_part_for_evaluation_and_prediction_is_read_once(settings, tmp_path, caplog):
    (tmp_path / "ratings_test.txt").write_text("id\tdocument\tlabel\n1\tthe harbour\t1\n2\t\t0\n")
    run({**settings, "task_name": "nsmc", "data_dir": str(tmp_path)}, do_eval=True, do_predict=True)
    assert caplog.text.count("ratings_test.txt: 1 of 2 examples have an empty text") == 1
    assert len(probabilities(settings)) == 2


@pytest.mark.endurance
def test_relations_are_predicted_and_exported_from_texts_with_markers(settings, tmp_path):
    relations = ("no_relation", "per:title", "org:members")
    for split, count in (("train", 24), ("dev", 9)):
        entries = [
            {
                "guid": f"klue-re-{number}",
                "sentence": "the warm mirror of " + "the broken " * (number % 3) + "town",
                "subject_entity": {"word": "mirror", "start_idx": 9, "end_idx": 14},
                "object_entity": {"word": "warm", "start_idx": 4, "end_idx": 7},
                "label": relations[number % 3],
            }
            for number in range(count)
        ]
        (tmp_path / f"klue-re-v1.1_{split}.json").write_text(json.dumps(entries))
    settings |= {"task_name": "klue_re", "data_dir": str(tmp_path), "export_dir": str(tmp_path / "export")}
    run(settings, do_train=True, do_eval=True, do_predict=True, do_export=True)
    header, *rows = written(settings, "predictions.tsv")  # of the dev set, as there is no test set
    assert header[:4] == ["guid", "id", "text_a", "prediction"]
    assert rows[0][:3] == ["test-0", "klue-re-0", "the <obj>warm</obj> <subj>mirror</subj> of town"]
    labels = [header[5:].index(relations[number % 3]) for number in range(9)]
    shares = probabilities(settings)
    scores = results_of(settings)
    assert scores["eval_micro_f1"] == pytest.approx(METRICS["micro_f1"](labels, shares.argmax(axis=1)))
    assert scores["eval_auprc"] == pytest.approx(PROBABILITY_METRICS["auprc"](labels, shares))
    for folder in (settings["output_dir"], str(tmp_path / "export" / "1")):
        answers = Predictor(folder)([row[2] for row in rows])
        assert [answer.label for answer in answers] == [row[3] for row in rows]
        found = [[answer.probabilities[label] for label in header[5:]] for answer in answers]
        np.testing.assert_allclose(found, shares, atol=1e-5)
