"""Training for a given time: the learning rate falls by the clock, and a resumed run continues with the time left."""

import json
import os
import re
import signal
import time

import keras
import pytest

from official_bert.checkpoints.bundle import TRAIN_SECONDS, CheckpointReader
from tests.training.sum_runs import saved_steps, train

SECONDS, PEAK = 6.0, 0.01  # compilation counts, and takes seconds on a busy machine
BUDGET = {"lr_schedule": "budget", "max_train_seconds": SECONDS, "learning_rate": PEAK, "num_warmup_steps": 0}
BUDGET |= {"num_train_steps": 1000, "iterations_per_loop": 1, "log_steps": 1, "save_checkpoints_steps": 1000}


def each_step(function):
    """Return callbacks that wait 0.3 s and call a function after each step."""
    waiting = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: time.sleep(0.3))
    return [waiting, keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: function(epoch + 1))]


def rates(folder):
    return [json.loads(line)["learning_rate"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def used_seconds(folder):
    return float(CheckpointReader(f"{folder}/model.ckpt-{saved_steps(folder)[-1]}").read(TRAIN_SECONDS))


def test_a_stopped_run_continues_with_the_time_left(tmp_path, caplog):
    def terminate(step):
        if step == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    assert not train(tmp_path, callbacks=each_step(terminate), **BUDGET)
    before, used = rates(tmp_path), used_seconds(tmp_path)
    assert saved_steps(tmp_path) == [0, 5] and before[0] == pytest.approx(PEAK) and 0.5 <= used < SECONDS
    assert before == sorted(before, reverse=True) and before[-1] < 0.85 * PEAK

    evaluated, began = [], time.monotonic()

    def evaluate(step):
        evaluated.append(step)
        return False

    assert train(tmp_path, callbacks=each_step(lambda step: None), evaluate=evaluate, eval_steps=10_000, **BUDGET)
    assert time.monotonic() - began >= SECONDS - used
    after, last = rates(tmp_path)[5:], saved_steps(tmp_path)[-1]
    assert after[0] == pytest.approx(PEAK * (1 - used / SECONDS), rel=0.2)
    assert after == sorted(after, reverse=True) and after[-1] < 0.3 * PEAK
    assert evaluated == [last] and last < 40 and used_seconds(tmp_path) >= SECONDS

    assert train(tmp_path, **BUDGET)
    assert f"{tmp_path}/model.ckpt-{last} exists already: nothing left to train in max_train_seconds=6" in caplog.text


def test_steps_that_end_before_the_time_give_a_warning(tmp_path, caplog):
    assert train(tmp_path, **BUDGET | {"num_train_steps": 3, "max_train_seconds": 600.0})
    assert saved_steps(tmp_path)[-1] == 3
    message = r"all 3 steps took \d of max_train_seconds=600: the learning rate did not reach its end"
    assert re.search(message, caplog.text)
