"""`run_squad.py` on small generated data: training, answers, scores, ensembles and every kind of bad input."""

import json
import os
import pathlib
import random
import shutil
import warnings

import numpy as np
import pytest

from official_bert.checkpoints.bundle import write_checkpoint
from official_bert.config.text_settings import TextSettings
from official_bert.metrics.answer_scores import NORMALIZATIONS, score_answers
from official_bert.modeling.heads import SpanModel
from official_bert.tasks.question_answering import job
from official_bert.tokenization import load_vocab
from tests import reports
from tests.commands.conftest import arrays_of, bytes_in, results_of
from tests.conftest import GOLDEN, prints_error, run_here, run_script
from tests.metrics.plain_squad_2 import plain_squad_2
from tests.sentences import NOUNS
from tests.tasks.question_answering.plain_squad import plain_answers, plain_features

ANSWERS = ("warm", "empty", "broken")
LENGTHS = {"max_seq_length": 24, "doc_stride": 8, "max_query_length": 6}
GOLDEN_LENGTHS = {"max_seq_length": 64, "doc_stride": 12, "max_query_length": 16}  # several windows per context
SPAN_CHECKPOINT = str(GOLDEN / "squad" / "model.ckpt")


def question(name="a", answers=(("warm", 4),), **more):
    answers = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": "what was it", "answers": answers, **more}


def paragraphs_of(*questions, context="the warm town"):
    return [{"context": context, "qas": list(questions)}]


def file_of(*questions, **more):
    return {"data": [{"paragraphs": paragraphs_of(*questions, **more)}]}


def squad_content(seed, num_questions, *, impossible_share=0.0):
    """Generate questions with a learnable rule: the answer is the only adjective, if there is one."""
    rng, paragraphs = random.Random(seed), []
    for number in range(num_questions):
        words = ["the", *(rng.choice(NOUNS) for _ in range(rng.randrange(1, 22)))]
        answers = []
        if rng.random() >= impossible_share:
            place, answer = rng.randrange(1, len(words) + 1), rng.choice(ANSWERS)
            words.insert(place, answer)
            answers = [(answer, len(" ".join([*words[:place], ""])))]
        is_impossible = {"is_impossible": not answers} if impossible_share else {}
        paragraphs += paragraphs_of(question(str(number), answers, **is_impossible), context=" ".join(words))
    return {"version": "made", "data": [{"title": "made", "paragraphs": paragraphs}]}


def entries_of(content):
    return [
        (entry, paragraph["context"])
        for article in content["data"]
        for paragraph in article["paragraphs"]
        for entry in paragraph["qas"]
    ]


