"""Training under bad conditions: clocks that jump, folders without locks, full disks."""

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import resource
from unittest import mock

import numpy as np
import pytest

from official_bert.checkpoints.bundle import is_whole
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.checkpoints.locate import latest_checkpoint
from official_bert.support import writing
from official_bert.support.errors import UserError
from tests.conftest import ROOT
from tests.recording import fail_after


def test_intervals_are_measured_by_a_clock_that_nobody_sets():
    """The time of day is used only for names and notes, in the modules that give them."""
    of_files = ("files.py", "manifest.py", "sentence_index.py", "served_model.py")  # whether these changed
    for path in sorted(pathlib.Path(ROOT, "official_bert").rglob("*.py")):
        text = path.read_text()
        if re.search(r"\btime\.time\(|datetime\.now\(", text):
            assert path.name in ("monitoring.py", "served_model.py"), path
        assert path.name in of_files or not re.search(r"getmtime|st_mtime|modified_ns", text), path


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_folder_without_locks_is_used_with_a_warning(tmp_path, monkeypatch, caplog, number):
    monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=OSError(number, os.strerror(number))))
    with writing.exclusive_lock(str(tmp_path), "trains into"):
        pass
    assert f"{tmp_path} is on a file system without locks ({os.strerror(number)})" in caplog.messages[0]
    assert "that no other process trains into it" in caplog.messages[0]
    with writing.atomic_write(str(tmp_path / "notes")) as sink:  # files written there still appear
        sink.write("words")
    assert (tmp_path / "notes").read_text() == "words"


def test_a_lock_that_fails_otherwise_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=OSError(errno.EIO, os.strerror(errno.EIO))))
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
