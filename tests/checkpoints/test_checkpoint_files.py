"""Deleting the checkpoints of a run."""

from official_bert.checkpoints.locate import delete_checkpoints


def test_checkpoints_go_and_everything_else_stays(tmp_path):
    (tmp_path / "best").mkdir()
    gone = ["checkpoint", "model.ckpt-10.index", "model.ckpt-10.data-00000-of-00001", "best/model.ckpt-9.index"]
    kept = ["eval_results.txt", "checkpoint.txt", "my_model.ckpt-10.index", "model.ckpt-10_notes", "best/evaluations"]
    for name in gone + kept:
        (tmp_path / name).write_text("")
    delete_checkpoints(str(tmp_path))
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(kept)


def test_a_linked_folder_keeps_its_checkpoints(tmp_path):
    for folder in ("run", "other"):
        (tmp_path / folder).mkdir()
    (tmp_path / "other" / "model.ckpt-1.index").write_text("")
    (tmp_path / "run" / "link").symlink_to("../other")
    delete_checkpoints(str(tmp_path / "run"))
    assert (tmp_path / "other" / "model.ckpt-1.index").exists()
