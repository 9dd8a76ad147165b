"""Training under bad conditions: clocks that jump, folders without locks, full disks."""

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import resource
import time

import numpy as np
import pytest

from official_bert.checkpoints.bundle import is_whole
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.checkpoints.locate import latest_checkpoint
from official_bert.support import writing
from official_bert.support.errors import UserError
from tests.conftest import ROOT
from tests.recording import fail_after
from tests.training.sum_runs import assert_same, saved_steps, train

HOURS = 3600


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert train(folder)
    return folder


@pytest.mark.parametrize("hours", [-5, 5])
@pytest.mark.endurance
def test_a_clock_that_is_set_neither_ends_training_nor_saves(whole, tmp_path, monkeypatch, hours):
    really, asked = time.time, []

    def jumping():
        asked.append(1)
        return really() + (hours * HOURS if len(asked) % 2 else 0)

    monkeypatch.setattr(time, "time", jumping)
    assert train(tmp_path, max_train_seconds=HOURS, iterations_per_loop=1)
    assert saved_steps(tmp_path) == saved_steps(whole)
    assert_same(tmp_path / "model.ckpt-14", whole / "model.ckpt-14")


def test_intervals_are_measured_by_a_clock_that_nobody_sets():
    """The time of day is used only for names and notes, in the modules that give them."""
    for path in sorted(pathlib.Path(ROOT, "official_bert").rglob("*.py")):
        if re.search(r"\btime\.time\(|datetime\.now\(|getmtime\(", path.read_text()):
            assert path.name in ("monitoring.py", "served_model.py"), path


@pytest.mark.endurance
def test_the_order_of_checkpoints_is_not_that_of_their_times(whole, tmp_path):
    assert not train(tmp_path, max_train_seconds=1e-6)
    last = latest_checkpoint(str(tmp_path))
    now = time.time()
    for number, path in enumerate(sorted(tmp_path.iterdir())):
        os.utime(path, (now, now - number * HOURS if path.name.startswith(os.path.basename(last)) else now + HOURS))
    assert latest_checkpoint(str(tmp_path)) == last
    assert train(tmp_path)
    assert_same(tmp_path / "model.ckpt-14", whole / "model.ckpt-14")


def flock_that_fails(number):
    def flock(*_):
        raise OSError(number, os.strerror(number))

    return flock


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_folder_without_locks_is_used_with_a_warning(tmp_path, monkeypatch, caplog, number):
    monkeypatch.setattr(fcntl, "flock", flock_that_fails(number))
    with writing.exclusive_lock(str(tmp_path), "trains into"):
        pass
    assert f"{tmp_path} is on a file system without locks ({os.strerror(number)})" in caplog.messages[0]
    assert "that no other process trains into it" in caplog.messages[0]
    with writing.atomic_write(str(tmp_path / "notes")) as sink:  # files written there still appear
        sink.write("words")
    assert (tmp_path / "notes").read_text() == "words"


def test_a_lock_that_fails_otherwise_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", flock_that_fails(errno.EIO))
    with pytest.raises(UserError, match=r"cannot lock .*\.lock: Input/output error"):
        writing.exclusive_lock(str(tmp_path), "trains into").__enter__()


def test_a_second_run_in_the_folder_is_noticed_where_locks_were_lost(tmp_path):
    first = CheckpointFolder(str(tmp_path), keep_max=2)
    first.save(1, {"a": np.full(1, 1.0)})
    second = CheckpointFolder(str(tmp_path), keep_max=2)
    second.save(2, {"a": np.full(1, 2.0)})
    with pytest.raises(UserError, match=r"another process saved .*model\.ckpt-2 while this one was training"):
        first.save(3, {"a": np.full(1, 1.0)})
    assert latest_checkpoint(str(tmp_path)).endswith("model.ckpt-2")
    second.save(4, {"a": np.full(1, 2.0)})


@contextlib.contextmanager
def largest_file(num_bytes):
    """Limit the size of files, which fails writes of TensorFlow and Python like a disk quota."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_save_that_the_system_refuses_leaves_the_checkpoint_before(tmp_path):
    folder = CheckpointFolder(str(tmp_path), keep_max=1)
    folder.save(1, {"a": np.full(10_000, 1.0)})
    with (
        pytest.raises(UserError, match=r"cannot write the checkpoint .*model\.ckpt-2: .*File too large") as error,
        largest_file(12_000_000),
    ):
        folder.save(2, {"a": np.full(1_250_000, 2.0), "b": np.full(1_250_000, 2.0)})  # more than TensorFlow buffers
    assert not re.search(r"\{\{|\[Op:|\.partial-", str(error.value))  # names of TensorFlow's and of files before
    assert latest_checkpoint(str(tmp_path)).endswith("model.ckpt-1")
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", *(f"model.ckpt-1.{end}" for end in ENDS)]
    folder.save(2, {"a": np.full(10_000, 2.0)})
    assert latest_checkpoint(str(tmp_path)).endswith("model.ckpt-2")


ENDS = ("data-00000-of-00001", "index")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_full_disk_at_any_moment_of_a_save_is_one_message(tmp_path, monkeypatch, number, name):
    CheckpointFolder(str(tmp_path), keep_max=1).save(1, {"a": np.full(1, 1.0)})
    failed_at = []
    for allowed in range(8):
        folder = CheckpointFolder(str(tmp_path), keep_max=1)
        with monkeypatch.context() as patch:
            fail_after(patch, name, allowed, number)
            try:
                folder.save(2, {"a": np.full(1, 2.0)})
            except UserError as error:
                assert re.search(rf"cannot write .*: {os.strerror(number)}", str(error)), error
                assert is_whole(latest_checkpoint(str(tmp_path)))
                failed_at.append(allowed)
                continue
            break
    assert len(failed_at) >= 3
    assert latest_checkpoint(str(tmp_path)).endswith("model.ckpt-2")
    assert not list(tmp_path.glob(".*partial*"))
