"""Models that `transformers` saved from Keras, by their names, shapes and a file in `tests/golden/families`."""

import gzip
import json
import pathlib
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest
import safetensors.numpy

from official_bert.checkpoints.loading import open_pretrained
from official_bert.checkpoints.safetensors import read_model
from official_bert.config.bert_config import BertConfig
from official_bert.support.errors import UserError
from tests.conftest import GOLDEN, endurance

MODELS = GOLDEN / "families"
DESCRIBED = json.loads(gzip.decompress((MODELS / "tf_models.json.gz").read_bytes()))
UNUSED = "/predictions/bias:0"  # of an ALBERT in Keras, which trains and adds predictions/decoder/bias
FEW = ("albert/ForPreTraining", "bert/ForPreTraining", "deberta-v2/ForMaskedLM", "mpnet/ForSequenceClassification")


def data_of(case):
    """Return the arrays of a model by their places in its `tf_model.h5`."""
    state = safetensors.numpy.load_file(MODELS / case / "model.safetensors")
    for new, old in (("bias", "bias"), ("", "transform.")):  # Keras has only the older head of a DeBERTa
        state = {name.replace(f"lm_predictions.lm_head.{new}", f"cls.predictions.{old}"): state[name] for name in state}
    prefix = next(name for name, _ in DESCRIBED[case].values()).partition(".")[0] + "."
    state |= {prefix + name: array for name, array in state.items()}  # a bare encoder has no prefix in PyTorch
    if "predictions.bias" in state:
        state["predictions.decoder.bias"] = state["predictions.bias"]
    arrays = {}
    for place, (name, is_transposed) in DESCRIBED[case].items():
        array = state.get(name, np.ones([12] * (1 + is_transposed)))  # PyTorch's MPNet has no pooler beside a head
        array = 3 * array if case.startswith("albert") and place.endswith(UNUSED) else array
        arrays[place] = array.T if is_transposed else array
    return arrays


def write_whole(folder, arrays, file="tf_model.h5"):
    with h5py.File(folder / file, "w") as sink:
        for place, array in arrays.items():
            sink[place] = array


def variables_of(arrays):
    """Leave out the names of layers and of the model."""
    return {place.split("/", 2)[2]: np.ascontiguousarray(array) for place, array in arrays.items()}


def write_shards(folder, arrays):
    arrays = variables_of(arrays)
    shards = {name: f"tf_model-0000{1 + (number > 9)}-of-00002.h5" for number, name in enumerate(arrays)}
    for file in set(shards.values()):
        write_whole(folder, {name: arrays[name] for name in arrays if shards[name] == file}, file)
    (folder / "tf_model.h5.index.json").write_text(json.dumps({"weight_map": shards}))


def write_safetensors(folder, arrays):
    safetensors.numpy.save_file(variables_of(arrays), folder / "model.safetensors", {"format": "tf"})


def read(folder):
    return read_model(str(folder), BertConfig.from_json_file(str(folder / "config.json")))


def assert_equal_models(found, expected):
    assert {*found.parts} - {"pooler"} == {*expected.parts} - {"pooler"}
    assert found.arrays.keys() == expected.arrays.keys()
    for name in expected.arrays.keys() - expected.new:
        np.testing.assert_array_equal(found.arrays[name], expected.arrays[name], err_msg=name)


@pytest.mark.parametrize("case", [*FEW, *endurance(*(case for case in DESCRIBED if case not in FEW))])
def test_a_model_of_keras_is_that_of_pytorch(case, tmp_path):
    for write in (write_safetensors, write_shards, write_whole):
        shutil.copytree(MODELS / case, folder := tmp_path / write.__name__)
        (folder / "model.safetensors").unlink()
        write(folder, data_of(case))
        assert_equal_models(read(folder), read(MODELS / case))


def test_a_file_of_transformers_is_read_if_there_are_no_others(tmp_path):
    path = pathlib.Path(shutil.copy(MODELS / "distilbert_tf_model.h5", tmp_path / "tf_model.h5"))
    shutil.copy(MODELS / "distilbert" / "Model" / "config.json", tmp_path)
    expected = read(MODELS / "distilbert" / "Model")
    assert_equal_models(open_pretrained(path)[0].weights, expected)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match="tf_model.h5 is damaged, truncated or not a Keras weights file"):
        read(tmp_path)
    shutil.copy(MODELS / "distilbert" / "Model" / "model.safetensors", tmp_path)
    assert_equal_models(read(tmp_path), expected)


WORDS = "mlm___cls/tf_bert_for_pre_training/bert/embeddings/word_embeddings/weight:0"


@pytest.mark.parametrize(
    ("place", "array", "message"),
    [
        (WORDS, np.ones([33, 12]), f"tf_model.h5: {WORDS} differs from another bert/embeddings/word_embeddings/weight"),
        (WORDS, np.array([b"a"] * 9, h5py.string_dtype()), f"{WORDS} has elements of variable length"),
        (WORDS, np.ones([2, 2], np.int32), f"{WORDS} contains int32, not floating-point"),
        ("dense/model/dense/kernel:0", np.ones([2, 3]), "unknown: dense.weight;"),
        ("dense", np.ones([2, 3]), "unknown: dense;"),
    ],
)
def test_a_misfit_is_named(place, array, message, tmp_path):
    case = "bert/ForPreTraining"
    shutil.copy(MODELS / case / "config.json", tmp_path)
    write_whole(tmp_path, data_of(case) | {place: array})
    with pytest.raises(UserError, match=message):
        read(tmp_path)


@pytest.mark.endurance
def test_the_files_of_transformers_are_read(tmp_path):
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    packages = ["transformers==4.57.1", "tensorflow==2.19.1", "tf_keras==2.19.0"]
    if subprocess.run([python, "-m", "pip", "install", "--quiet", *packages]).returncode:
        pytest.skip("needs a package index")
    subprocess.run([python, MODELS / "make_tf_models.py", tmp_path], env={"CUDA_VISIBLE_DEVICES": ""}, check=True)
    assert json.loads(gzip.decompress((tmp_path / "tf_models.json.gz").read_bytes())) == DESCRIBED
    for case in DESCRIBED:
        shutil.copy(MODELS / case / "config.json", tmp_path / case)
        assert_equal_models(read(tmp_path / case), read(MODELS / case))
