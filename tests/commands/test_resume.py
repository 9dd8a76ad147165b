"""Reuse of output folders: resumed, evaluated, exported and moved; refused runs change nothing in them."""

import json
import os
import shutil

import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.inference.predictor import Predictor
from official_bert.support.errors import UserError
from tests.commands.conftest import bytes_in, other_vocabulary
from tests.conftest import prints_error, run_here

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def settings(sst2):
    columns = {"text_a_column": "sentence", "label_column": "label", "train_file": "train.tsv"}
    return {**sst2, "task_name": "custom", **columns, "eval_file": "dev.tsv", "predict_file": "dev.tsv"}


def run(settings, **changes):
    run_here("run_classifier", **{**settings, **changes})


@pytest.fixture(scope="module")
def half_done(settings, tmp_path_factory):
    """The folder of a run of twelve steps, stopped after six."""
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
    vocabulary = {"vocab_file": other_vocabulary(resumed["vocab_file"], tmp_path)}
    only = {"do_train": False}
    for changes, message in (
        (
            {"bert_config_file": other_architecture(resumed, tmp_path, num_attention_heads=1)},
            "num_attention_heads is 1",
        ),
        (vocabulary, "other.txt is not the vocabulary that the checkpoints in .* use .*out/vocab.txt"),
        ({**vocabulary, **only, "do_export": True, "export_dir": str(tmp_path / "export")}, "other.txt is not the voc"),
        ({"data_dir": str(elsewhere)}, "on examples with other texts, labels;"),
        ({"max_seq_length": 32}, "was trained on examples with other --max_seq_length; use"),
        ({"labels": "1,0", **only, "do_predict": True}, r"trained with '0', '1' \(labels.json\); use those"),
        ({"multi_label": True, **only, "do_predict": True}, "trained with --multi_label=False; use the same value"),
        ({"feature_layers": "last", **only, "do_eval": True}, "trained with --feature_layers=None"),
        ({"do_lower_case": False, **only, "do_predict": True}, "trained with --do_lower_case=True"),
        (
            {"eval_file": str(elsewhere / "odd.tsv"), **only, "do_eval": True},
            "'2' is not one of '0', '1', the labels of .*out$",
        ),
        ({"train_batch_size": 4}, r"--train_batch_size=4, but .*ckpt-6 was trained with --train_batch_size=8: .*twice"),
        ({"dynamic_padding": False}, "--dynamic_padding=False, but"),
        ({"optimizer": "lamb"}, "--optimizer=lamb, but .*ckpt-6 was trained with --optimizer=adam, and its checkpoint"),
        ({"random_seed": 6}, "--random_seed=6, but .* --allow_inexact_resume or another --output_dir"),
    ):
        with prints_error(message):
            run(resumed, **changes)
        assert bytes_in(resumed["output_dir"]) == before, changes
    assert not (tmp_path / "export").exists()


def with_flags(folder, **changes):
    path = os.path.join(folder, "run_config.json")
    settings = json.loads(open(path).read())
    settings["flags"] |= changes
    with open(path, "w") as sink:
        json.dump(settings, sink)


def test_a_run_with_flags_that_are_gone_is_used_but_not_resumed(resumed, caplog):
    folder = resumed["output_dir"]
    gone = dict.fromkeys(("vocab_file", "bert_config_file", "data_dir"), "absent")  # a folder needs no other file
    with_flags(folder, hidden_state_weight=1.0, lr_schedule="budget", nan_policy="rollback", **gone)
    assert Predictor(folder)("the harbour").label in "01"
    before = bytes_in(folder)
    with prints_error(
        "ckpt-6 was trained with hidden_state_weight=1.0, which this version no longer has; start another"
    ):
        run(resumed)
    assert bytes_in(folder) == before
    with_flags(folder, hidden_state_weight=0.0)
    run(resumed)
    for given, former in (("lr_schedule=linear", "lr_schedule=budget"), ("nan_policy=stop", "nan_policy=rollback")):
        assert f"{given}, but {folder}/model.ckpt-6 was trained with {former}: the resumed run differs" in caplog.text


def test_a_finished_run_says_which_other_flags_it_does_not_train_with(half_done, settings, caplog):
    before = bytes_in(half_done)
    run(settings, output_dir=str(half_done), do_train=True, learning_rate=2e-3, train_batch_size=7)
    assert (
        "nothing is trained with train_batch_size=7 (the run: 8), learning_rate=0.002 (the run: 0.001), "
        f"num_train_epochs=1.0 (the run: 2.0), since {half_done}/model.ckpt-6 has all 6 steps; use another output_dir"
    ) in caplog.text
    assert bytes_in(half_done) == before


def test_new_weights_are_warned_of(settings, tmp_path, caplog):
    with prints_error("train.tsv.* is not one of"):  # after the warning
        run(settings, output_dir=str(tmp_path / "new"), init_checkpoint=None, do_train=True, labels="2,3")
    assert "no init_checkpoint: all weights are newly initialized" in caplog.text


def test_a_predictor_refuses_files_of_another_model(half_done, settings, tmp_path):
    with pytest.raises(UserError, match="other.txt is not the vocabulary"):
        Predictor(half_done, vocab_file=other_vocabulary(settings["vocab_file"], tmp_path))
    with pytest.raises(UserError, match="hidden_act is 'relu'"):
        Predictor(half_done, bert_config_file=other_architecture(settings, tmp_path, hidden_act="relu"))


def test_a_run_resumes_before_a_damaged_checkpoint(resumed, caplog):
    folder = resumed["output_dir"]
    path = os.path.join(folder, "model.ckpt-6.data-00000-of-00001")
    os.truncate(path, os.path.getsize(path) // 2)
    run(resumed, log_steps=3, save_checkpoints_steps=4, init_checkpoint=None)
    message = f"{folder}/model.ckpt-6: damaged; resuming from the previous checkpoint, {folder}/model.ckpt-0"
    assert message in caplog.text
    assert "differs from an uninterrupted one" not in caplog.text  # the flags have no effect
    assert "newly initialized, and fine-tuning" not in caplog.text  # the weights come from the folder
    assert CheckpointReader(folder).step == 12


def test_an_output_folder_can_be_moved_and_needs_no_other_file(half_done, tmp_path):
    texts = ["the harbour", "empty empty snow"]
    expected = [result.probability for result in Predictor(half_done)(texts)]
    moved = shutil.copytree(half_done, tmp_path / "moved")
    with_flags(moved, **dict.fromkeys(("data_dir", "bert_config_file", "vocab_file", "init_checkpoint"), "/missing"))
    found = [result.probability for result in Predictor(moved)(texts)]
    assert found == expected
