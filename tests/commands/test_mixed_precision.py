"""Whole runs with --mixed_precision: checkpoints for every precision, and messages."""

import json
import random
import sys

import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.commands import extract_features, run_classifier
from official_bert.commands.extract_features import FeatureConfig
from official_bert.inference.predictor import Predictor
from official_bert.support.errors import UserError
from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.training.run_folder import read_results
from official_bert.training.run_setup import _of_cpu, _of_gpus, dtype_policy
from tests.sentences import sentence


@pytest.fixture(scope="module")
def settings(tmp_path_factory, one_layer_config_file, model_dir, vocab_file):
    folder = tmp_path_factory.mktemp("data")
    rng = random.Random(1)
    for split, count in (("train", 96), ("dev", 37)):
        labels = [rng.randrange(2) for _ in range(count)]
        rows = [f"{sentence(rng, label)}\t{label}\n" for label in labels]
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    return {
        "task_name": "SST-2",
        "data_dir": str(folder),
        "bert_config_file": one_layer_config_file,
        "vocab_file": vocab_file,
        "init_checkpoint": str(model_dir / "bert_model.ckpt"),
        "max_seq_length": 32,
        "train_batch_size": 8,
        "learning_rate": 1e-3,
        "do_eval": True,
    }


def run(settings, folder, **more):
    run_classifier.run(ClassifierConfig(**settings, output_dir=str(folder), **more))
    return read_results(str(folder / "eval_results.txt"))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("float16", marks=pytest.mark.endurance)])
def test_a_checkpoint_goes_with_every_precision(settings, tmp_path, caplog, precision):
    scores = run(settings, tmp_path, do_train=True, num_train_epochs=2.0, mixed_precision=precision)
    reader = CheckpointReader(str(tmp_path / "model.ckpt-24"))
    names = {name for name in reader.shapes if not name.startswith(("unlogged_steps/", "loss_scale/"))}
    assert {reader.read(name).dtype for name in names} == {np.dtype("float32"), np.dtype("int64")}
    assert ("loss_scale/scale" in reader.shapes) == (precision == "float16")
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert ("loss_scale" in lines[0]) == ("overflow_steps" in lines[0]) == (precision == "float16")
    in_float32 = run(settings, tmp_path)
    assert in_float32["eval_loss"] != scores["eval_loss"]
    assert in_float32["eval_loss"] == pytest.approx(scores["eval_loss"], abs=0.02)
    caplog.clear()
    run(settings, tmp_path, do_train=True, num_train_epochs=2.5)
    assert f"mixed_precision=none, but {tmp_path}/model.ckpt-24 was trained with mixed_precision={precision}" in (
        caplog.text
    )
    assert CheckpointReader(str(tmp_path / "model.ckpt-30")).step == 30
    text = "the bright town"
    predictors = [Predictor(tmp_path, mixed_precision=name) for name in ("none", precision)]
    exact, near = (predictor(text).probability for predictor in predictors)
    assert exact != near
    assert exact == pytest.approx(near, abs=0.02)
    exact, near = (predictor.embed(text) for predictor in predictors)
    assert 0 < np.abs(exact - near).max() < 0.1


@pytest.mark.slow
def test_features_of_another_precision_are_not_reused(settings, tmp_path):
    losses, records = [], []
    for precision in ("none", "bfloat16", "none"):
        options = {"trainable_encoder": False, "num_train_epochs": 1.0, "mixed_precision": precision}
        losses.append(run(settings, tmp_path, do_train=True, **options)["eval_loss"])
        records.append((tmp_path / "eval.features.tf_record").read_bytes())
    assert records[0] == records[2] != records[1]
    assert losses[0] == losses[2] != losses[1]
    assert losses[1] == pytest.approx(losses[0], abs=0.02)


def test_features_in_bfloat16(files_of_model, tmp_path):
    (tmp_path / "texts.txt").write_text("the bright town\nsnow\n")
    vectors = []
    for precision in ("none", "bfloat16"):
        output = tmp_path / f"{precision}.npy"
        flags = {**files_of_model, "input_file": str(tmp_path / "texts.txt"), "output_file": str(output)}
        options = {"layers": "-1", "pooling": "mean", "output_format": "npy", "max_seq_length": 16}
        extract_features.run(FeatureConfig(**flags, **options, mixed_precision=precision))
        vectors.append(np.load(output))
    assert vectors[1].dtype == np.float32
    assert 0 < np.abs(vectors[0] - vectors[1]).max() < 0.1


def test_auto_follows_the_devices(tmp_path, caplog, monkeypatch):
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


def test_unsupported_precisions_are_refused(tmp_path):
    with pytest.raises(UserError, match="mixed_precision=float16: a TPU computes in bfloat16; use that, or auto"):
        dtype_policy("float16", use_tpu=True)
    with pytest.raises(UserError, match="mixed_precision='half': choose one of none, bfloat16, float16, auto"):
        Predictor(tmp_path, mixed_precision="half")
