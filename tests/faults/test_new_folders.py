"""Commands that write a folder of several files: it appears whole, or the same command can be repeated."""

import contextlib
import os

import pytest

from official_bert.support import writing
from official_bert.support.errors import UserError
from tests.conftest import endurance
from tests.faults import killing
from tests.recording import fail_after


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "own"),
    [("convert_hf_checkpoint", {"to_hf": True}), *endurance(("edit_checkpoint", {"max_position_embeddings": 80}))],
)
def test_a_killed_command_can_be_repeated(files_of_model, tmp_path, command, own):
    flags = {**files_of_model, **own, "output_dir": tmp_path / "new" / "out"}
    passed = killing.places(command, {**flags, "output_dir": tmp_path / "whole"}, tmp_path)
    for place in ["rename_folder out", *(place for place in passed if place.startswith("published"))]:
        killing.assert_killed(killing.run(command, flags, f"{place}:1"))
        assert [path.name[:5] for path in (tmp_path / "new").iterdir()] == [".out."]
    result = killing.run(command, flags)
    assert result.code == 0, result
    assert os.listdir(tmp_path / "new") == ["out"]
    assert sorted(os.listdir(flags["output_dir"])) == sorted(os.listdir(tmp_path / "whole"))
    assert killing.stray_files(tmp_path) == []


@pytest.mark.parametrize("call", ["fsync", "replace", "rename"])
def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch, call):
    def write():
        with writing.complete_folder(str(tmp_path / "out"), "output_dir") as folder:
            for name in ("a", "b"):
                with writing.atomic_write(os.path.join(folder, name)) as sink:
                    sink.write(name)

    for allowed in range(20):
        with monkeypatch.context() as patch, contextlib.suppress(UserError):
            fail_after(patch, call, allowed)
            write()
            break
        if (tmp_path / "out").exists():  # only the flush of the name itself failed
            break
        assert os.listdir(tmp_path) == []
    assert sorted(os.listdir(tmp_path / "out")) == ["a", "b"] and os.listdir(tmp_path) == ["out"]


def test_messages_name_the_folder_and_what_is_in_the_way(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "file").touch()
    for path, message in (("file", "is a file, not a folder"), (".", "file exists already"), ("/proc", "exists")):
        with pytest.raises(UserError, match=f"output_dir={path}.*{message}"):
            writing.check_new_folder(path, "output_dir")
    with pytest.raises(UserError, match="^link/a is full$"), writing.complete_folder("link", "output_dir") as folder:
        raise UserError(f"{folder}/a is full")
    with writing.complete_folder("link", "output_dir") as folder:  # an empty folder may be there
        (tmp_path / folder / "a").touch()
    assert os.listdir("there") == ["a"] and os.path.islink("link")
    monkeypatch.chdir(tmp_path / "there")
    (tmp_path / "there" / "a").unlink()
    with pytest.raises(UserError, match="the working folder cannot be replaced; give a folder in it"):
        writing.check_new_folder(str(tmp_path / "link"), "output_dir")
