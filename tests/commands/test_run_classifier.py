"""`run_classifier.py` on small generated data: training, evaluation and prediction for every kind of task."""

import json
import os
import pathlib
import random
import re

import numpy as np
import pytest
import tensorflow as tf

from official_bert.inference.predictor import Predictor
from official_bert.metrics.classification import METRICS, PROBABILITY_METRICS
from official_bert.serving.servable import IDS_SCHEMA
from official_bert.support.errors import UserError
from official_bert.tasks.classification.datasets import DATASETS
from official_bert.tasks.classification.records import submission_name
from official_bert.tokenization import FullTokenizer
from tests.commands.conftest import results_of, write_rows
from tests.conftest import endurance, prints_error, run_here, run_script
from tests.exports import TOLERANCE, ask
from tests.record_files import read_records
from tests.reports import data_of, scores_of, sections_of
from tests.sentences import BAD, GOOD, NOUNS, sentence
from tests.tokenization.hard_texts import PRESPLIT, write_vocabulary

CUSTOM = {"task_name": "custom", "text_a_column": "sentence", "label_column": "label", "train_file": "train.tsv"}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """SST-2, MRPC and MNLI in their layouts, with a learnable rule: the adjective decides."""
    folder = tmp_path_factory.mktemp("data")
    rng = random.Random(1)
    for split, count in (("train", 96), ("dev", 37), ("test", 11)):
        labels = [rng.randrange(2) for _ in range(count)]
        texts = [sentence(rng, label) for label in labels]
        if split == "test":
            write_rows(folder / "test.tsv", ("index", "sentence"), enumerate(texts))
        else:
            write_rows(folder / f"{split}.tsv", ("sentence", "label"), zip(texts, labels, strict=True))
        lines = [
            {"query": f"the {NOUNS[number % 4]}", "text": text, "tags": [GOOD[0]] * label, "score": label}
            for number, (text, label) in enumerate(zip(texts, labels, strict=True))
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def settings(data_dir, one_layer_model, tmp_path):
    """The flags required by every run; tests add to them."""
    folders = {"data_dir": str(data_dir), "output_dir": str(tmp_path / "out")}
    sizes = {"max_seq_length": 32, "train_batch_size": 8, "learning_rate": 1e-3}
    return {**one_layer_model, **folders, **sizes, "task_name": "SST-2"}


def run(settings, **more):
    run_here("run_classifier", **settings, **more)


def table(settings, name):
    with open(os.path.join(settings["output_dir"], name), encoding="utf-8") as source:
        return [line.rstrip("\n").split("\t") for line in source]


def assert_reported(settings, suffix=""):
    """Assert that the page has exactly the lines of `eval_results.txt` for its split."""
    lines = [
        " = ".join(score) for score in scores_of(pathlib.Path(settings["output_dir"], f"report{suffix}.html")).items()
    ]
    with open(os.path.join(settings["output_dir"], "eval_results.txt"), encoding="utf-8") as source:
        assert set(lines) <= set(source.read().splitlines())
    assert len(lines) >= 4


def probabilities(settings, name="test_results.tsv"):
    return np.array(table(settings, name), np.float64)


@pytest.mark.slow
def test_training_evaluation_and_prediction(settings, data_dir):
    settings["num_train_epochs"] = 6.0
    result = run_script("run_classifier.py", "--do_train", "--do_eval", "--do_predict", "--glue_submission", **settings)
    assert result.code == 0, result
    assert "96 training examples, 72 steps" in result.errors
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
    assert scores["eval_loss"] != scores["loss"]  # 37 examples in batches of 8
    assert "compiling the training step" in result.errors
    assert scores["eval_accuracy"] > 0.9

    bare, readable = probabilities(settings), table(settings, "predictions.tsv")
    assert bare.shape == (11, 2)
    np.testing.assert_allclose(bare.sum(axis=1), 1, atol=1e-5)
    assert readable[0] == ["guid", "text_a", "prediction", "probability", "0", "1"]
    texts = [line.split("\t")[1] for line in (data_dir / "test.tsv").read_text().splitlines()[1:]]
    assert [row[1] for row in readable[1:]] == texts
    for row, shares in zip(readable[1:], bare, strict=True):
        assert row[2] == str(shares.argmax())
        np.testing.assert_allclose([float(cell) for cell in row[3:]], [shares.max(), *shares], atol=1e-6)
        assert any(word in row[1] for word in (GOOD if row[2] == "1" else BAD))
    assert table(settings, "SST-2.tsv") == [
        ["index", "prediction"],
        *([str(i), row[2]] for i, row in enumerate(readable[1:])),
    ]
    counts = np.array([row[1:] for row in table(settings, "confusion_matrix.tsv")[1:]], int)
    assert counts.sum() == 37
    assert np.trace(counts) / 37 == pytest.approx(scores["eval_accuracy"], rel=1e-6)
    assert [scores[f"eval_count_{label}"] for label in "01"] == counts.sum(axis=1).tolist()
    assert json.loads(open(os.path.join(settings["output_dir"], "labels.json")).read()) == ["0", "1"]
    assert_reported(settings)
    page = pathlib.Path(settings["output_dir"], "report.html")
    report = sections_of(page)
    assert list(scores_of(page)) == logged[::-1]
    assert data_of(page.read_text())["title"] == "sst-2: dev.tsv, 37 examples"
    assert report["Confusion matrix"]["counts"] == counts.tolist()
    assert sum(sum(bar[1]) for bar in report["Length"]["bars"]) == 37

    # Output of a separate process that only evaluates the same checkpoint, whose folder has all other flags.
    os.remove(os.path.join(settings["output_dir"], "eval_results.txt"))
    assert run_script("run_classifier.py", "--do_eval", output_dir=settings["output_dir"]).code == 0
    assert results_of(settings) == scores
    with open(os.path.join(settings["output_dir"], "run_config.json")) as source:
        assert json.load(source)["flags"]["do_train"]  # evaluation does not overwrite what training wrote


@pytest.mark.slow
def test_long_texts_are_read_in_windows(settings, tmp_path):
    rng = random.Random(2)
    fillers = [sentence(rng, True) for _ in range(10)]
    for name, rows in {
        "train": [(sentence(rng, label), label) for label in (0, 1) * 4],
        "dev": [(sentence(rng, label) + " " + " ".join(fillers[: rng.randrange(8)]), label) for label in (0, 1) * 5],
    }.items():
        write_rows(tmp_path / f"{name}.tsv", ("sentence", "label"), rows)
    settings = {**settings, "data_dir": str(tmp_path), "long_text": "window", "doc_stride": 12, "max_seq_length": 24}
    outcomes = {}
    ways = {"padded": {"dynamic_padding": False}, "cut": {"max_windows": 2}}
    for name, more in {"mean": {}, **ways}.items():
        run({**settings, "output_dir": str(tmp_path / name)}, do_eval=True, **more)
        outcomes[name] = results_of({"output_dir": str(tmp_path / name)})
    assert outcomes["padded"] == pytest.approx(outcomes["mean"], abs=1e-5)
    assert abs(outcomes["cut"]["eval_loss"] - outcomes["mean"]["eval_loss"]) > 1e-6
    run(settings, do_train=True, num_train_epochs=2.0)
    assert "model.ckpt-2.index" in os.listdir(settings["output_dir"])


@pytest.mark.slow
def test_two_evaluation_parts_are_scored_together(settings, tmp_path):
    rng = random.Random(3)
    labels = ("contradiction", "entailment", "neutral")

    def rows(count):
        return [[i, *"......."[:7], sentence(rng, True), sentence(rng, i % 2), labels[i % 3]] for i in range(count)]

    header = [f"column{number}" for number in range(11)]
    for name, count in (("dev_matched", 9), ("dev_mismatched", 5), ("test_matched", 4), ("test_mismatched", 3)):
        write_rows(tmp_path / f"{name}.tsv", header, rows(count))
    settings = {**settings, "task_name": "mnli", "data_dir": str(tmp_path)}
    run(settings, do_eval=True, do_predict=True, glue_submission=True)
    of_classes = [f"eval_{score}_{label}" for score in ("precision", "recall", "f1", "count") for label in labels]
    of_split = ("eval_accuracy", "eval_loss", "eval_macro_f1", "loss", *of_classes)
    names = {f"{name}{suffix}" for name in of_split for suffix in ("", "_mismatched")}
    assert set(results_of(settings)) == names | {"global_step"}
    assert len(table(settings, "test_results.tsv")) == 4 and len(table(settings, "test_results_mismatched.tsv")) == 3
    assert len(table(settings, "MNLI-m.tsv")) == 5 and len(table(settings, "MNLI-mm.tsv")) == 4
    assert {row[1] for row in table(settings, "MNLI-m.tsv")[1:]} <= set(labels)
    assert table(settings, "predictions.tsv")[0][:3] == ["guid", "text_a", "text_b"]
    assert_reported(settings)
    assert_reported(settings, "_mismatched")


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["multi_label", *endurance("single_label", "regression")])
def test_data_of_ones_own(settings, problem):
    settings |= {"task_name": "custom", "text_a_column": "text"}
    settings |= {"train_file": "train.jsonl", "eval_file": "dev.jsonl", "predict_file": "test.jsonl"}
    settings["label_column"] = "tags" if problem == "multi_label" else "score"
    if problem != "single_label":
        settings[problem] = True
    if problem != "multi_label":  # pairs, ranked by their second texts
        settings |= {"text_a_column": "query", "text_b_column": "text", "ranking": True}
    if problem == "multi_label":
        settings["labels"] = "bright,empty"
    num_train_epochs = 24.0 if problem == "multi_label" else 8.0  # half of its loss is a label that never occurs
    run(settings, do_train=True, do_eval=True, do_predict=True, num_train_epochs=num_train_epochs)
    scores, header = results_of(settings), table(settings, "predictions.tsv")[0]
    if problem == "single_label":
        assert scores["eval_accuracy"] > 0.8 and header[-2:] == ["0", "1"]
    elif problem == "multi_label":
        assert scores["eval_micro_f1"] > 0.8 and header[-2:] == ["bright", "empty"]
    else:
        assert scores["eval_pearson"] > 0.7 and header[-1] == "prediction"
        assert all(len(row) == 1 for row in table(settings, "test_results.tsv"))
    if problem != "multi_label":
        assert min(scores["eval_mrr@10"], scores["eval_ndcg@10"]) > 0.9
    assert_reported(settings)
    # The labels remain those of training, although no flag gives them now.
    for name in ("train_file", "labels"):
        settings.pop(name, None)
    run(settings, do_eval=True)
    assert results_of(settings) == scores


