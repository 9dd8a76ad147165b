"""An exported model serves a C program, `ask.c`, in a process without Python or this package."""

import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from official_bert.serving.signatures import TEXT
from tests.conftest import Result

TOLERANCE = 1e-6
PAIRS = [("Zoë's CAFÉ, 한국어 中人國！", "ＴＨＥ ｔｏｗｎ 😀 20 °C"), ("the town woke slowly", "players left")]

IS_POSSIBLE = sys.platform.startswith("linux") and shutil.which("gcc")
pytestmark = [pytest.mark.endurance, pytest.mark.skipif(not IS_POSSIBLE, reason="needs Linux, gcc")]


def compiled(path):
    library_dir = tf.sysconfig.get_lib()
    command = ["gcc", "-Wall", "-Werror", f"-I{tf.sysconfig.get_include()}", "-o", path]
    command += [pathlib.Path(__file__).with_name("ask.c"), f"-L{library_dir}", f"-Wl,-rpath,{library_dir}"]
    command += ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
    command += ["-fuse-ld=gold"] * bool(shutil.which("ld.gold"))  # takes a fifth of the time
    subprocess.run(command, check=True)
    return path


def test_answers_are_those_of_python_without_python(export_dir, signatures, tmp_path):
    firsts, seconds = zip(*PAIRS, strict=True)
    with tf.device("CPU"):
        texts = {"text_a": tf.constant(firsts), "text_b": tf.constant(seconds)}
        expected, other = signatures[TEXT](**texts)["probabilities"].numpy()
    folder = pathlib.Path(export_dir, "1")
    content = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    signature = content.meta_graphs[0].signature_def[TEXT]
    names = [signature.inputs[name].name for name in texts] + [signature.outputs["probabilities"].name]
    # A GPU rounds differently and may be full; the loader logs what it loads.
    environment = {"CUDA_VISIBLE_DEVICES": "", "LD_DEBUG": "files"}
    command = [compiled(tmp_path / "ask"), folder, *names, *PAIRS[0]]
    result = Result(subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment))
    assert result.code == 0, result
    answer = np.array(result.output.split(), np.float32)
    np.testing.assert_allclose(answer, expected, rtol=0, atol=TOLERANCE)
    assert np.abs(other - answer).max() > 1000 * TOLERANCE  # so another pair's output would not pass
    assert "libtensorflow_cc" in result.errors
    assert "libpython" not in result.errors and "_pywrap" not in result.errors
