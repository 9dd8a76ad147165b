"""Commands that write a folder of several files: it appears whole, or the same command can be repeated."""

import contextlib
import os

import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader, write_checkpoint
from official_bert.config.bert_config import LORA_SCALE
from official_bert.support import writing
from official_bert.support.errors import UserError
from tests.conftest import endurance, run_script
from tests.faults import killing
from tests.recording import fail_after


@pytest.fixture(scope="module")
def flags_of(files_of_model, model_dir, corpus_file, tmp_path_factory):
    """Command and direction to the flags but `--output_dir`."""
    folder = tmp_path_factory.mktemp("made")
    model = {**files_of_model, "init_checkpoint": str(model_dir / "trained_model.ckpt-12")}
    hugging_face = str(folder / "hf")
    assert run_script("convert_hf_checkpoint", **model, to_hf=True, output_dir=hugging_face).code == 0
    reader = CheckpointReader(files_of_model["init_checkpoint"])
    kernel = "bert/encoder/layer_0/attention/self/query/kernel"
    factor = reader.read(kernel)[:2]
    updates = {kernel.replace("kernel", "lora_kernel_a"): factor.T, kernel.replace("kernel", "lora_kernel_b"): factor}
    write_checkpoint(str(folder / "lora.ckpt"), {kernel: reader.read(kernel), **updates, LORA_SCALE: np.float32(0.5)})
    return {
        "edit_checkpoint of positions": {**model, "max_position_embeddings": 80},
        "edit_checkpoint": model,
        "edit_checkpoint of vocabulary": {**model, "input_file": corpus_file, "prune": True},
        "convert_hf_checkpoint of an adapter": {**files_of_model, "init_checkpoint": str(folder / "lora.ckpt")},
        "convert_hf_checkpoint": {"hf_dir": hugging_face},
        "convert_hf_checkpoint --to_hf": {**model, "to_hf": True},
    }


COMMANDS = (
    "edit_checkpoint of positions", "edit_checkpoint", "edit_checkpoint of vocabulary",
    "convert_hf_checkpoint of an adapter", "convert_hf_checkpoint", "convert_hf_checkpoint --to_hf",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", [COMMANDS[0], *endurance(*COMMANDS[1:])])
def test_a_killed_command_can_be_repeated(flags_of, tmp_path, name):
    command, flags = name.split()[0], {**flags_of[name], "output_dir": tmp_path / "new" / "out"}
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
