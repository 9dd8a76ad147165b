"""Reuse of output folders: resumed, evaluated, exported and moved; refused runs change nothing in them."""

import json
import os
import random
import shutil

import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.inference.predictor import Predictor
from official_bert.support.errors import UserError
from tests.commands.conftest import bytes_in
from tests.conftest import prints_error, run_here

pytestmark = pytest.mark.slow

WORDS = ("bright", "empty", "harbour", "town", "snow")


@pytest.fixture(scope="module")
def given(tmp_path_factory, one_layer_config_file, vocab_file):
    """Data and the model's files, in a separate folder."""
    folder = tmp_path_factory.mktemp("given")
    rng = random.Random(3)
    for split in ("train", "dev"):
        lines = [f"{' '.join(rng.choices(WORDS, k=5))}\t{rng.randrange(2)}\n" for _ in range(40)]
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    shutil.copy(one_layer_config_file, folder)
    shutil.copy(vocab_file, folder)
    return folder


@pytest.fixture(scope="module")
def settings(given, model_dir):
    return {
        "task_name": "custom", "text_a_column": "sentence", "label_column": "label", "train_file": "train.tsv",
        "eval_file": "dev.tsv", "predict_file": "dev.tsv", "data_dir": str(given),
        "bert_config_file": str(given / "bert_config.json"), "vocab_file": str(given / "vocab.txt"),
        "init_checkpoint": str(model_dir / "bert_model.ckpt"), "max_seq_length": 16, "train_batch_size": 8,
        "num_train_epochs": 1.0,
    }  # fmt: skip


def run(settings, **changes):
    run_here("run_classifier", **{**settings, **changes})