def golds_of(content):
    return {entry["id"]: [answer["text"] for answer in entry["answers"]] for entry, _ in entries_of(content)}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Training and prediction files of both versions."""
    folder = tmp_path_factory.mktemp("data")
    for name, content in {
        "train": squad_content(1, 90),
        "dev": squad_content(2, 21),
        "train2": squad_content(3, 90, impossible_share=0.4),
        "dev2": squad_content(4, 41, impossible_share=0.4),
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def shared(one_layer_model):
    """The flags required by every run."""
    return {**one_layer_model, "train_batch_size": 8, "learning_rate": 2e-3, "dynamic_padding": True, **LENGTHS}


@pytest.fixture
def settings(shared, data, tmp_path):
    """Flags of a run on the files of version 1.1; tests add to them."""
    files = {"train_file": str(data / "train.json"), "predict_file": str(data / "dev.json")}
    return {**shared, **files, "output_dir": str(tmp_path / "out")}


@pytest.fixture
def golden_settings(settings, files_of_model):
    """Flags of a run that answers the golden questions of version 1.1 with the golden checkpoint."""
    files = {"predict_file": str(GOLDEN / "inputs" / "squad_v1.json"), "init_checkpoint": SPAN_CHECKPOINT}
    files["bert_config_file"] = files_of_model["bert_config_file"]
    return {**settings, **files, **GOLDEN_LENGTHS, "dynamic_padding": False, "do_predict": True}


def run(settings, **more):
    run_here("run_squad", **{**settings, **more})


def content_of(settings, name):
    with open(os.path.join(settings["output_dir"], name), encoding="utf-8") as source:
        return json.load(source)


@pytest.fixture
def logits(monkeypatch):
    """The start and end logits used by the last run."""
    kept = {}
    find_answers = job.find_answers

    def find_and_keep(tokenized, starts, ends, **rules):
        kept.update(windows=tokenized.windows, starts=starts, ends=ends)
        return find_answers(tokenized, starts, ends, **rules)

    monkeypatch.setattr(job, "find_answers", find_and_keep)
    return kept


@pytest.fixture(scope="module")
def trained(shared, data, tmp_path_factory):
    """The settings and log of a real process that trained and predicted; its folder must not be modified."""
    settings = {
        **shared, "train_file": data / "train.json", "predict_file": data / "dev.json",
        "output_dir": tmp_path_factory.mktemp("trained") / "out", "num_train_epochs": 8.1, "save_checkpoints_steps": 60,
        "do_train": True, "do_predict": True,
    }  # fmt: skip
    return settings, run_script("run_squad.py", **settings)


@pytest.mark.slow
def test_training_and_prediction(trained, data):
    settings, result = trained
    assert result.code == 0, result
    assert "90 training examples, 91 steps" in result.errors  # 90 / 8 * 8.1 = 91.1; windows do not count
    assert "23 variables loaded, 2 newly initialized, 39 unused" in result.errors
    assert "newly initialized: cls/squad/output_weights" in result.errors
    names = set(os.listdir(settings["output_dir"]))
    steps = {name for name in names if name.endswith(".index")}
    assert steps == {f"model.ckpt-{step}.index" for step in (0, 60, 91)} and not names & {"null_odds.json", "best"}

    content = json.loads((data / "dev.json").read_text())
    predictions, ranked = content_of(settings, "predictions.json"), content_of(settings, "nbest_predictions.json")
    golds = golds_of(content)
    assert list(predictions) == list(ranked) == list(golds)
    for (entry, context), answers in zip(entries_of(content), ranked.values(), strict=True):
        assert predictions[entry["id"]] == answers[0]["text"] in context
        assert [*answers[0]] == ["text", "probability", "start_logit", "end_logit"]
        assert sum(answer["probability"] for answer in answers) == pytest.approx(1)
    hits = [predictions[name] in golds[name] for name in golds]
    scores = results_of(settings)
    assert list(scores) == ["exact_match", "f1", "global_step"]
    assert scores["global_step"] == 91
    assert scores["exact_match"] == pytest.approx(100 * np.mean(hits))
    assert scores["f1"] >= scores["exact_match"] > 90
    report = pathlib.Path(settings["output_dir"], "report.html")
    lines = [" = ".join(score) for score in reports.scores_of(report).items()]
    assert sorted(lines) == (settings["output_dir"] / "eval_results.txt").read_text().splitlines()
    assert reports.sections_of(report)["By question word"]["rows"][0][:2] == ["what", "21"]


def plain_questions(settings):
    """Return the features of the questions to answer by the plain rules: by question, and all in order."""
    content, vocab = json.loads(open(settings["predict_file"]).read()), load_vocab(settings["vocab_file"])
    how = {"for_training": False, "version_2": False, **GOLDEN_LENGTHS}
    features = list(plain_features(content, vocab, TextSettings(), **how))
    by_question = {entry["id"]: [] for entry, _ in entries_of(content)}
    for feature in features:
        by_question[feature["id"]].append(feature)
    return by_question, features


def plain_logits(checkpoint, config_file, features):
    """Return the logits of padded features, [windows, 2, 64]."""
    inputs = {name: np.zeros([len(features), 64], np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    for row, feature in enumerate(features):
        given = {**feature, "input_mask": [1] * len(feature["input_ids"])}
        for name, values in inputs.items():
            values[row, : len(given[name])] = given[name]
    outputs = SpanModel.from_checkpoint(checkpoint, bert_config=config_file)(inputs)
    return np.stack([outputs["start_logits"], outputs["end_logits"]], axis=1).astype(np.float64)


def assert_plain_answers(settings, questions, rows):
    """Compare the files of a run with the answers of the plain rules for logits [windows, 2, S]."""
    rules = {"n_best_size": 20, "max_answer_length": 30, "version_2": True}
    ranked, null_odds = content_of(settings, "nbest_predictions.json"), content_of(settings, "null_odds.json")
    assert list(content_of(settings, "predictions.json")) == list(questions)
    rows = iter(rows)
    for name, features in questions.items():
        starts, ends = zip(*(next(rows).tolist() for _ in features), strict=True)
        expected, odds = plain_answers(features, starts, ends, TextSettings(), **rules)
        assert [answer["text"] for answer in ranked[name]] == [answer[0] for answer in expected]
        numbers = [[answer[key] for key in ("probability", "start_logit", "end_logit")] for answer in ranked[name]]
        np.testing.assert_allclose(numbers, [answer[1:] for answer in expected], atol=1e-5)
        assert null_odds[name] == pytest.approx(odds, abs=1e-5)
    assert next(rows, None) is None


@pytest.mark.slow
def test_an_ensemble_answers_by_the_plain_rules_for_the_mean_of_the_logits(golden_settings, logits, tmp_path):
    files = {"init_checkpoint": None, "predict_file": str(GOLDEN / "inputs" / "squad_v2.json")}
    settings = {**golden_settings, **files, "version_2_with_negative": True}
    members = [SPAN_CHECKPOINT, str(tmp_path / "other.ckpt")]  # its head prefers other words
    arrays = arrays_of(SPAN_CHECKPOINT)
    arrays["cls/squad/output_weights"] = -arrays["cls/squad/output_weights"][::-1] * 1.5
    write_checkpoint(members[1], {**arrays, "global_step": np.int64(7)})
    run(settings, ensemble_checkpoints=", ".join(members))
    questions, features = plain_questions(settings)
    assert len(features) > 2 * len(questions)
    rows = [plain_logits(path, settings["bert_config_file"], features) for path in members]
    assert np.abs(rows[0] - rows[1]).max() > 0.1
    assert_plain_answers(settings, questions, np.mean(rows, axis=0))
    assert results_of(settings)["global_step"] == 7
    # In another order and with truncated batches: equal where it matters, and without warnings for lowest logits.
    plain = dict(logits)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(settings, ensemble_checkpoints=",".join(reversed(members)), dynamic_padding=True)
    for side in ("starts", "ends"):
        assert np.isfinite(logits[side]).all()
        for row, window in enumerate(plain["windows"]):  # up to its last [SEP]
            stop = window.offset + window.num_wordpieces + 1
            np.testing.assert_allclose(logits[side][row, :stop], plain[side][row, :stop], atol=1e-5)


@pytest.mark.slow
def test_an_ensemble_takes_only_checkpoints_that_fit(settings, trained, tmp_path):
    settings |= {"init_checkpoint": None, "do_predict": True}
    run_folder = str(trained[0]["output_dir"])
    encoder = str(GOLDEN / "pretraining_model" / "bert_model.ckpt")
    for ensemble, more, message in (
        (f"{SPAN_CHECKPOINT},{tmp_path}/absent", {}, "--ensemble_checkpoints .*absent: no such checkpoint"),
        (f"{run_folder},{encoder}", {}, "--ensemble_checkpoints .*bert_model.ckpt lacks cls/squad/output_weights, "),
        (run_folder, {"do_lower_case": False}, "trained with --do_lower_case=True; use the same value, or leave them"),
    ):
        with prints_error(message):
            run(settings, ensemble_checkpoints=ensemble, **more)
        assert not os.path.exists(os.path.join(settings["output_dir"], "eval.tf_record"))
    run(settings, ensemble_checkpoints=run_folder)  # a folder stands for its last checkpoint
    assert results_of(settings)["global_step"] == 91


@pytest.mark.slow
def test_the_best_threshold_is_that_of_brute_force(settings, data, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    settings |= {"train_file": str(data / "train2.json"), "predict_file": str(data / "dev2.json")}
    settings |= {"version_2_with_negative": True, "learning_rate": 2e-2, "dynamic_padding": False}
    run(settings, num_train_epochs=40.0, eval_steps=12, early_stopping_patience=2, do_train=True)
    steps = [int(name[11:-6]) for name in os.listdir(settings["output_dir"]) if name.endswith(".index")]
    assert max(steps) < 90 / 8 * 40 - 12, "did not stop early"
    flags = {"do_predict": True, "use_best_checkpoint": True}
    run(settings, **flags)
    # Make the least certain answers unanswerable, so that 0 is a poor threshold.
    odds, content = content_of(settings, "null_odds.json"), json.loads(open(settings["predict_file"]).read())
    answered = sorted((entry for entry, _ in entries_of(content) if entry["answers"]), key=lambda it: odds[it["id"]])
    for entry in answered[len(answered) // 2 :]:
        entry.update(answers=[], is_impossible=True)
    settings = {**settings, "predict_file": str(tmp_path / "dev.json")}
    (tmp_path / "dev.json").write_text(json.dumps(content))
    run(settings, **flags, null_score_diff_threshold="auto")
    scores, ranked, golds = results_of(settings), content_of(settings, "nbest_predictions.json"), golds_of(content)
    texts = {name: next(answer["text"] for answer in ranked[name] if answer["text"]) for name in golds}
    official = plain_squad_2(golds, texts, odds)
    assert all(scores[name] == score for name, score in official.items() if name.startswith("best_"))

    def predictions_at(threshold):
        return {name: "" if odds[name] > threshold else texts[name] for name in golds}

    def scores_at(threshold):
        return plain_squad_2(golds, predictions_at(threshold))

    candidates = [min(odds.values()) - 1, *odds.values(), max(odds.values()) + 1]
    best = max(scores_at(threshold)["f1"] for threshold in candidates)
    assert scores["f1"] == scores["best_f1"] == pytest.approx(best) and best > scores_at(0.0)["f1"]
    threshold = scores["null_score_diff_threshold"]
    assert content_of(settings, "predictions.json") == predictions_at(threshold)
    assert f"null_score_diff_threshold=auto: {threshold} gives the best F1" in caplog.text
    tables = reports.sections_of(pathlib.Path(settings["output_dir"], "report.html"))
    answerable = [row for row in tables["With and without answer"]["rows"] if row[0].startswith("has an answer")]
    assert sum(int(row[1]) for row in answerable) == scores["HasAns_total"]
    # A threshold given by the user takes precedence, and the scores reflect it.
    threshold = sorted(odds.values())[5]
    run(settings, **flags, null_score_diff_threshold=threshold)
    assert content_of(settings, "predictions.json") == predictions_at(threshold)
    assert {name: results_of(settings)[name] for name in scores_at(threshold)} == scores_at(threshold)
    assert results_of(settings)["f1"] < scores["f1"]


@pytest.mark.slow
def test_korean_data_sets_are_scored_by_their_own_rules(golden_settings, tmp_path):
    content = pathlib.Path(golden_settings["predict_file"]).read_text()
    golds = golds_of(json.loads(content))
    golden_settings["predict_file"] = str(tmp_path / "klue-mrc-v1.1_dev.json")
    pathlib.Path(golden_settings["predict_file"]).write_text(content.replace('"id":', '"guid":'))
    run(golden_settings, dataset="klue", max_answer_length=6)
    predictions = content_of(golden_settings, "predictions.json")
    of_squad, expected = (
        score_answers(golds, predictions, normalization=NORMALIZATIONS[name]) for name in ("squad", "klue")
    )
    assert results_of(golden_settings) == pytest.approx({**expected, "global_step": 0})
    assert expected != of_squad


UNANSWERED = question("b", answers=())
ENSEMBLE = {"ensemble_checkpoints": SPAN_CHECKPOINT}
OF_NOTHING = {"do_train": False, "ensemble_checkpoints": ""}
AUTO = {"do_train": False, "version_2_with_negative": True, "null_score_diff_threshold": "auto"}
UNLABELLED = "=auto needs the correct answers, but 1 of the 1 questions in .*predict.json have none"
# Contents of --train_file and --predict_file (None keeps the valid one), flags, and parts of the message.
MISTAKES = {
    "no answer": (file_of(UNANSWERED), None, {}, "'b' has no answer; .*--version_2_with_negative"),
    "1.1 as 2.0": (file_of(question()), None, {"version_2_with_negative": True}, "leave that flag out"),
    "unlabelled for steps": (None, file_of(UNANSWERED), {"eval_steps": 5}, "--eval_steps needs the correct answers"),
    "unlabelled for auto": (None, file_of({**UNANSWERED, "is_impossible": False}), AUTO, UNLABELLED),
    "auto in 1.1": (None, None, {"null_score_diff_threshold": "auto"}, "=auto needs --version_2_with_negative"),
    "no train_file": (None, None, {"train_file": None}, "--do_train needs --train_file"),
    "no predict_file": (None, None, {"predict_file": None}, "--do_predict needs --predict_file"),
    "nothing to do": (None, None, {"do_train": False, "do_predict": False}, "nothing to do"),
    "ensemble to train": (None, None, ENSEMBLE, "--ensemble_checkpoints=.* cannot be used with --do_train"),
    "ensemble and best": (None, None, {**ENSEMBLE, "do_train": False, "use_best_checkpoint": True}, "--use_best_check"),
    "ensemble of nothing": (None, None, OF_NOTHING, "_checkpoints is empty"),
    "ensemble of a gap": (None, None, {**OF_NOTHING, "ensemble_checkpoints": "a,,b"}, "--ensemble_checkpoints=a,,b"),
    "uneven batch": (None, None, {"predict_batch_size": 3, "num_replicas": 2}, "--predict_batch_size=3 is not a mult"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_line_and_leave_no_records_or_answers(mistake, settings, tmp_path):
    train, predict, flags, message = MISTAKES[mistake]
    for name, content in (("train", train), ("predict", predict)):
        if content is not None:
            settings[f"{name}_file"] = str(tmp_path / f"{name}.json")
            (tmp_path / f"{name}.json").write_text(json.dumps(content))
    with prints_error(message) as caught:
        run(settings, **{"do_train": True, "do_predict": True, **flags})
    assert "\n" not in str(caught.value)
    made = os.listdir(settings["output_dir"]) if os.path.exists(settings["output_dir"]) else []
    assert not [name for name in made if "tf_record" in name or "predictions" in name or "ckpt" in name]


@pytest.mark.slow
def test_mistakes_in_a_used_folder_change_nothing(trained, settings, data, tmp_path):
    settings["output_dir"] = str(shutil.copytree(trained[0]["output_dir"], tmp_path / "used"))
    before = bytes_in(settings["output_dir"])
    (tmp_path / "bad.json").write_text("{")
    for flags, message in (
        ({"do_train": True, "train_file": str(data / "dev.json")}, "with other contexts, questions;"),
        ({"do_predict": True, "predict_file": str(tmp_path / "bad.json")}, "bad.json is not JSON"),
        ({"do_predict": True, "use_best_checkpoint": True}, "--use_best_checkpoint: no checkpoint in"),
    ):
        with prints_error(message):
            run(settings, **flags)
    after = bytes_in(settings["output_dir"])
    after.pop("eval/run_config.json", None)
    assert after == before


@pytest.mark.endurance
def test_strange_but_readable_files_are_answered(golden_settings, tmp_path, caplog):
    entries = [question(7), question("\ue000"), question("long", question="town " * 500), question("", question="")]
    content = file_of(*entries, UNANSWERED, context="the warm town \U0001f389 \u6771\u4eac \uffff")
    content["data"] += file_of(question("none"), context=" \n ")["data"] + file_of(question("one"), context="x")["data"]
    (tmp_path / "strange.json").write_text(json.dumps(content))
    golden_settings |= {"predict_file": str(tmp_path / "strange.json"), "predict_batch_size": 5}
    run(golden_settings, n_best_size=1, max_answer_length=1)
    predictions = content_of(golden_settings, "predictions.json")
    assert list(predictions) == ["7", "\ue000", "long", "", "b", "none", "one"] and predictions["none"] == "empty"
    assert not os.path.exists(os.path.join(golden_settings["output_dir"], "eval_results.txt"))
    assert "1 of the 7 questions in" in caplog.text and "nothing is scored" in caplog.text


@pytest.mark.slow
def test_the_answers_to_another_file_are_not_overwritten_and_files_of_other_flags_named(golden_settings, data, caplog):
    golden_settings["predict_file"] = str(data / "dev2.json")
    run(golden_settings, version_2_with_negative=True)
    folder = golden_settings["output_dir"]
    before = bytes_in(folder)
    with prints_error("predictions.json has the answers to another file than --predict_file=.*dev.json and would be"):
        run(golden_settings, predict_file=str(data / "dev.json"))
    assert bytes_in(folder) == before and "earlier" not in caplog.text
    run(golden_settings)  # the same file may be predicted with other settings
    for name in ("null_odds.json", "eval_results.txt", "report.html"):
        assert f"{name} is from an earlier prediction" in caplog.text


@pytest.mark.slow
def test_logits_that_are_no_numbers_are_no_answers(settings, tmp_path):
    arrays = arrays_of(SPAN_CHECKPOINT)
    weights = np.array(arrays["cls/squad/output_weights"])
    weights[1] = 3e38  # finite, but its products are not
    arrays["cls/squad/output_weights"] = weights
    write_checkpoint(str(tmp_path / "large.ckpt"), arrays)
    with prints_error("the model's end_logits are not all finite; did its training diverge?"):
        run(settings, init_checkpoint=str(tmp_path / "large.ckpt"), do_predict=True)
    assert not os.path.exists(os.path.join(settings["output_dir"], "predictions.json"))
