"""Whole runs with options for memory, speed, precision and batches: hardly other results, and what is refused."""

import json
import os
import pathlib
import re
import shutil
import sys

import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.inference.predictor import Predictor
from official_bert.support.errors import UserError
from official_bert.training.devices import _of_cpu, _of_gpus, dtype_policy
from official_bert.training.run_folder import read_results
from tests.commands.conftest import arrays_of, json_lines, without_dropout
from tests.conftest import assert_fails, assert_refused, prints_error, run_cold, run_here
from tests.exports import assert_same
from tests.training.short_runs import pretraining_flags, runs_of_all_tasks


@pytest.fixture(scope="module")
def settings(sst2, tmp_path_factory):
    """Flags of a run without dropout in its encoder, which also evaluates."""
    config_file = without_dropout(sst2["bert_config_file"], tmp_path_factory.mktemp("model"))
    return {**sst2, "bert_config_file": config_file, "do_train": True, "do_eval": True}


def run(settings, folder, **more):
    run_here("run_classifier", **{**settings, "output_dir": str(folder), **more})
    return read_results(str(folder / "eval_results.txt"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unpad": True, "use_tpu": True}, "--unpad cannot be used with --use_tpu: a TPU needs batches of fixed shape"),
        ({"use_xla": True, "use_tpu": True}, "--use_xla is not needed: a TPU always compiles with XLA; leave it out"),
        ({"gradient_checkpointing": True, "do_train": False}, "--gradient_checkpointing needs --do_train"),
        ({"gradient_checkpointing": True, "trainable_encoder": False}, "--gradient_checkpointing cannot be used with"),
        ({"head": "bilstm", "feature_layers": "last"}, "--head=bilstm reads the last layer at every position; leave"),
        ({"head": "bilstm", "trainable_encoder": False}, "--head=bilstm and --notrainable_encoder exclude each other"),
        ({"lstm_units": 3}, "--lstm_units needs --head=bilstm"),
        ({"backend": "jax", "use_xla": True}, "--use_xla is not needed: --backend=jax always compiles with XLA"),
        ({"backend": "jax", "unpad": True}, "--unpad cannot be used with --backend=jax: its batches have a fixed"),
        ({"backend": "jax", "use_tpu": True}, "--use_tpu belongs to TensorFlow; --backend=jax uses the TPU of its"),
        ({"backend": "jax", "num_tpu_cores": 4}, "--num_tpu_cores belongs to TensorFlow; --backend=jax"),
        ({"backend": "jax", "distribution": "mirrored"}, "--distribution=mirrored is a strategy of TensorFlow; --back"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, tmp_path, changes, message):
    with prints_error(message):
        run(settings, tmp_path, **changes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.endurance
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_a_checkpoint_goes_with_every_precision(settings, tmp_path, caplog, precision):
    scores = run(settings, tmp_path, num_train_epochs=2.0, mixed_precision=precision)
    reader = CheckpointReader(str(tmp_path / "model.ckpt-12"))
    names = {name for name in reader.shapes if not name.startswith(("unlogged_steps/", "loss_scale/"))}
    assert {reader.read(name).dtype for name in names} == {np.dtype("float32"), np.dtype("int64")}
    line = json_lines(tmp_path / "metrics.jsonl")[0]
    is_scaled = precision == "float16"
    assert ("loss_scale/scale" in reader.shapes) == ("loss_scale" in line) == ("overflow_steps" in line) == is_scaled
    in_float32 = run(settings, tmp_path, do_train=False)["eval_loss"]
    assert scores["eval_loss"] != in_float32 == pytest.approx(scores["eval_loss"], abs=0.02)
    caplog.clear()
    run(settings, tmp_path, num_train_epochs=2.5, do_eval=False)
    message = f"mixed_precision=none, but {tmp_path}/model.ckpt-12 was trained with mixed_precision={precision}"
    assert message in caplog.text
    predictors = [Predictor(tmp_path, mixed_precision=name) for name in ("none", precision)]
    exact, near = (predictor("the bright town").probability for predictor in predictors)
    assert exact != near == pytest.approx(exact, abs=0.02)
    exact, near = (predictor.embed("the bright town") for predictor in predictors)
    assert 0 < np.abs(exact - near).max() < 0.1


def test_automatic_precision_follows_the_devices(tmp_path, caplog, monkeypatch):
    def gpu(*capability):
        return {"device_name": "G", "compute_capability": capability}

    assert _of_gpus([gpu(9, 0)])[0] == "bfloat16"
    assert _of_gpus([gpu(8, 0), gpu(7, 5)]) == ("float16", "G has compute capability 7.5")
    assert _of_gpus([gpu(6, 1)])[0] == _of_gpus([{}])[0] == "none"
    cpu_info = tmp_path / "cpuinfo"
    assert _of_cpu(cpu_info, None)[0] == "none"
    cpu_info.write_text("flags : fpu avx512f avx512_bf16x\n")
    assert _of_cpu(cpu_info, None)[0] == "none"
    cpu_info.write_text("flags : fpu avx512f avx512_bf16\n")
    assert _of_cpu(cpu_info, None) == ("bfloat16", "this CPU supports avx512_bf16")
    assert _of_cpu(cpu_info, "0")[0] == "none"
    caplog.set_level("INFO", logger="absl")
    assert dtype_policy("auto", use_tpu=True) == "mixed_bfloat16"
    assert "mixed_precision=auto: bfloat16 (the native format of TPUs)" in caplog.text
    monkeypatch.setattr(sys.modules[dtype_policy.__module__], "_CPU_INFO", cpu_info)
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    assert dtype_policy("auto") == "mixed_bfloat16"
    with pytest.raises(UserError, match="mixed_precision=float16: a TPU computes in bfloat16; use that, or auto"):
        dtype_policy("float16", use_tpu=True)
    with pytest.raises(UserError, match="mixed_precision='half': choose one of none, bfloat16, float16, auto"):
        Predictor(tmp_path, mixed_precision="half")


def broken_off(whole, folder, step):
    """Return a copy of a run in its state at a step."""
    shutil.copytree(whole, folder)
    for path in folder.glob("model.ckpt-*"):
        if int(re.search(r"ckpt-(\d+)", path.name)[1]) > step:
            path.unlink()
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')
    return folder


BY_TOKENS = {"train_batch_tokens": 128, "do_eval": False}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"train_batch_tokens": 23}, ["--train_batch_tokens=23 is too small: examples may have 24", "at least 24"]),
        ({"train_batch_tokens": 47, "num_replicas": 2}, ["each of 2 device(s) takes at least one; give at least 48"]),
        ({"train_batch_tokens": 47, "gradient_accumulation_steps": 2}, ["takes at least one for each of --gradient_a"]),
        ({"train_batch_size": 8}, ["--train_batch_size cannot be used with --train_batch_tokens; leave one of them"]),
        ({"dynamic_padding": False}, ["needs batches of similar length; leave --nodynamic_padding out"]),
        ({"trainable_encoder": False}, ["--train_batch_tokens cannot be used with --notrainable_encoder"]),
        ({"use_tpu": True}, ["--train_batch_tokens cannot be used with --use_tpu: a TPU needs batches of fixed shape"]),
    ],
)
def test_batches_of_tokens_that_cannot_be_made_are_refused(settings, tmp_path, changes, parts):
    flags = {name: value for name, value in settings.items() if name != "train_batch_size"}
    flags |= {**BY_TOKENS, "output_dir": str(tmp_path / "out"), **changes}
    assert_refused("run_classifier", flags, *parts)


