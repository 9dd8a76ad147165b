"""The checkpoints of an output folder."""

import os

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.checkpoints.locate import latest_checkpoint
from official_bert.support.errors import UserError
from tests.recording import recorded

ARRAYS = {"bert/kernel": np.zeros([2], np.float32)}


def checkpoints(folder):
    return sorted(name.removesuffix(".index") for name in os.listdir(folder) if name.endswith(".index"))


def test_the_last_few_are_kept_and_named_as_the_reference_names_them(tmp_path):
    folder = CheckpointFolder(str(tmp_path), keep_max=2)
    assert folder.latest is None
    for step in (0, 10, 20):
        folder.save(step, ARRAYS)
    assert folder.latest == str(tmp_path / "model.ckpt-20")
    assert sorted(os.listdir(tmp_path)) == [
        "checkpoint",
        "model.ckpt-10.data-00000-of-00001",
        "model.ckpt-10.index",
        "model.ckpt-20.data-00000-of-00001",
        "model.ckpt-20.index",
    ]
    assert (tmp_path / "checkpoint").read_text() == (
        'model_checkpoint_path: "model.ckpt-20"\n'
        'all_model_checkpoint_paths: "model.ckpt-10"\n'
        'all_model_checkpoint_paths: "model.ckpt-20"\n'
    )
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-20")


def test_old_checkpoints_go_when_the_new_state_is_on_the_disk(tmp_path, monkeypatch):
    folder = CheckpointFolder(str(tmp_path), keep_max=1)
    folder.save(0, ARRAYS)
    calls = recorded(monkeypatch, "fsync", "replace", "remove")
    folder.save(1, ARRAYS)
    new, old = (
        calls.index((call, name)) for call, name in (("replace", "checkpoint"), ("remove", "model.ckpt-0.index"))
    )
    assert ("replace", "model.ckpt-1.index") in calls[:new]
    assert ("fsync", tmp_path.name) in calls[calls.index(("replace", "model.ckpt-1.index")) : new]
    assert ("fsync", "checkpoint") in calls[:new]
    assert ("fsync", tmp_path.name) in calls[new:old]


def test_zero_keeps_all(tmp_path):
    folder = CheckpointFolder(str(tmp_path), keep_max=0)
    for step in range(8):
        folder.save(step, ARRAYS)
    assert len(checkpoints(tmp_path)) == 8


