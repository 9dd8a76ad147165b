"""The checkpoints of an output folder, its state file, and its best checkpoint."""

import json
import os
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import GLOBAL_STEP, CheckpointReader
from official_bert.checkpoints.checkpoint_folder import BestCheckpoint, CheckpointFolder
from official_bert.checkpoints.locate import delete_checkpoints, latest_checkpoint, quoted, read_state
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
    endings = ("data-00000-of-00001", "index")
    files = ["checkpoint", *(f"model.ckpt-{step}.{ending}" for step in (10, 20) for ending in endings)]
    assert sorted(os.listdir(tmp_path)) == files
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


def test_a_damaged_state_file_is_as_good_as_none(tmp_path):
    for step in (40, 200):
        CheckpointFolder(str(tmp_path), keep_max=2).save(step, ARRAYS)
    os.remove(tmp_path / "checkpoint")
    message = r'contains model.ckpt-200 but no readable file .*model_checkpoint_path: "model.ckpt-200"'
    for state in (None, b"", b"\xdb\xff", b"model_checkpoint_path: 3", b'model_checkpoint_path: "a', b"a: 1"):
        if state is not None:
            (tmp_path / "checkpoint").write_bytes(state)
        with pytest.raises(UserError, match=message):
            CheckpointFolder(str(tmp_path), keep_max=2)
        with pytest.raises(UserError, match="is a folder without a readable `checkpoint` file"):
            CheckpointReader(str(tmp_path))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"\n')
    with pytest.raises(UserError, match=r"lists .*model\.ckpt-9, which is missing"):
        CheckpointFolder(str(tmp_path), keep_max=5)
    for name in ("a[x]", "a*", "a?"):  # could be written, but not read
        (tmp_path / name).mkdir()
        with pytest.raises(UserError, match="TensorFlow cannot read checkpoints whose path contains"):
            CheckpointFolder(str(tmp_path / name), keep_max=2)


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
    (tmp_path / "model.ckpt-1.index").write_bytes(b"")  # none is intact: nothing changes
    state = (tmp_path / "checkpoint").read_bytes()
    CheckpointFolder(str(tmp_path), keep_max=0).drop_damaged()
    assert (tmp_path / "checkpoint").read_bytes() == state


@pytest.mark.parametrize("gone", [[], ["data-00000-of-00001"], ["data-00000-of-00001", "index"]])
def test_leftovers_of_a_run_killed_at_its_last_checkpoint_are_deleted(tmp_path, monkeypatch, gone):
    run = CheckpointFolder(str(tmp_path), keep_max=2)
    for step in (1, 2):
        run.save(step, {"step": np.int64(step)})
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(CheckpointFolder, "_delete", mock.Mock(side_effect=KeyboardInterrupt))
        run.save(3, {"step": np.int64(3)})
    for ending in gone:
        (tmp_path / f"model.ckpt-1.{ending}").unlink()
    (tmp_path / ".model.ckpt-4.partial-12.index").write_text("half")
    (tmp_path / ".checkpoint.partial-12").write_text("half")
    CheckpointFolder(str(tmp_path), keep_max=2).remove_leftovers()
    assert checkpoints(tmp_path) == ["model.ckpt-2", "model.ckpt-3"]
    assert "model.ckpt-1" not in (tmp_path / "checkpoint").read_text()
    assert not [*tmp_path.glob(".*partial*"), *tmp_path.glob("model.ckpt-1*")]


@pytest.mark.parametrize("name", ["/elsewhere/model.ckpt-7", 'Zoë\'s "best" model', "back\\slash", "tab\there"])
def test_it_is_read_as_tensorflow_reads_it(tmp_path, name):
    options = {"latest_filename": "checkpoint", "all_model_checkpoint_timestamps": [1.5, 2]}  # and with its escapes
    tf.compat.v1.train.update_checkpoint_state(str(tmp_path), name, ["model.ckpt-1", name], **options)
    expected = tf.train.get_checkpoint_state(str(tmp_path))
    state = read_state(str(tmp_path))
    assert (state.latest, state.kept) == (expected.model_checkpoint_path, list(expected.all_model_checkpoint_paths))
    (tmp_path / "checkpoint").write_text(f"model_checkpoint_path: {quoted(name)}\n")
    assert read_state(str(tmp_path)).latest == expected.model_checkpoint_path


def test_checkpoints_go_and_everything_else_stays_also_behind_links(tmp_path):
    (tmp_path / "run" / "best").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "run" / "link").symlink_to("../other")
    gone = ["run/checkpoint", "run/model.ckpt-10.index", "run/best/model.ckpt-9.data-00000-of-00001"]
    kept = ["run/checkpoint.txt", "run/my_model.ckpt-10.index", "run/model.ckpt-10_notes", "other/model.ckpt-1.index"]
    for name in gone + kept:
        (tmp_path / name).write_text("")
    delete_checkpoints(str(tmp_path / "run"))
    assert not any((tmp_path / name).exists() for name in gone) and all((tmp_path / name).exists() for name in kept)


def test_the_first_of_equals_that_the_checkpoints_of_the_run_vouch_for_is_the_best(tmp_path):
    def full_disk():
        raise UserError("cannot write the checkpoint")

    best = BestCheckpoint(str(tmp_path))
    assert best.num_since_best == 0 and list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match="cannot write"):
        best.add(10, 0.5, full_disk)
    assert not (tmp_path / "best" / "evaluations.json").exists()
    scores = ((10, 0.5), (20, 0.7), (30, 0.7), (40, 0.6))
    assert [best.add(step, score, lambda: "saved") for step, score in scores] == ["saved", "saved", None, None]
    assert best.num_since_best == 2
    CheckpointFolder(str(tmp_path), keep_max=5).save(30, {GLOBAL_STEP: np.int64(30)})
    best = BestCheckpoint(str(tmp_path))
    assert best.num_since_best == 1
    assert best.has(30) and not best.has(40)
    best.add(40, 0.8, lambda: "saved")
    history = json.loads((tmp_path / "best" / "evaluations.json").read_text())
    assert history == [[10, 0.5], [20, 0.7], [30, 0.7], [40, 0.8]]
    damaged = (b"[[10, 0.", b"[[10, NaN]]", b'[["10", 0.5]]', b"[[true, 0.5]]", b"[[10, 0.5, 1]]", b"7")
    for content in (*damaged, b"[" * 100_000, b"\xff\xfe"):
        (tmp_path / "best" / "evaluations.json").write_bytes(content)
        with pytest.raises(UserError, match="evaluations.json is damaged .*; delete it") as caught:
            BestCheckpoint(str(tmp_path))
        assert len(str(caught.value).replace(str(tmp_path), "")) < 300


def test_a_worker_that_does_not_write_leaves_what_a_killed_run_left_and_knows_what_the_chief_saves(tmp_path):
    (tmp_path / "best").mkdir()
    for name in ("model.ckpt-3.index", "model.ckpt-3.data-00000-of-00001"):
        (tmp_path / "best" / name).write_text("half of a first save")
    best = BestCheckpoint(str(tmp_path), is_written=False)
    folder = best.folder
    assert folder.latest is None
    assert best.add(5, 0.5, lambda: folder.save(5, {GLOBAL_STEP: np.int64(5)})) == folder.latest
    assert best.has(5) and folder.latest == str(tmp_path / "best" / "model.ckpt-5")
    assert len(list((tmp_path / "best").iterdir())) == 2
    assert BestCheckpoint(str(tmp_path)).folder.latest is None
    assert list((tmp_path / "best").iterdir()) == []
