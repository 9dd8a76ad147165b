"""Reading and writing checkpoints."""

import itertools
import os

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader, is_training_state, is_whole, write_checkpoint
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.checkpoints.locate import latest_checkpoint
from official_bert.checkpoints.tensor_bundle import TensorBundle
from official_bert.support.errors import UserError
from tests.recording import recorded

ARRAYS = {
    "bert/embeddings/word_embeddings": np.arange(12, dtype=np.float32).reshape(4, 3),
    "bert/embeddings/word_embeddings/adam_m": np.ones([4, 3], np.float32),
    "global_step": np.int64(7),
}


def test_what_is_written_is_read_again(tmp_path):
    prefix = str(tmp_path / "model.ckpt-7")
    strings = [b""] * 1000  # of a byte each
    write_checkpoint(prefix, {**ARRAYS, "strings": np.array(strings, object)})
    assert sorted(os.listdir(tmp_path)) == ["model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index"]
    reader = CheckpointReader(prefix)
    assert reader.shapes == {**{name: array.shape for name, array in ARRAYS.items()}, "strings": (1000,)}
    assert reader.read_stored("strings").tolist() == strings
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(reader.read(name), array, strict=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:  # and by the saver of TensorFlow 1
        variables = {
            name: tf.compat.v1.get_variable(name, shape=array.shape, dtype=array.dtype)
            for name, array in ARRAYS.items()
        }
        tf.compat.v1.train.Saver().restore(session, prefix)
        for name, variable in variables.items():
            np.testing.assert_array_equal(session.run(variable), ARRAYS[name])


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("bert/pooler/dense/bias", np.array([1, np.nan]), "bert/pooler/dense/bias contains NaN or infinity"),
        ("bert/pooler/dense/bias", np.array([1, 1e300]), "bert/pooler/dense/bias contains NaN .* beyond float32"),
        ("bert/pooler/dense/bias", np.array([1, 2]), "bert/pooler/dense/bias contains int64, not floating-point"),
        ("bert/pooler/dense/bias", np.array([b"a"]), "bert/pooler/dense/bias contains object, not floating-point"),
        ("electra/embeddings/word_embeddings", np.ones([4, 3]), "has bert/embeddings/word_embeddings twice"),
        ("global_step", np.array([1, 2]), r"global_step is \[1, 2\], not a number of steps"),
        ("global_step", np.array(b"7"), "global_step is b'7', not a number of steps"),
        ("a" * 1001, np.ones(1), "declares 'aaa.* of the shape .1., which no BERT has"),
    ],
)
def test_weights_are_finite_numbers_with_one_name(tmp_path, name, array, message):
    prefix = str(tmp_path / "bert_model.ckpt")
    write_checkpoint(prefix, ARRAYS | {name: array})
    with pytest.raises(UserError, match=message):
        reader = CheckpointReader(prefix, "init_checkpoint")
        assert reader.step == 7
        reader.read(name)


def test_no_flipped_bit_changes_a_number(tmp_path):
    prefix = str(tmp_path / "model.ckpt")
    write_checkpoint(prefix, ARRAYS)
    for path in (tmp_path / "model.ckpt.index", tmp_path / "model.ckpt.data-00000-of-00001"):
        content = path.read_bytes()
        for place in range(len(content)):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises(UserError, match="damaged|does not match|V2 format|ends before byte|no BERT has"):
                [reader.read(name) for reader in [CheckpointReader(prefix)] for name in ARRAYS]
            assert not is_whole(prefix)
        path.write_bytes(content)
    assert is_whole(prefix)