def test_a_ranking_needs_a_relevant_text(settings, tmp_path):
    rows = [(f"the {word} town", word, label) for word in ("warm", "cold") for label in ("no", "yes")]
    write_rows(tmp_path / "train.tsv", ("sentence", "text", "label"), rows)
    write_rows(tmp_path / "dev.tsv", ("sentence", "text", "label"), rows[::2])
    settings |= {**CUSTOM, "data_dir": str(tmp_path), "eval_file": "dev.tsv", "text_b_column": "text", "ranking": True}
    with pytest.raises(UserError, match=r"dev.tsv: none of the 2 queries has a relevant text"):
        run(settings, do_train=True, do_eval=True)


@pytest.mark.endurance
def test_classes_of_unequal_size_can_count_the_same(settings, tmp_path):
    """With balanced weights, the probability is a half; without, it would be a tenth."""
    write_rows(tmp_path / "train.tsv", ("sentence", "label"), [("the town", int(i % 10 == 0)) for i in range(160)])
    settings |= {**CUSTOM, "data_dir": str(tmp_path), "eval_file": "train.tsv", "class_weights": "balanced"}
    run(settings, do_train=True, do_eval=True, do_predict=True, predict_file="train.tsv", num_train_epochs=6.0)
    assert probabilities(settings)[0, 1] > 0.3
    assert results_of(settings)["eval_count_1"] == 16


