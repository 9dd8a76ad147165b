"""Saves and stops of training: clocks, signals, callbacks and non-finite numbers."""

import csv
import os
import re
import shutil
import signal
import subprocess
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.support.errors import UserError
from official_bert.training import training_run
from tests.conftest import script_command, script_environment
from tests.faults.killing import scalars
from tests.record_files import arrays_of
from tests.training.short_runs import pretraining_flags
from tests.training.sum_runs import PLAN, assert_same, batches, begun, saved_steps, train, weights_of

pytestmark = pytest.mark.slow

BAD = (5, 6, 9)  # batches, counted from 0


def with_bad_batches(start):
    """Return `batches`, some with a non-finite number."""

    def spoilt(number, batch):
        is_bad = tf.reduce_any(number == tf.constant(BAD, tf.int64))
        return {"numbers": tf.where(is_bad, np.nan, batch["numbers"])}

    return batches(start).enumerate(start // PLAN.train_batch_size).map(spoilt)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert train(folder)
    return folder


@pytest.mark.endurance
def test_the_time_limit_ends_a_run_that_the_same_command_resumes(whole, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    for _ in range(2):
        assert not train(tmp_path, max_train_seconds=1e-6)
        step = saved_steps(tmp_path)[-1]
        resumes = f"the same command resumes from {tmp_path}/model.ckpt-{step}"
        assert caplog.messages[-1] == f"max_train_seconds=1e-06: stopped; {resumes}"
    assert 0 < step < 14
    assert train(tmp_path, max_train_seconds=600)
    assert_same(tmp_path / "model.ckpt-14", whole / "model.ckpt-14")
    assert [line["step"] for line in scalars(tmp_path)] == [4, 8, 12, 14]


def test_sigusr1_saves_and_training_continues(whole, tmp_path):
    previous = signal.getsignal(signal.SIGUSR1)

    def evaluate(step):
        if step == 8:
            os.kill(os.getpid(), signal.SIGUSR1)
        return False

    assert train(tmp_path, evaluate=evaluate, eval_steps=4)
    assert saved_steps(tmp_path) == [0, 3, 6, 8, 9, 12, 14]
    assert_same(tmp_path / "model.ckpt-14", whole / "model.ckpt-14")
    assert signal.getsignal(signal.SIGUSR1) == previous


@pytest.mark.endurance
def test_a_step_that_is_not_finite_stops_training_by_default(tmp_path):
    message = "loss nan and gradient norm nan at step 6; the last good .*ckpt-3; try .*skip"
    with pytest.raises(UserError, match=message):
        train(tmp_path, with_bad_batches)
    assert saved_steps(tmp_path) == [0, 3]


@pytest.mark.endurance
def test_skipped_steps_change_nothing_are_counted_and_skipped_again_by_a_resumed_run(tmp_path, caplog):
    whole = tmp_path / "whole"
    assert train(whole, with_bad_batches, nan_policy="skip", save_checkpoints_steps=1)
    for bad in BAD:
        assert_same(whole / f"model.ckpt-{bad}", whole / f"model.ckpt-{bad + 1}")
    kernels = [weights_of(whole / f"model.ckpt-{step}")["sum_model/dense/kernel"].tolist() for step in (7, 8)]
    assert kernels[0] != kernels[1]
    assert {line["step"]: line["skipped_steps"] for line in scalars(whole)} == {4: 0, 8: 2, 12: 1, 14: 0}
    assert all(np.isfinite(value) for line in scalars(whole) for value in line.values() if isinstance(value, float))
    resumed = begun(whole, 6)
    assert train(resumed, with_bad_batches, nan_policy="skip")
    assert_same(resumed / "model.ckpt-14", whole / "model.ckpt-14")
    assert "step 8: skipped 2 of the 4 steps since the last line, whose gradients were not finite" in caplog.text


def test_a_run_that_only_fails_ends(tmp_path):
    def nothing_but_bad(start):
        return batches(start).map(lambda batch: {"numbers": batch["numbers"] * np.inf})

    with pytest.raises(UserError, match=r"gradient norm \w+ at step 2\d, for the 2\dth time in a row; the last good"):
        train(tmp_path, nothing_but_bad, nan_policy="skip", num_train_steps=200)


def test_callbacks_see_the_lines_of_the_log_and_the_optimizer(tmp_path):
    events = []
    recorder = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: events.append("begin"),
        on_epoch_begin=lambda epoch, logs: events.append(epoch),
        on_train_batch_end=lambda batch, logs: events.append(("step", batch + 1)),
        on_train_end=lambda logs: events.append(recorder.model.optimizer.get_config()["beta_2"]),
    )
    assert train(tmp_path, callbacks=[keras.callbacks.CSVLogger(tmp_path / "log.csv"), recorder], num_train_steps=10)
    logged = scalars(tmp_path)
    assert [line["step"] for line in logged] == [4, 8, 10]
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert [int(row["epoch"]) for row in rows] == [0, 1, 2]
    for name in ("loss", "learning_rate"):
        assert [float(row[name]) for row in rows] == [line[name] for line in logged]
    assert events == ["begin", 0, ("step", 4), 1, ("step", 8), 2, ("step", 10), 3, 0.999]


@pytest.mark.endurance
def test_a_callback_ends_training_with_a_checkpoint(tmp_path):
    stopping = keras.callbacks.EarlyStopping(monitor="loss", mode="max", patience=1)  # the loss falls
    assert train(tmp_path, callbacks=[stopping])
    assert saved_steps(tmp_path)[-1] == 8
    assert train(tmp_path)  # without it, training continues
    assert saved_steps(tmp_path)[-1] == 14


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("changes", "seconds_to_save", "saved"),
    [
        ({"save_checkpoints_secs": 4}, 0, [0, 4, 8, 10, 14]),
        ({"save_checkpoints_secs": 4}, 0.09, [0, 5, 10, 14]),  # 50 times as long as a save
        ({"save_checkpoints_secs": 0}, 0, [0, 10, 14]),
    ],
)
def test_checkpoints_by_time_are_replaced_and_resume_exactly(
    whole, tmp_path, monkeypatch, changes, seconds_to_save, saved
):
    """A step takes a second."""
    listed, now = [], [0.0]

    def monotonic():
        now[0] += 1e-6
        return now[0]

    def save(folder, step, tensors, **how):
        prefix = really(folder, step, tensors, **how)
        listed.append(step)
        now[0] += seconds_to_save
        if step == saved[1]:
            shutil.copytree(tmp_path / "run", tmp_path / "killed")
        return prefix

    really = CheckpointFolder.save
    with monkeypatch.context() as patch:
        patch.setattr(training_run, "time", types.SimpleNamespace(monotonic=monotonic))
        patch.setattr(CheckpointFolder, "save", save)
        patch.setattr(training_run, "fault_point", lambda name: now.append(now.pop() + 1))
        assert train(tmp_path / "run", iterations_per_loop=1, save_checkpoints_steps=10, **changes)
    assert listed == saved and saved_steps(tmp_path / "run") == [0, 10, 14]
    for folder in ("run", "killed"):
        assert train(tmp_path / folder, save_checkpoints_steps=10)
        assert_same(tmp_path / folder / "model.ckpt-14", whole / "model.ckpt-14")


def test_a_process_saves_at_sigterm_and_exits_cleanly(records_file, model_dir, one_layer_config_file, tmp_path):
    steps = {"num_train_steps": 100_000, "save_checkpoints_steps": 50_000, "log_steps": 10}
    flags = pretraining_flags(records_file, model_dir, **steps, bert_config_file=one_layer_config_file)
    command = script_command("run_pretraining.py", {**flags, "do_eval": True, "output_dir": tmp_path})
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=script_environment()) as process:
        log = []
        for line in process.stderr:
            log.append(line)
            if any(text in line for text in ("step 10:", "saved", "SIGTERM:")):  # again while it saves, and as it exits
                process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    log = "".join(log)
    assert "Traceback" not in log
    step = int(re.search(r"SIGTERM: stopped; the same command resumes from .*model\.ckpt-(\d+)$", log, re.M)[1])
    assert arrays_of(tmp_path / f"model.ckpt-{step}")["global_step"] == step
    assert not (tmp_path / "eval_results.txt").exists()