@pytest.mark.parametrize("edges", [(0, 3, 7), (0, 1, 70_000)])  # lengths with codes of one, two and three bytes
def test_partitioned_variables_are_joined(tmp_path, edges):
    prefix, array = str(tmp_path / "bert_model.ckpt"), np.arange(4 * edges[-1], dtype=np.float32).reshape(4, -1)

    def save(*starts_and_ends):
        places = [f"4 {edges[-1]} -:{start},{end - start}" for start, end in starts_and_ends]
        parts = [array[:, start:end] for start, end in starts_and_ends]
        tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["a"] * len(parts), shape_and_slices=places, tensors=parts)

    save(*itertools.pairwise(edges))
    np.testing.assert_array_equal(CheckpointReader(prefix).read("a"), array)
    save(edges[1:])
    with pytest.raises(UserError, match="a cannot be read: the parts of a do not make it up"):
        CheckpointReader(prefix).read("a")
    bundle = TensorBundle(prefix)
    (whole,) = bundle.entries.values()
    for extents in ([], [(0, 4)], [(0, 4), (edges[1], edges[-1])], [(0, 4), (-1, 1)]):  # of a damaged index
        bundle.entries["a"] = whole._replace(parts=[extents])
        with pytest.raises(ValueError, match="the parts of a do not make it up"):
            bundle.read("a")


def test_a_checkpoint_is_on_the_disk_before_its_names(tmp_path, monkeypatch):
    calls = recorded(monkeypatch, "fsync", "replace")
    write_checkpoint(str(tmp_path / "model.ckpt-7"), ARRAYS)
    names = ["model.ckpt-7"] * 2 + ["model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index", tmp_path.name]
    assert calls == list(zip(["fsync", "fsync", "replace", "replace", "fsync"], names, strict=True))


def test_folders_and_special_files_are_neither_read_nor_replaced(tmp_path):
    prefix = str(tmp_path / "model.ckpt-7")
    os.mkdir(prefix + ".index")
    with pytest.raises(UserError, match=r"cannot write .*model\.ckpt-7\.index: it is a folder"):
        write_checkpoint(prefix, ARRAYS)
    assert os.listdir(tmp_path) == ["model.ckpt-7.index"]
    os.rmdir(prefix + ".index")
    os.mkfifo(prefix + ".index")
    for use in (lambda: write_checkpoint(prefix, ARRAYS), lambda: CheckpointReader(prefix)):
        with pytest.raises(UserError, match=r"model\.ckpt-7\.index is a device, a pipe .* not a regular file"):
            use()
    os.mkfifo(tmp_path / "checkpoint")
    with pytest.raises(UserError, match=r"checkpoint"):
        CheckpointReader(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "model.ckpt-7.index"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a\0b", "cannot contain the character NUL"),
        ("caf\udce9", "is not UTF-8; rename the file"),
        ("a" * 250, "File name too long"),  # with its suffix
        ("s3://bucket/model.ckpt", "TensorFlow has no file system for s3://|cannot write the checkpoint s3://bucket/"),
    ],
)
def test_names_that_no_checkpoint_can_have(tmp_path, path, message):
    path = path if "://" in path else str(tmp_path / path)
    with pytest.raises(UserError, match=message):
        write_checkpoint(path, ARRAYS)
    with pytest.raises(UserError, match=f"{message}|no such checkpoint"):
        CheckpointReader(path, "--init_checkpoint")
    assert os.listdir(tmp_path) == []


def test_the_last_whole_checkpoint_before_a_damaged_one_is_named(tmp_path):
    folder = CheckpointFolder(str(tmp_path), keep_max=0)
    for step in (9, 10, 200, 3000, 40_000):
        folder.save(step, ARRAYS)

    def damage(step):
        data = tmp_path / f"model.ckpt-{step}.data-00000-of-00001"
        content = bytearray(data.read_bytes())
        content[8] ^= 1  # in the first array; the others are unchanged
        data.write_bytes(content)

    def message(path):
        with pytest.raises(UserError) as caught:
            CheckpointReader(str(path)).read("bert/embeddings/word_embeddings")
        return str(caught.value)

    damage(3000)
    damage(200)
    os.remove(tmp_path / "model.ckpt-10.data-00000-of-00001")
    line = 'model_checkpoint_path: "model.ckpt-9"'
    advice = f"give it, or to resume from it, replace the contents of {tmp_path}/checkpoint with the line {line}"
    expected = f"; {tmp_path}/model.ckpt-9, the last one before it, is intact: {advice}"
    assert message(tmp_path / "model.ckpt-3000").endswith(expected)
    (tmp_path / "checkpoint").write_text(line)  # as advised
    assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-9")
    damage(9)
    assert message(tmp_path).endswith("; no earlier checkpoint in its folder is intact")
    (tmp_path / "model.ckpt-3000.index").write_bytes(b"nonsense")
    found = message(tmp_path / "model.ckpt-3000")
    assert "cannot be read as a checkpoint" in found
    assert found.endswith("; no earlier checkpoint in its folder is intact")