@pytest.mark.slow
def test_fine_tuning_with_batches_of_tokens_uses_each_example_once_and_resumes_in_the_same_order(settings, tmp_path):
    flags = {name: value for name, value in settings.items() if name != "train_batch_size"} | BY_TOKENS
    flags |= {"save_checkpoints_steps": 1, "keep_checkpoint_max": 0, "output_dir": str(tmp_path / "whole")}

    def train(**changes):
        run_here("run_classifier", **{**flags, **changes})

    train()
    last = CheckpointReader(flags["output_dir"])
    assert last.read("num_examples") == 48
    assert 48 * 10 / 128 < last.step < 48 * 24 / 128
    folder = broken_off(tmp_path / "whole", tmp_path / "out", 3)
    flags["output_dir"] = str(folder)
    for changes, message in (
        ({"train_batch_tokens": 256}, "--train_batch_tokens=256, but .*ckpt-3 was trained with"),
        ({"num_replicas": 2}, r"shared by 2 device\(s\), but .*ckpt-3 was trained with 1: .*twice"),
        ({"train_batch_tokens": 0, "num_train_epochs": 4.0}, "--train_batch_tokens=0, but"),
    ):
        with prints_error(message):
            train(**changes)
    train(train_batch_tokens=0, num_train_epochs=4.0, allow_inexact_resume=True)
    assert json.loads((folder / "run_config.json").read_text())["flags"]["train_batch_tokens"] == 0
    flags["output_dir"] = str(broken_off(folder, tmp_path / "other", 3))
    with prints_error("--train_batch_tokens=128, .* did not count examples; leave it out"):
        train()


