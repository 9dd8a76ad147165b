"""A run that is stopped at any moment and restarted ends like an uninterrupted one.

The task is small, so that there can be many runs; the loop, the files and the signals are the real ones.
"""

import os
import shutil
import signal
import time

import pytest

from official_bert.checkpoints.bundle import CheckpointReader, is_training_state
from official_bert.support import writing
from official_bert.support.signals import RunRequests, Stopped
from tests.conftest import endurance
from tests.faults.killing import scalars
from tests.training.evaluated_runs import SCORES, assert_same_end, train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run, and copies of its folder as a kill before each change would leave them."""
    folder = tmp_path_factory.mktemp("runs")
    whole, states, seen = folder / "whole", folder / "states", []

    def change(really):
        def change_after_copying(path, *more):
            contents = {
                path: path.read_bytes() for path in whole.rglob("[!.]*") if path.is_file() and "events" not in path.name
            }
            if contents not in seen:
                seen.append(contents)
                shutil.copytree(whole, states / f"{len(seen):02} {os.path.relpath(path, whole).replace(os.sep, ' ')}")
            return really(path, *more)

        return change_after_copying

    states.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((os, "replace"), (writing, "remove")):
            patch.setattr(module, name, change(getattr(module, name)))
        assert train(whole) == (True, [2, 4, 6])
    return whole, states


def test_a_checkpoint_between_two_log_lines_keeps_what_is_not_logged_yet(whole):
    reader = CheckpointReader(str(whole[0] / "model.ckpt-3"))
    kept = {name: reader.read(name) for name in reader.shapes if name.startswith("unlogged_steps/")}
    assert sorted(kept) == [
        f"unlogged_steps/{name}"
        for name in ("gradient_norm", "learning_rate", "loss", "positions", "squared_loss", "tokens")
    ]
    assert all(values.shape == (3,) and is_training_state(name, kept) for name, values in kept.items())
    assert [line["step"] for line in scalars(whole[0]) if line["split"] == "train"] == [4]


@pytest.mark.parametrize("step", [8, *endurance(1)])  # see also test_power_cut.py
def test_a_run_killed_before_any_change_of_its_files_ends_as_the_whole_one(whole, tmp_path, step):
    whole, states = whole
    for state in sorted(shutil.copytree(states, tmp_path / "states").iterdir())[::step]:
        assert train(state)[0], state
        assert_same_end(state, whole)


def test_the_step_is_traced_once_before_the_first_one(tmp_path):
    traced = []
    train(tmp_path, during_tracing=lambda: traced.append((tmp_path / "metrics.jsonl").exists()))
    assert traced == [False]


@pytest.mark.parametrize("stopped_in", [4, *endurance(6)])
def test_sigterm_stops_an_evaluation_which_the_next_start_makes(whole, tmp_path, caplog, stopped_in):
    caplog.set_level("INFO", logger="absl")

    def stop(step):
        if step == stopped_in:
            os.kill(os.getpid(), signal.SIGTERM)

    is_complete, evaluated = train(tmp_path, during_evaluation=stop)
    assert not is_complete and evaluated == [step for step in SCORES if step < stopped_in]
    assert f"SIGTERM: stopped; the same command resumes from {tmp_path}/model.ckpt-{stopped_in}" in caplog.text
    assert train(tmp_path) == (True, [step for step in SCORES if step >= stopped_in])
    assert_same_end(tmp_path, whole[0])


def test_sigterm_before_the_first_step_and_again_while_saving(whole, tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO", logger="absl")

    def stop(*_):
        os.kill(os.getpid(), signal.SIGTERM)

    # In the first compiled call, which takes long.
    assert train(tmp_path / "traced", during_tracing=stop) == (False, [])
    assert "resumes from" in caplog.messages[-1] and caplog.messages[-1].endswith("model.ckpt-0")
    os.kill(os.getpid(), signal.SIGTERM)  # the process is already exiting
    # While the first checkpoint is saved, twice.
    really = os.replace

    def replace(source, target):
        stop()
        really(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        assert train(tmp_path / "saved") == (False, [])
    for folder in (tmp_path / "traced", tmp_path / "saved"):
        assert train(folder) == (True, [2, 4, 6])
        assert_same_end(folder, whole[0])


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


@pytest.mark.parametrize("is_repeated", [False, True])
def test_ctrl_c_saves_a_checkpoint_and_a_second_one_ends_at_once(whole, tmp_path, caplog, monkeypatch, is_repeated):
    caplog.set_level("INFO", logger="absl")

    def press(*_):
        for _ in range(2):  # the second is ignored, like one that a launcher passes on
            os.kill(os.getpid(), signal.SIGINT)

    def stop(step):
        if step == 4:
            if is_repeated:
                monkeypatch.setattr(os, "replace", press)
            press()

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, during_evaluation=stop)
    monkeypatch.undo()
    reason, saved = ("interrupted", 3) if is_repeated else ("Ctrl-C: stopped", 4)
    assert caplog.messages[-1] == f"{reason}; the same command resumes from {tmp_path}/model.ckpt-{saved}"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert train(tmp_path) == (True, [4, 6])
    assert_same_end(tmp_path, whole[0])
