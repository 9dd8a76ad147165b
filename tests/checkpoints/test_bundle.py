"""Reading and writing checkpoints."""

import os

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.bundle import CheckpointReader, is_training_state, write_checkpoint
from official_bert.errors import UserError

ARRAYS = {
    "bert/embeddings/word_embeddings": np.arange(12, dtype=np.float32).reshape(4, 3),
    "bert/embeddings/word_embeddings/adam_m": np.ones([4, 3], np.float32),
    "global_step": np.int64(7),
}


def test_what_is_written_is_read_again(tmp_path):
    prefix = str(tmp_path / "model.ckpt-7")
    write_checkpoint(prefix, ARRAYS)
    assert sorted(os.listdir(tmp_path)) == ["model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index"]
    reader = CheckpointReader(prefix)
    assert reader.shapes == {name: array.shape for name, array in ARRAYS.items()}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(reader.read(name), array)
        assert reader.read(name).dtype == array.dtype


def test_a_failed_write_leaves_nothing_half_written(tmp_path):
    (tmp_path / "model.ckpt-7.index").mkdir()  # cannot be replaced by a file
    with pytest.raises(OSError):
        write_checkpoint(str(tmp_path / "model.ckpt-7"), ARRAYS)
    assert not [name for name in os.listdir(tmp_path) if "partial" in name]


def test_the_v1_saver_reads_what_we_write(tmp_path):
    prefix = str(tmp_path / "model.ckpt-7")
    write_checkpoint(prefix, ARRAYS)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {
            name: tf.compat.v1.get_variable(name, shape=array.shape, dtype=array.dtype)
            for name, array in ARRAYS.items()
        }
        tf.compat.v1.train.Saver().restore(session, prefix)
        for name, variable in variables.items():
            np.testing.assert_array_equal(session.run(variable), ARRAYS[name])


def test_a_checkpoint_of_the_reference_is_read(model_dir):
    reader = CheckpointReader(str(model_dir / "trained_model.ckpt-12"))
    assert reader.read("global_step") == 12
    kernel = "bert/encoder/layer_0/attention/self/query/kernel"
    assert reader.shapes[kernel] == reader.shapes[f"{kernel}/adam_v"] == (32, 32)


def test_any_of_its_file_names_or_its_folder_names_a_checkpoint(tmp_path):
    prefix = str(tmp_path / "model.ckpt-7")
    write_checkpoint(prefix, ARRAYS)
    for path in (prefix, prefix + ".index", prefix + ".data-00000-of-00001"):
        assert CheckpointReader(path).prefix == prefix
    with pytest.raises(UserError, match="is a folder without a readable `checkpoint` file"):
        CheckpointReader(str(tmp_path))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    assert CheckpointReader(str(tmp_path)).prefix == prefix


def test_missing_and_damaged_checkpoints_are_refused(tmp_path):
    prefix = str(tmp_path / "model.ckpt-7")
    with pytest.raises(UserError, match=r"--init_checkpoint .*model\.ckpt-7: no such checkpoint"):
        CheckpointReader(prefix, "--init_checkpoint")
    write_checkpoint(prefix, ARRAYS)
    data = tmp_path / "model.ckpt-7.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:20])
    with pytest.raises(UserError, match=r"cannot be read"):
        CheckpointReader(prefix).read("bert/embeddings/word_embeddings/adam_m")
    (tmp_path / "model.ckpt-7.index").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="cannot be read as a checkpoint"):
        CheckpointReader(prefix)


def test_training_state_is_slots_and_step():
    assert [name for name in ARRAYS if is_training_state(name)] == list(ARRAYS)[1:]
