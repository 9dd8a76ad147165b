"""A run that is stopped at any moment and restarted ends like an uninterrupted one.

The task is small, so that there can be many runs; the loop, the files and the signals are the real ones.
"""

import os
import signal
import time

import keras
import pytest

from official_bert.checkpoints.bundle import CheckpointReader, is_training_state
from official_bert.support.signals import RunRequests, Stopped
from tests.faults.killing import scalars
from tests.training.sum_runs import assert_same_end, train_and_evaluate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    folder, traced = tmp_path_factory.mktemp("runs") / "whole", []
    finished = train_and_evaluate(folder, during_tracing=lambda: traced.append((folder / "metrics.jsonl").exists()))
    assert finished == (True, [2, 4, 6])
    assert traced == [False] * (2 if keras.backend.backend() == "jax" else 1)  # before the first step, and never again
    return folder


def test_a_checkpoint_between_two_log_lines_keeps_what_is_not_logged_yet(whole):
    reader = CheckpointReader(str(whole / "model.ckpt-3"))
    kept = {name: reader.read(name) for name in reader.shapes if name.startswith("unlogged_steps/")}
    assert sorted(kept) == [
        f"unlogged_steps/{name}"
        for name in ("gradient_norm", "learning_rate", "loss", "positions", "squared_loss", "tokens")
    ]
    assert all(values.shape == (3,) and is_training_state(name, kept) for name, values in kept.items())
    assert [line["step"] for line in scalars(whole) if line["split"] == "train"] == [4]


def test_sigterm_stops_an_evaluation_which_the_next_start_makes(whole, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")

    def stop(step):
        if step == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    assert train_and_evaluate(tmp_path, during_evaluation=stop) == (False, [2])
    assert f"SIGTERM: stopped; the same command resumes from {tmp_path}/model.ckpt-4" in caplog.text
    assert train_and_evaluate(tmp_path) == (True, [4, 6])
    assert_same_end(tmp_path, whole)


def test_sigterm_before_the_first_step_and_again_while_saving(whole, tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO", logger="absl")

    def stop(*_):
        os.kill(os.getpid(), signal.SIGTERM)

    really = os.replace

    def replace(source, target):
        stop()
        really(source, target)

    # While the first checkpoint is saved, twice.
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        assert train_and_evaluate(tmp_path) == (False, [])
    # In the first compiled call, which takes long.
    assert train_and_evaluate(tmp_path, during_tracing=stop) == (False, [])
    assert "resumes from" in caplog.messages[-1] and caplog.messages[-1].endswith("model.ckpt-0")
    os.kill(os.getpid(), signal.SIGTERM)  # the process is already exiting
    assert train_and_evaluate(tmp_path) == (True, [2, 4, 6])
    assert_same_end(tmp_path, whole)


def test_sigterm_that_native_code_made_an_error_of_is_no_error():
    with RunRequests() as requests, pytest.raises(Stopped), requests.raise_on_stop():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Stopped as error:
            raise RuntimeError("REPLACED BY Stopped") from error
    with RunRequests() as requests, pytest.raises(ZeroDivisionError), requests.raise_on_stop():
        _ = 1 / 0


def test_sigterm_in_a_destructor_stops_the_block_after_it(capsys):
    class Closing:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)
            deleted.append(self)

    deleted = []
    with RunRequests() as requests, pytest.raises(Stopped), requests.raise_on_stop():
        Closing()
        time.sleep(10)
    assert deleted and capsys.readouterr().err == ""


def test_ctrl_c_saves_a_checkpoint_and_a_second_one_ends_at_once(whole, tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO", logger="absl")

    def press(*_):
        for _ in range(2):  # the second is ignored, like one that a launcher passes on
            os.kill(os.getpid(), signal.SIGINT)

    def stop(step):
        if step == 4:
            press()

    def stop_twice(step):
        if step == 4:
            monkeypatch.setattr(os, "replace", press)
            press()

    for pressing, reason, saved in ((stop_twice, "interrupted", 3), (stop, "Ctrl-C: stopped", 4)):
        with pytest.raises(KeyboardInterrupt):
            train_and_evaluate(tmp_path, during_evaluation=pressing)
        monkeypatch.undo()
        assert caplog.messages[-1] == f"{reason}; the same command resumes from {tmp_path}/model.ckpt-{saved}"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert train_and_evaluate(tmp_path) == (True, [4, 6])
    assert_same_end(tmp_path, whole)
