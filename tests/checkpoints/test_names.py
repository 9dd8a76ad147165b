"""Deleting the checkpoints of a run."""

from official_bert.checkpoints.names import delete_checkpoints


def test_checkpoints_go_and_everything_else_stays(tmp_path):
    (tmp_path / "best").mkdir()
    gone = ["checkpoint", "model.ckpt-10.index", "model.ckpt-10.data-00000-of-00001", "best/model.ckpt-9.index"]
    kept = ["eval_results.txt", "checkpoint.txt", "my_model.ckpt-10.index", "model.ckpt-10_notes", "best/evaluations"]
    for name in gone + kept:
        (tmp_path / name).write_text("")
    delete_checkpoints(str(tmp_path))
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(kept)