@pytest.fixture(scope="module")
def half_done(settings, tmp_path_factory):
    """The folder of a run of ten steps, stopped after five."""
    folder = tmp_path_factory.mktemp("run") / "out"
    run(settings, output_dir=str(folder), do_train=True)
    config = json.loads((folder / "run_config.json").read_text())
    config["flags"]["num_train_epochs"] = 2.0
    del config["flags"]["strip_accents"]  # as in a run of an earlier version, which did as by default
    config["flags"] |= {"batch_ramp_up_steps": 0, "hidden_state_weight": 0.0}  # flags that are gone, unused
    (folder / "run_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def resumed(half_done, settings, tmp_path):
    """Settings that resume a copy of that folder."""
    shutil.copytree(half_done, tmp_path / "out")
    return {**settings, "output_dir": str(tmp_path / "out"), "num_train_epochs": 2.0, "do_train": True}


def vocabulary_mismatch(settings, tmp_path):
    lines = open(settings["vocab_file"], encoding="utf-8").read().splitlines()
    lines[-2:] = lines[-1], lines[-2]
    (tmp_path / "other.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return str(tmp_path / "other.txt")


def other_architecture(settings, tmp_path, **changes):
    values = json.loads(open(settings["bert_config_file"]).read())
    (tmp_path / "other.json").write_text(json.dumps({**values, **changes}))
    return str(tmp_path / "other.json")


def test_refusals_leave_the_folder_as_it_was(resumed, tmp_path):
    before = bytes_in(resumed["output_dir"])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("train.tsv", "dev.tsv"):
        shutil.copy(os.path.join(resumed["data_dir"], "dev.tsv"), elsewhere / name)
    (elsewhere / "odd.tsv").write_text("sentence\tlabel\nsnow\t2\n")
    vocabulary = {"vocab_file": vocabulary_mismatch(resumed, tmp_path)}
    only = {"do_train": False}
    for changes, message in (
        (
            {"bert_config_file": other_architecture(resumed, tmp_path, num_attention_heads=1)},
            "num_attention_heads is 1",
        ),
        (vocabulary, "other.txt is not the vocabulary that the checkpoints in .* use .*out/vocab.txt"),
        ({**vocabulary, **only, "do_export": True, "export_dir": str(tmp_path / "export")}, "other.txt is not the voc"),
        ({"data_dir": str(elsewhere)}, "on examples with other texts, labels;"),
        ({"max_seq_length": 24}, "was trained on examples with other --max_seq_length; use"),
        ({"labels": "1,0", **only, "do_predict": True}, r"trained with '0', '1' \(labels.json\); use those"),
        ({"multi_label": True, **only, "do_predict": True}, "trained with --multi_label=False; use the same value"),
        ({"feature_layers": "last", **only, "do_eval": True}, "trained with --feature_layers=None"),
        ({"do_lower_case": False, **only, "do_predict": True}, "trained with --do_lower_case=True"),
        (
            {"eval_file": str(elsewhere / "odd.tsv"), **only, "do_eval": True},
            "'2' is not one of '0', '1', the labels of .*out$",
        ),
        ({"train_batch_size": 4}, r"--train_batch_size=4, but .*ckpt-5 was trained with --train_batch_size=8: .*twice"),
        ({"dynamic_padding": False}, "--dynamic_padding=False, but"),
        ({"optimizer": "lamb"}, "--optimizer=lamb, but .*ckpt-5 was trained with --optimizer=adam, and its checkpoint"),
        ({"random_seed": 6}, "--random_seed=6, but .* --allow_inexact_resume or another --output_dir"),
    ):
        with prints_error(message):
            run(resumed, **changes)
        assert bytes_in(resumed["output_dir"]) == before, changes
    assert not (tmp_path / "export").exists()


@pytest.mark.endurance
def test_changes_that_affect_a_resumed_run_give_a_warning(resumed, caplog):
    new_flags = {"end_learning_rate": 1e-6, "lr_schedule": "cosine", "layer_wise_lr_decay": 0.9}
    run(resumed, learning_rate=1e-3, warmup_proportion=0.2, train_batch_size=4, allow_inexact_resume=True, **new_flags)
    new_changes = tuple(f"{name}={value}" for name, value in new_flags.items())
    for change in ("learning_rate=0.001", "warmup_proportion=0.2", "train_batch_size=4", *new_changes):
        name = change.partition("=")[0]
        assert f"{change}, but {resumed['output_dir']}/model.ckpt-5 was trained with {name}=" in caplog.text
    assert caplog.text.count("the resumed run differs from an uninterrupted one") == 6
    flags = json.loads(open(os.path.join(resumed["output_dir"], "run_config.json")).read())["flags"]
    assert flags["train_batch_size"] == 4


def with_flags(folder, **changes):
    path = os.path.join(folder, "run_config.json")
    settings = json.loads(open(path).read())
    settings["flags"] |= changes
    with open(path, "w") as sink:
        json.dump(settings, sink)


def test_a_run_with_flags_that_are_gone_is_used_but_not_resumed(resumed, caplog):
    folder = resumed["output_dir"]
    with_flags(folder, hidden_state_weight=1.0, lr_schedule="budget", nan_policy="rollback")
    assert Predictor(folder)("the harbour").label in "01"
    before = bytes_in(folder)
    with prints_error(
        "ckpt-5 was trained with hidden_state_weight=1.0, which this version no longer has; start another"
    ):
        run(resumed)
    assert bytes_in(folder) == before
    with_flags(folder, hidden_state_weight=0.0)
    run(resumed)
    for given, former in (("lr_schedule=linear", "lr_schedule=budget"), ("nan_policy=stop", "nan_policy=rollback")):
        assert f"{given}, but {folder}/model.ckpt-5 was trained with {former}: the resumed run differs" in caplog.text


def test_a_finished_run_says_which_other_flags_it_does_not_train_with(half_done, settings, caplog):
    before = bytes_in(half_done)
    run(settings, output_dir=str(half_done), do_train=True, learning_rate=1e-3, train_batch_size=7)
    assert (
        "nothing is trained with train_batch_size=7 (the run: 8), learning_rate=0.001 (the run: 5e-05), "
        f"num_train_epochs=1.0 (the run: 2.0), since {half_done}/model.ckpt-5 has all 5 steps; use another output_dir"
    ) in caplog.text
    assert bytes_in(half_done) == before


@pytest.mark.endurance
def test_new_weights_are_warned_of(settings, tmp_path, caplog):
    run(settings, output_dir=str(tmp_path / "new"), init_checkpoint=None, do_train=True, num_train_epochs=0.2)
    assert "no init_checkpoint: all weights are newly initialized" in caplog.text


@pytest.mark.endurance
def test_an_output_folder_can_be_moved_and_needs_no_other_file(half_done, given, tmp_path):
    texts = ["the harbour", "empty empty snow"]
    expected = [result.probability for result in Predictor(half_done)(texts)]
    shutil.copytree(half_done, tmp_path / "moved")
    hidden = given.with_name("hidden")
    given.rename(hidden)
    try:
        found = [result.probability for result in Predictor(tmp_path / "moved")(texts)]
    finally:
        hidden.rename(given)
    np.testing.assert_array_equal(found, expected)


def test_a_predictor_refuses_files_of_another_model(half_done, settings, tmp_path):
    with pytest.raises(UserError, match="other.txt is not the vocabulary"):
        Predictor(half_done, vocab_file=vocabulary_mismatch(settings, tmp_path))
    with pytest.raises(UserError, match="hidden_act is 'relu'"):
        Predictor(half_done, bert_config_file=other_architecture(settings, tmp_path, hidden_act="relu"))


def test_a_run_resumes_before_a_damaged_checkpoint(resumed, caplog):
    folder = resumed["output_dir"]
    path = os.path.join(folder, "model.ckpt-5.data-00000-of-00001")
    os.truncate(path, os.path.getsize(path) // 2)
    run(resumed, log_steps=3, save_checkpoints_steps=4, init_checkpoint=None)
    message = f"{folder}/model.ckpt-5: damaged; resuming from the previous checkpoint, {folder}/model.ckpt-0"
    assert message in caplog.text
    assert "differs from an uninterrupted one" not in caplog.text  # the flags have no effect
    assert "newly initialized, and fine-tuning" not in caplog.text  # the weights come from the folder
    assert CheckpointReader(folder).step == 10
