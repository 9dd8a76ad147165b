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
PLAIN = ("the town was woken slowly", "players left an instrument")
PAIRS = {
    "plain": PLAIN,
    "not ASCII": ("Zoë's CAFÉ, 한국어 中人國！", "ＴＨＥ ｔｏｗｎ 😀 20 °C"),
}

IS_POSSIBLE = sys.platform.startswith("linux") and shutil.which("gcc")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not IS_POSSIBLE, reason="needs Linux, gcc")]


@pytest.fixture(scope="module")
def saved_model(export_dir):
    return pathlib.Path(export_dir) / "1"


@pytest.fixture(scope="module")
def tensor_names(saved_model):
    """Return the tensor names of the signature `text`: both inputs and the probabilities."""
    content = saved_model_pb2.SavedModel.FromString((saved_model / "saved_model.pb").read_bytes())
    signature = content.meta_graphs[0].signature_def[TEXT]
    inputs = [signature.inputs[name].name for name in ("text_a", "text_b")]
    return [*inputs, signature.outputs["probabilities"].name]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path, library_dir = tmp_path_factory.mktemp("program") / "ask", tf.sysconfig.get_lib()
    command = ["gcc", "-Wall", "-Werror", f"-I{tf.sysconfig.get_include()}", "-o", path]
    command += [pathlib.Path(__file__).with_name("ask.c"), f"-L{library_dir}", f"-Wl,-rpath,{library_dir}"]
    command += ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
    result = Result(subprocess.run(command, capture_output=True, text=True))
    assert result.code == 0, result
    return path


@pytest.fixture
def ask(program, tmp_path):
    """Return a function that runs the program in an empty folder, without our environment variables."""

    def run(*arguments, **environment):
        command = [program, *arguments]
        environment = {"CUDA_VISIBLE_DEVICES": "", **environment}  # a GPU rounds differently and may be full
        return Result(subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment))

    return run


@pytest.fixture(scope="module")
def expected(signatures):
    """Predictions in Python by name of the pair: float32 [C]."""
    with tf.device("CPU"):
        firsts, seconds = (tf.constant(texts) for texts in zip(*PAIRS.values(), strict=True))
        probabilities = signatures[TEXT](text_a=firsts, text_b=seconds)["probabilities"].numpy()
    return dict(zip(PAIRS, probabilities, strict=True))


@pytest.mark.parametrize("name", PAIRS)
def test_answers_are_those_of_python(ask, saved_model, tensor_names, expected, name):
    result = ask(saved_model, *tensor_names, *PAIRS[name])
    assert result.code == 0, result
    answer = np.array(result.output.split(), np.float32)
    np.testing.assert_allclose(answer, expected[name], rtol=0, atol=TOLERANCE)
    others = [probabilities for other, probabilities in expected.items() if other != name]
    assert np.abs(others - answer).max(axis=1).min() > 1000 * TOLERANCE  # so another pair's output would not pass


def test_no_python_is_loaded(ask, saved_model, tensor_names):
    result = ask(saved_model, *tensor_names, *PLAIN, LD_DEBUG="files")  # the loader logs what it loads
    assert result.code == 0, result
    assert "libtensorflow_cc" in result.errors
    assert "libpython" not in result.errors and "_pywrap" not in result.errors
