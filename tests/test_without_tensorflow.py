"""Commands that write records do not import TensorFlow, and programs with Keras on JAX run without it."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest

import official_bert
from official_bert import BertConfig, BertEncoder, FullTokenizer, PretrainingModel, save_model
from official_bert.data.schema import ENCODER_FIELDS, RecordSchema
from official_bert.tasks.pretraining.task import PretrainingTask
from tests.conftest import GOLDEN, ROOT, run_program, script_environment
from tests.exports import assert_same
from tests.serving.tiny_exports import LABELS, PAIRS, TAGS
from tests.serving.tiny_exports import TASKS as TINY_MODELS

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


_PROGRAM = """
import importlib.util, sys
import keras
import numpy as np
import official_bert
from official_bert.data.batches import numpy_batches
from official_bert.data.record_files import count_records
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
first, *others = bundles
official_bert.PretrainingModel.from_checkpoint(first).save_checkpoint(f"{folder}/converted/model.safetensors")
for bundle in (None, *others):
    try:
        official_bert.BertEncoder.from_checkpoint(bundle) if bundle else model.save_checkpoint(folder)
    except UserError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def run_without(tmp_path_factory):
    """Return a function that runs Python on JAX where TensorFlow is not installed, and returns what it prints."""
    folder = tmp_path_factory.mktemp("without") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for place in pathlib.Path(np.__file__).parents[1].iterdir():
        if not re.match(r"tensorflow|google$|.*\.pth$", place.name):  # nor the folder of protocol buffers
            (packages / place.name).symlink_to(place)

    def run(*arguments):
        command = [folder / "bin" / "python", *arguments]
        environment = script_environment() | {"KERAS_BACKEND": "jax", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


@pytest.mark.endurance
def test_pretraining_where_tensorflow_is_not_installed(corpus_file, vocab_file, model_dir, tmp_path, run_without):
    bundle = str(model_dir / "bert_model.ckpt")
    model = PretrainingModel.from_checkpoint(bundle)
    model.save_checkpoint(tmp_path / "theirs" / "model.safetensors")
    flags = {"input_file": corpus_file, "output_file": tmp_path / "records", "vocab_file": vocab_file}
    flags |= {"max_seq_length": 32, "max_predictions_per_seq": 5}
    given = [f"--{name}={value}" for name, value in flags.items()]
    run_without("-m", "official_bert", "create_pretraining_data", *given)
    places = [tmp_path / "records", tmp_path / "theirs", bundle, GOLDEN / "tf2" / "garden_encoder_v2"]
    printed = run_without("-c", _PROGRAM, *places).splitlines()
    assert len(printed) == 2
    files = [tmp_path / "theirs" / name / "model.safetensors" for name in ("", "converted")]
    assert files[0].read_bytes() == files[1].read_bytes()
    for line in printed:
        assert re.search("(bert_model.ckpt|model with .index).* needs TensorFlow; run: pip install tensorflow", line)
    task = PretrainingTask(model.config, max_seq_length=32, max_predictions_per_seq=5, eval_batch_size=8)
    with np.load(tmp_path / "theirs" / "found.npz") as found:
        batch = {name: found[name] for name in task.schema.names}
        for name, loss in task.losses(model(batch), batch).items():
            np.testing.assert_allclose(found[name], loss.total, rtol=1e-5)


# The flags of `save_model` and the texts of each task.
_MODELS = {
    "classification": ({"labels": LABELS, "text_b_column": "b", "max_seq_length": 32}, PAIRS),
    "tagging": ({"labels": TAGS, "max_seq_length": 32}, ["the town", "", "a river " * 30]),
    "question_answering": (
        {"max_seq_length": 32, "doc_stride": 8, "max_query_length": 8}, [("the town", "a bright river " * 20)]
    ),
    "multiple_choice": ({"max_seq_length": 32}, [("the town", ["a river", "bright word"]), ("a", ["b", "c", "d"])]),
    "pretraining": ({"max_seq_length": 32}, ["the [MASK] town", "a river", "[MASK] [MASK] [MASK]"]),
    "sentence_encoder": ({"max_seq_length": 32, "data_dir": "."}, ["the town", "a river " * 9]),
}  # fmt: skip
_PREDICT = """
import json, sys
from official_bert import Predictor
from official_bert.inference.predictor import as_json

for folder, texts in json.loads(sys.argv[1]).items():
    predict = Predictor(folder)
    texts = [tuple(text) if isinstance(text, list) else text for text in texts]
    records = predict.predict_records([bytes.fromhex(sys.argv[2])] * 3)
    vectors = predict.embed(["the town", "a river"], pooling="max")
    print(json.dumps([as_json(predict(texts)), as_json(records), as_json(vectors)]))
assert not sys.modules.get("tensorflow") or sys.argv[3] == "tensorflow"
"""


@pytest.mark.endurance
def test_predictors_where_tensorflow_is_not_installed(one_layer_config_file, vocab_file, tmp_path, run_without):
    config, tokenizer, texts = BertConfig.from_json_file(one_layer_config_file), FullTokenizer(vocab_file), {}
    for task, (flags, some) in _MODELS.items():
        model, _ = TINY_MODELS[task](BertEncoder(config), config=config, tokenizer=tokenizer)
        for variable in model.trainable_variables:  # large enough that texts matter
            variable.assign(variable + keras.random.normal(variable.shape, stddev=0.1, seed=1))
        texts[save_model(tmp_path / task, model, tokenizer, **flags)] = some
    ids = {"input_ids": [2, *range(9, 38), 4, 3], "input_mask": [1] * 32, "segment_ids": [0] * 32}
    arguments = [json.dumps(texts), RecordSchema(*ENCODER_FIELDS).sized(S=32).encode(ids).hex()]
    found = run_without("-c", _PREDICT, *arguments, "jax").splitlines()
    expected = run_program(_PREDICT, *arguments, "tensorflow").splitlines()[-len(texts) :]
    for answers, others in zip(found, expected, strict=True):
        assert_same(json.loads(answers), json.loads(others))


_NEED_TENSORFLOW = {"AttentionReader", "DatasetTokenizer", "export", "load_export", "save_model"}
_IMPORTS = """
import importlib, sys
import official_bert.modeling.transformer  # a module of the model may be the first that is imported
import official_bert.optimization.optimizers, official_bert.data.record_files, official_bert.checkpoints.loading
for name in sys.argv.pop(1).split():
    importlib.import_module(name) if name.startswith("official_bert.") else getattr(official_bert, name)
"""


@pytest.mark.slow
def test_predictions_of_a_command_where_tensorflow_is_not_installed(reviews, tmp_path, run_without):
    out = tmp_path / "out"
    shutil.copytree(reviews["output_dir"], out)
    expected = {name: (out / name).read_text() for name in ("test_results.tsv", "predictions.tsv")}
    for name in (*expected, "predict.tf_record", "predict.tf_record.json"):
        (out / name).unlink(missing_ok=True)
    tasks = [f"official_bert.tasks.{path.parent.name}.task" for path in ROOT.glob("official_bert/tasks/*/task.py")]
    names = " ".join([*tasks, *{*official_bert.__all__} - _NEED_TENSORFLOW])
    flags = ["--backend=jax", "--predict_file=test.tsv", f"--data_dir={reviews['data_dir']}", f"--output_dir={out}"]
    run_without("-c", _IMPORTS + _SCRIPT, names, "run_classifier", "--do_predict", *flags)
    for name, text in expected.items():
        found, parts = (re.split(r"(\d+\.\d+(?:e-\d+)?)", each) for each in ((out / name).read_text(), text))
        assert found[::2] == parts[::2] and len(parts) > 9
        np.testing.assert_allclose(np.array(found[1::2], float), np.array(parts[1::2], float), atol=1e-5)
