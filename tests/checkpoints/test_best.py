"""The best checkpoint of a run."""

import json

import numpy as np
import pytest

from official_bert.checkpoints.bundle import GLOBAL_STEP
from official_bert.checkpoints.checkpoint_folder import BestCheckpoint, CheckpointFolder
from official_bert.support.errors import UserError


def test_the_first_of_equals_is_the_best(tmp_path):
    best = BestCheckpoint(str(tmp_path))
    assert best.num_since_best == 0
    scores = ((10, 0.5), (20, 0.7), (30, 0.7), (40, 0.6))
    assert [best.add(step, score, lambda: "saved") for step, score in scores] == ["saved", "saved", None, None]
    assert best.num_since_best == 2


def test_only_what_the_checkpoints_of_the_run_vouch_for_counts(tmp_path):
    best = BestCheckpoint(str(tmp_path))
    for step, score in ((10, 0.5), (20, 0.7), (30, 0.6), (40, 0.5)):
        best.add(step, score, lambda: "saved")
    CheckpointFolder(str(tmp_path), keep_max=5).save(30, {GLOBAL_STEP: np.int64(30)})
    best = BestCheckpoint(str(tmp_path))
    assert best.num_since_best == 1
    assert best.has(30) and not best.has(40)
    best.add(40, 0.8, lambda: "saved")
    history = json.loads((tmp_path / "best" / "evaluations.json").read_text())
    assert history == [[10, 0.5], [20, 0.7], [30, 0.6], [40, 0.8]]


def test_looking_writes_nothing(tmp_path):
    assert BestCheckpoint(str(tmp_path)).num_since_best == 0
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_cannot_be_saved_is_not_called_the_best(tmp_path):
    def full_disk():
        raise UserError("cannot write the checkpoint")

    best = BestCheckpoint(str(tmp_path))
    with pytest.raises(UserError, match="cannot write"):
        best.add(10, 0.5, full_disk)
    assert not (tmp_path / "best" / "evaluations.json").exists()


@pytest.mark.parametrize(
    "history",
    [
        b"[[10, 0.",
        b"[[10, Infinity]]",
        b"[[10, NaN]]",
        b"[[10, 1e999]]",
        b'[["10", 0.5]]',
        b"[[true, 0.5]]",
        b"[[10, null]]",
        b"[[10, 0.5, 1]]",
        b"{}x",
        b"7",
        b"[[1, 1" + b"0" * 400 + b"]]",
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_damaged_history_is_named(tmp_path, history):
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "evaluations.json").write_bytes(history)
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
