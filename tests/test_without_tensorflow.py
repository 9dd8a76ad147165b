"""Commands that write records do not import TensorFlow, and programs with Keras on JAX run without it."""

import json
import pathlib
import re
import subprocess
import sys
import sysconfig

import numpy as np
import pytest

import official_bert
from official_bert import PretrainingModel
from official_bert.tasks.pretraining.task import PretrainingTask
from tests.conftest import GOLDEN, ROOT, run_program, script_environment

_REPORT = r"""
import json, re, sys
peak = int(re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())[1]) // 1024
print(json.dumps({"imported": [name for name in ("tensorflow", "keras", "jax") if name in sys.modules], "MB": peak}))
"""
_SCRIPT = """
import runpy, sys
sys.argv[0] = "official_bert"
try:
    runpy.run_module("official_bert", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
"""


def run_fresh(code, *arguments):
    """Run code; return the large packages that it imports and its peak memory in MB."""
    return json.loads(run_program(code + _REPORT, *arguments).splitlines()[-1])


@pytest.mark.parametrize(
    ("script", "flags"),
    [
        ("create_pretraining_data", ["--output_file={folder}/out.tfrecord", "--vocab_file={vocab}"]),
        ("create_pretraining_data", ["--output_file={folder}/out", "--vocab_file={vocab}", "--compression=gzip"]),
        ("build_vocab", ["--vocab_file={folder}/vocab.txt", "--vocab_size=400"]),
        ("split_sentences", ["--output_file={folder}/out.txt", "--num_processes=1"]),
    ],
)
def test_scripts_of_local_files(script, flags, corpus_file, vocab_file, tmp_path):
    flags = [flag.format(folder=tmp_path, vocab=vocab_file) for flag in flags]
    report = run_fresh(_SCRIPT, script, f"--input_file={corpus_file}", *flags)
    assert report["imported"] == []
    assert report["MB"] < 200


def test_modules_that_make_records():
    """Processes that make records in parallel import them."""
    paths = [*ROOT.glob("official_bert/tasks/*/records.py"), *ROOT.glob("official_bert/tasks/*/data.py")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    assert len(names) >= 8
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    assert run_fresh(code, *names, "official_bert.data.record_files")["imported"] == []


_NEED_TENSORFLOW = {
    *("AttentionReader", "DatasetTokenizer", "Predictor", "Trainer", "VectorIndex"),
    *("export", "load_export", "save_model"),
}
_IMPORTS = """
import importlib, os, sys
os.environ["KERAS_BACKEND"] = "jax"
import official_bert.optimization.optimizers, official_bert.data.record_files, official_bert.checkpoints.loading
for name in sys.argv[1:]:
    importlib.import_module(name) if name.startswith("official_bert.") else getattr(official_bert, name)
"""


@pytest.mark.slow
def test_models_and_tasks_on_jax():
    tasks = [f"official_bert.tasks.{path.parent.name}.task" for path in ROOT.glob("official_bert/tasks/*/task.py")]
    assert run_fresh(_IMPORTS, *tasks, *{*official_bert.__all__} - _NEED_TENSORFLOW)["imported"] == ["keras", "jax"]


_PROGRAM = """
import importlib.util, sys
import keras
import numpy as np
import official_bert
from official_bert.data.record_files import count_records, numpy_batches
from official_bert.optimization.optimizers import create_optimizer
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.task import PretrainingTask

records, folder, *bundles = sys.argv[1:]
assert importlib.util.find_spec("tensorflow") is None and keras.backend.backend() == "jax"
model = official_bert.PretrainingModel.from_checkpoint(folder)
task = PretrainingTask(model.config, max_seq_length=32, max_predictions_per_seq=5, eval_batch_size=8)
batch = next(numpy_batches([records], task.schema, batch_size=8, num_records=count_records(records), seed=1))
losses = {name: float(loss.total) for name, loss in task.losses(model(batch), batch).items()}
np.savez(f"{folder}/found.npz", **batch, **losses)

create_optimizer("adam", 1e-3, model, {}).apply([each.value for each in model.trainable_variables])
model.save_checkpoint(f"{folder}/trained/model.safetensors")
loaded = official_bert.PretrainingModel.from_checkpoint(f"{folder}/trained")
for variable, other in zip(model.weights, loaded.weights, strict=True):
    np.testing.assert_array_equal(variable, other)
for bundle in (None, *bundles):
    try:
        official_bert.BertEncoder.from_checkpoint(bundle) if bundle else model.save_checkpoint(folder)
    except UserError as error:
        print(error)
"""


@pytest.mark.slow
def test_pretraining_where_tensorflow_is_not_installed(corpus_file, vocab_file, model_dir, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    for place in pathlib.Path(sysconfig.get_path("purelib")).iterdir():
        if not re.match(r"tensorflow|google$|.*\.pth$", place.name):  # nor the folder of protocol buffers
            (packages / place.name).symlink_to(place)

    def run(*arguments):
        command = [tmp_path / "venv" / "bin" / "python", *arguments]
        environment = script_environment() | {"KERAS_BACKEND": "jax", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout

    bundle = str(model_dir / "bert_model.ckpt")
    model = PretrainingModel.from_checkpoint(bundle)
    model.save_checkpoint(tmp_path / "theirs" / "model.safetensors")
    flags = {"input_file": corpus_file, "output_file": tmp_path / "records", "vocab_file": vocab_file}
    flags |= {"max_seq_length": 32, "max_predictions_per_seq": 5}
    run("-m", "official_bert", "create_pretraining_data", *(f"--{name}={value}" for name, value in flags.items()))
    places = [tmp_path / "records", tmp_path / "theirs", bundle, GOLDEN / "tf2" / "garden_encoder_v2"]
    printed = run("-c", _PROGRAM, *places).splitlines()
    assert len(printed) == 3
    for line in printed:
        assert re.search("(bert_model.ckpt|model with .index).* needs TensorFlow; run: pip install tensorflow", line)
    task = PretrainingTask(model.config, max_seq_length=32, max_predictions_per_seq=5, eval_batch_size=8)
    with np.load(tmp_path / "theirs" / "found.npz") as found:
        batch = {name: found[name] for name in task.schema.names}
        for name, loss in task.losses(model(batch), batch).items():
            np.testing.assert_allclose(found[name], loss.total, rtol=1e-5)