def test_any_of_its_file_names_or_its_folder_names_a_checkpoint(tmp_path):
    prefix = str(tmp_path / "model.ckpt-7")
    write_checkpoint(prefix, ARRAYS)
    for ending in ("", ".index", ".data-00000-of-00001", ".data-00001-of-00002", ".meta"):
        assert CheckpointReader(prefix + ending).prefix == prefix
    (tmp_path / "v1.ckpt").touch()
    with pytest.raises(UserError, match="v1.ckpt has no .index file; a checkpoint in TensorFlow's V1 format must be"):
        CheckpointReader(str(tmp_path / "v1.ckpt"))
    (tmp_path / "v1.ckpt").unlink()
    assert CheckpointReader(str(tmp_path)).prefix == prefix  # like released models, without a state file
    write_checkpoint(str(tmp_path / "model.ckpt-8"), ARRAYS)
    match = "is a folder without a readable `checkpoint` file; it contains 'model.ckpt-7', 'model.ckpt-8'; give a"
    with pytest.raises(UserError, match=match):
        CheckpointReader(str(tmp_path))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    assert CheckpointReader(str(tmp_path)).prefix == prefix


def test_training_state_is_slots_and_step():
    assert [name for name in ARRAYS if is_training_state(name, ARRAYS)] == list(ARRAYS)[1:]
    momentum = "bert/embeddings/word_embeddings/momentum"  # a slot of another optimizer
    assert is_training_state(momentum, ARRAYS) and not is_training_state(momentum, {momentum})


def test_damage_during_writing_keeps_the_previous_checkpoint(tmp_path, monkeypatch):
    folder = CheckpointFolder(str(tmp_path), keep_max=5)
    folder.save(1, ARRAYS)
    really = tf.raw_ops.SaveV2

    def save_on_a_bad_disk(prefix, **arguments):
        really(prefix=prefix, **arguments)
        with open(f"{prefix}.data-00000-of-00001", "r+b") as data:
            data.write(bytes([data.read(1)[0] ^ 1]))

    monkeypatch.setattr(tf.raw_ops, "SaveV2", save_on_a_bad_disk)
    with pytest.raises(UserError, match="ckpt-2 was damaged while it was written, .* the previous one is kept"):
        folder.save(2, ARRAYS)
    assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")
    assert not [name for name in os.listdir(tmp_path) if "ckpt-2" in name]


def test_a_checkpoint_that_the_disk_has_no_room_for_is_not_begun(tmp_path):
    folder = CheckpointFolder(str(tmp_path), keep_max=1)
    folder.save(1, ARRAYS)
    huge = np.broadcast_to(np.float32(0), (10**9, 10**5))  # needs no memory until it is written
    message = r"ckpt-2: it needs 400,000.00 GB, but only [\d.,]+ GB are free; free at least 3[\d.,]+ GB on that disk$"
    with pytest.raises(UserError, match=message):
        folder.save(2, {"a": huge})
    assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")
    assert CheckpointReader(str(tmp_path)).step == ARRAYS["global_step"]
    assert not [name for name in os.listdir(tmp_path) if "ckpt-2" in name]
