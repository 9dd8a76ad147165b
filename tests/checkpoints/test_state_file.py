"""The state file of a run's folder, compared with TensorFlow's reader."""

import pytest
import tensorflow as tf

from official_bert.checkpoints.locate import locate, quoted, read_state, step_of
from official_bert.support.errors import UserError


@pytest.mark.parametrize("name", ["model.ckpt-7", 'Zoë\'s "best" model', "back\\slash", "tab\there", "雪.ckpt-1"])
def test_it_is_read_as_tensorflow_reads_it(tmp_path, name):
    # With TensorFlow's timestamps and its escapes.
    tf.compat.v1.train.update_checkpoint_state(
        str(tmp_path),
        name,
        ["model.ckpt-1", name],
        latest_filename="checkpoint",
        all_model_checkpoint_timestamps=[1.5, 2],
    )
    expected = tf.train.get_checkpoint_state(str(tmp_path))
    state = read_state(str(tmp_path))
    assert (state.latest, state.kept) == (expected.model_checkpoint_path, list(expected.all_model_checkpoint_paths))
    (tmp_path / "checkpoint").write_text(f"model_checkpoint_path: {quoted(name)}\n")
    assert read_state(str(tmp_path)).latest == expected.model_checkpoint_path


def test_absolute_paths_stay_as_they_are(tmp_path):
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/model.ckpt-3"\n')
    assert read_state(str(tmp_path)).latest == "/elsewhere/model.ckpt-3"


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", 'model_checkpoint_path: "a', "model_checkpoint_path: a b", "model_checkpoint_path: 3", "a: 1"],
)
def test_a_damaged_file_says_nothing(tmp_path, text):
    (tmp_path / "checkpoint").write_text(text)
    assert read_state(str(tmp_path)) is None


def test_a_checkpoint_is_found_by_any_of_its_names(tmp_path):
    for suffix in (".index", ".data-00000-of-00001", ".meta"):
        (tmp_path / f"model.ckpt-3{suffix}").touch()
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-3"\n')
    prefix = str(tmp_path / "model.ckpt-3")
    for path in (tmp_path, prefix, prefix + ".index", prefix + ".data-00000-of-00001", prefix + ".meta"):
        assert locate(str(path), "--init_checkpoint").prefix == prefix
    with pytest.raises(UserError, match="init_checkpoint .*absent: no such checkpoint"):
        locate(str(tmp_path / "absent"), "--init_checkpoint")


def test_the_step_is_in_the_name():
    assert step_of("out/model.ckpt-1200") == 1200
    assert step_of("out/bert_model.ckpt") is None