@pytest.mark.endurance
@pytest.mark.parametrize(("task", "changes"), [("classification", {}), ("tagging", {"head": "crf"})])
def test_a_run_on_jax_leaves_what_one_on_tensorflow_does(settings, records_file, tmp_path, monkeypatch, task, changes):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # compiles faster
    model = {name: settings[name] for name in ("bert_config_file", "init_checkpoint")}
    runs = runs_of_all_tasks(tmp_path, model, records_file, settings["vocab_file"], head_dropout=0.0)
    command, flags = runs[task]
    flags |= {**changes, "dynamic_padding": False}
    first, second = (str(tmp_path / name) for name in ("tensorflow", "jax"))
    run_here(command, **flags, output_dir=first)
    export = {"do_export": True, "export_dir": str(tmp_path / "serving")}
    flags["init_checkpoint"] = f"{first}/model.ckpt-0"  # random weights of a head depend on the library
    result = run_cold(command, **flags, **export, output_dir=second, backend="jax")
    assert result.code == 0, result
    assert "JAX: 1 device (cpu)" in result.errors and f"exported {tmp_path}/serving/1" in result.errors
    # TensorFlow's note about CPUs without AVX-512 is not the run's.
    assert not re.search("(?m)^(?![0-9:]{8} (INFO|WARNING) |E0000 .* oneDNN )", result.errors.strip())
    names, others = ({name for name in os.listdir(folder) if "tfevents" not in name} for folder in (first, second))
    assert others - names == {"jax_cache"} and os.listdir(f"{second}/jax_cache")  # the compiled steps
    assert names < others
    assert read_results(f"{second}/eval_results.txt") == pytest.approx(
        read_results(f"{first}/eval_results.txt"), abs=1e-4
    )
    for step in (0, 6):
        for name, array in arrays_of(f"{first}/model.ckpt-{step}").items():
            np.testing.assert_allclose(CheckpointReader(f"{second}/model.ckpt-{step}").read(name), array, atol=1e-4)
    texts = ["the snow is warm", "the harbour of the broken town"]
    answers, exported = (
        json.loads(json.dumps(Predictor(path)(texts), default=vars)) for path in (second, tmp_path / "serving")
    )
    assert_same(exported, answers)


@pytest.mark.endurance
def test_batches_that_devices_cannot_share_and_damaged_records_on_jax_are_one_line(records_file, model_dir, tmp_path):
    uneven = pretraining_flags(records_file, model_dir, output_dir=tmp_path / "out", train_batch_size=3, do_eval=True)
    result = run_cold("run_pretraining", **uneven, backend="jax", num_replicas=3)
    assert_fails(result, "--eval_batch_size=8 is not a multiple of the 3 devices; the next one is 9")
    content = bytearray(pathlib.Path(records_file).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "train.tfrecord").write_bytes(content)
    flags = pretraining_flags(tmp_path / "train.tfrecord", model_dir, output_dir=tmp_path / "out", num_train_steps=90)
    result = run_cold("run_pretraining", **flags, backend="jax")
    assert_fails(result, f"{tmp_path}/train.tfrecord: record ")