@pytest.mark.endurance
@pytest.mark.parametrize("problem", ["single_label", "multi_label"])
def test_tuned_thresholds_are_used_by_evaluation_prediction_and_exports(settings, tmp_path, problem, caplog):
    settings |= {**CUSTOM, "eval_file": "dev.jsonl", "predict_file": "dev.jsonl", "train_file": "train.jsonl"}
    settings |= {"text_a_column": "text", "label_column": "score", "learning_rate": 1e-4, "num_train_epochs": 1.0}
    if problem == "multi_label":
        settings |= {"multi_label": True, "label_column": "tags", "labels": "bright,empty"}
    export = {"export_dir": str(tmp_path / "export"), "export_format": "tflite"}
    run(settings, do_train=True, do_eval=True)
    usual = results_of(settings)
    run(settings, do_eval=True, do_predict=True, do_export=True, tune_thresholds=True, **export)
    tuned = results_of(settings)
    assert tuned["eval_macro_f1"] > usual["eval_macro_f1"]
    assert tuned["eval_loss"] == usual["eval_loss"]
    assert_reported(settings)
    run(settings, do_eval=True, do_export=True, **export)
    assert results_of(settings) == tuned

    stored = json.loads((tmp_path / "out" / "thresholds.json").read_text())
    thresholds = np.array(list(stored["thresholds"].values()), np.float32)
    shares = probabilities(settings)[:, -len(thresholds) :]  # the second of two labels, or all
    is_predicted = shares > thresholds
    labels = ["bright", "empty"] if problem == "multi_label" else ["1"]
    decisions = [",".join(np.array(labels)[row]) or ("" if problem == "multi_label" else "0") for row in is_predicted]
    rows = table(settings, "predictions.tsv")
    assert [row[rows[0].index("prediction")] for row in rows[1:]] == decisions
    texts = [row[rows[0].index("text_a")] for row in rows[1:]]
    for path in (settings["output_dir"], tmp_path / "export" / "2"):
        found = Predictor(path)(texts)
        given = [",".join(sorted(one.labels)) if problem == "multi_label" else one.label for one in found]
        assert given == decisions
    joined = read_records(os.path.join(settings["output_dir"], "predict.tf_record"))
    ids = {name: joined[name][:1].astype(np.int32) for name in IDS_SCHEMA.names}
    lite = tf.lite.Interpreter(str(tmp_path / "export" / "1" / "model.tflite")).get_signature_runner("serving_default")
    name = "is_predicted" if problem == "multi_label" else "predicted"
    assert lite(**ids)[name].ravel().tolist() == is_predicted[0].tolist()

    run({**settings, "num_train_epochs": 2.0}, do_train=True, do_eval=True)
    assert "thresholds.json is of step 12 and is not used with" in caplog.text