def test_a_later_run_continues_the_count(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("out")
    CheckpointFolder("out", keep_max=2).save(1, ARRAYS)
    (tmp_path / "out" / "model.ckpt-1.meta").write_text("as the reference leaves it")
    folder = CheckpointFolder("out", keep_max=2)
    assert folder.latest == "out/model.ckpt-1"
    folder.save(2, ARRAYS)
    folder.save(2, ARRAYS)
    folder.save(3, ARRAYS)
    assert checkpoints("out") == ["model.ckpt-2", "model.ckpt-3"]
    assert "model.ckpt-1.meta" not in os.listdir("out")


def test_leftovers_of_a_killed_run_are_deleted(tmp_path):
    (tmp_path / ".model.ckpt-5.partial-123.index").write_text("half")
    (tmp_path / ".other").write_text("not ours")
    CheckpointFolder(str(tmp_path), keep_max=5).save(6, ARRAYS)
    assert ".model.ckpt-5.partial-123.index" not in os.listdir(tmp_path)
    assert ".other" in os.listdir(tmp_path)


def test_checkpoints_that_no_state_file_names_are_not_ignored(tmp_path):
    CheckpointFolder(str(tmp_path), keep_max=5).save(40, ARRAYS)
    CheckpointFolder(str(tmp_path), keep_max=5).save(200, ARRAYS)
    os.remove(tmp_path / "checkpoint")
    with pytest.raises(
        UserError, match=r'contains model\.ckpt-200 but no readable file .*model_checkpoint_path: "model\.ckpt-200"'
    ):
        CheckpointFolder(str(tmp_path), keep_max=5)


def test_a_state_file_that_names_nothing_is_refused(tmp_path):
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"\n')
    with pytest.raises(UserError, match=r"lists .*model\.ckpt-9, which is missing"):
        CheckpointFolder(str(tmp_path), keep_max=5)


@pytest.mark.parametrize("state", [b"", b"\xdb\xff", b"model_checkpoint_path: 3"])
def test_a_damaged_state_file_is_as_good_as_none(tmp_path, state):
    CheckpointFolder(str(tmp_path), keep_max=2).save(7, ARRAYS)
    (tmp_path / "checkpoint").write_bytes(state)
    with pytest.raises(UserError, match="contains model.ckpt-7 but no readable file 'checkpoint'; to resume from it"):
        CheckpointFolder(str(tmp_path), keep_max=2)
    with pytest.raises(UserError, match="is a folder without a readable `checkpoint` file"):
        CheckpointReader(str(tmp_path))


def test_a_path_that_could_be_written_but_not_read_is_refused(tmp_path):
    for name in ("a[x]", "a*", "a?"):
        (tmp_path / name).mkdir()
        with pytest.raises(UserError, match="TensorFlow cannot read checkpoints whose path contains"):
            CheckpointFolder(str(tmp_path / name), keep_max=2)


def test_a_folder_that_is_not_there_has_no_checkpoint(tmp_path):
    assert latest_checkpoint(str(tmp_path / "absent")) is None
    CheckpointFolder(str(tmp_path), keep_max=2).save(7, ARRAYS)
    assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-7")


def test_damaged_checkpoints_at_the_end_are_dropped_with_a_warning(tmp_path, caplog):
    folder = CheckpointFolder(str(tmp_path), keep_max=0)
    for step in (1, 2, 3, 4):
        folder.save(step, ARRAYS)
    folder.drop_damaged()
    assert folder.latest.endswith("model.ckpt-4") and not caplog.messages
    for step in (2, 3, 4):
        data = tmp_path / f"model.ckpt-{step}.data-00000-of-00001"
        content = data.read_bytes()
        data.write_bytes(content[:-1] if step == 3 else bytes([content[0] ^ 1]) + content[1:])
    (tmp_path / "model.ckpt-4.index").write_bytes(b"")
    CheckpointFolder(str(tmp_path), keep_max=0).drop_damaged()
    names = ", ".join(f"{tmp_path}/model.ckpt-{step}" for step in (2, 3, 4))
    assert caplog.messages == [f"{names}: damaged; resuming from the previous checkpoint, {tmp_path}/model.ckpt-1"]
    assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")


def test_a_folder_without_any_intact_checkpoint_is_left_alone(tmp_path):
    CheckpointFolder(str(tmp_path), keep_max=0).save(1, ARRAYS)
    (tmp_path / "model.ckpt-1.index").write_bytes(b"")
    state = (tmp_path / "checkpoint").read_bytes()
    CheckpointFolder(str(tmp_path), keep_max=0).drop_damaged()
    assert (tmp_path / "checkpoint").read_bytes() == state


def test_leftovers_of_a_run_killed_at_its_last_checkpoint_are_deleted(tmp_path, monkeypatch):
    run = CheckpointFolder(str(tmp_path), keep_max=2)
    for step in (1, 2):
        run.save(step, {"step": np.int64(step)})
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(CheckpointFolder, "_delete", _killed)
        run.save(3, {"step": np.int64(3)})
    (tmp_path / ".model.ckpt-4.partial-12.index").write_text("half")
    (tmp_path / ".checkpoint.partial-12").write_text("half")
    CheckpointFolder(str(tmp_path), keep_max=2).remove_leftovers()
    assert checkpoints(tmp_path) == ["model.ckpt-2", "model.ckpt-3"]
    assert "model.ckpt-1" not in (tmp_path / "checkpoint").read_text()
    assert not list(tmp_path.glob(".*partial*"))


def _killed(*_):
    raise KeyboardInterrupt