@pytest.mark.endurance
def test_text_that_is_split_already(settings, tmp_path):
    """Training, export and prediction in other processes give the same ids and results."""
    words = ["배/NNG", "항구/NNG", "눈/NNG", "밝/VA", "어둡/VA", "##/VA", "Zoë", "##,", "[unused1]"]
    fillers = [f"[unused{number}]" for number in range(2, 1000)]  # about as many tokens as the model has embeddings
    vocab_file = write_vocabulary(tmp_path / "vocab.txt", [*words, *fillers])
    texts = [(f"{noun} {adjective} Zoë, 밝/VA/VA", adjective) for noun in words[:3] for adjective in words[3:5]]
    rows = [(text, label.removesuffix("/VA")) for text, label in texts * 8]
    for name in ("train.tsv", "test.tsv"):
        write_rows(tmp_path / name, ("sentence", "label"), rows)
    settings |= CUSTOM | {"data_dir": str(tmp_path), "vocab_file": vocab_file, "predict_file": "test.tsv"}
    settings |= {"num_train_epochs": 8.0}
    presplit = ("--basic_tokenize=false", "--nodo_lower_case", "--do_export", f"--export_dir={tmp_path}/serving")
    result = run_script("run_classifier.py", "--do_train", "--do_predict", *presplit, **settings)
    assert result.code == 0, result
    assert "[UNK]" not in result.errors
    joined = read_records(os.path.join(settings["output_dir"], "predict.tf_record"))
    tokenizer = FullTokenizer.from_folder(settings["output_dir"])
    assert tokenizer.settings == PRESPLIT
    wordpieces = tokenizer.convert_ids_to_tokens(joined["input_ids"][0][:8].tolist())
    assert wordpieces == ["[CLS]", "배/NNG", "밝/VA", "Zoë", "##,", "밝/VA", "##/VA", "[SEP]"]

    description = json.loads((tmp_path / "serving" / "1" / "official_bert.json").read_text())
    assert description["basic_tokenize"] is False
    inputs = {"text_a": [text for text, _ in rows]}
    ids, answer = ask(str(tmp_path / "serving" / "1"), [["tokenize", inputs], ["text", inputs]], tmp_path)
    assert ids["input_ids"] == joined["input_ids"][:, : len(ids["input_ids"][0])].tolist()
    np.testing.assert_allclose(answer["probabilities"], probabilities(settings), atol=TOLERANCE)
    predicted = Predictor(settings["output_dir"])(inputs["text_a"])
    assert [one.label for one in predicted] == [label for _, label in rows]
    np.testing.assert_allclose([one.probability for one in predicted], probabilities(settings).max(1), atol=TOLERANCE)

    with prints_error("trained with --basic_tokenize=False; use the same value, or another --output_dir"):
        run(settings, do_predict=True, do_lower_case=False)


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
        ({"train_batch_size": 1000, "num_train_epochs": 1.0}, "96 examples for --num_train_epochs=1 make less than"),
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


def test_weights_of_classes_need_classes(settings, tmp_path):
    rows = [("the town", "a river", 2.5)] * 8
    write_rows(tmp_path / "train.tsv", ("sentence1", "sentence2", "score"), rows)
    with prints_error("focal_gamma need classes; the labels of sts-b are numbers"):
        run({**settings, "task_name": "STS-B", "data_dir": str(tmp_path)}, do_train=True, class_weights="balanced")


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
    header, *rows = table(settings, "predictions.tsv")  # of the dev set, as there is no test set
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
