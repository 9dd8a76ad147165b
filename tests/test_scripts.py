"""The scripts as processes: help, mistakes, and small runs from end to end."""

import dataclasses
import json
import os
import pathlib
import re
import resource
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_bert.commands import all_commands
from tests.conftest import ROOT, assert_fails, prints_error, run_cold, run_program, run_script
from tests.record_files import read_records

# A script at the root, or the name of a command.
FILES = [f"{name}.py" if (ROOT / f"{name}.py").exists() else name for name in all_commands()]
MODULES = ["tools/mkdocs_hooks.py", "tools/run_notebooks.py"]  # for mkdocs and `make notebooks`


def required_flags(script):
    fields = dataclasses.fields(all_commands()[pathlib.Path(script).stem].config_class)
    return {field.name for field in fields if field.metadata["required"]}


def test_every_script_has_a_file_and_every_file_a_script():
    assert {*(file for file in FILES if file.endswith(".py")), *MODULES} == {
        str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.py"), *ROOT.glob("tools/*.py"))
    }


@pytest.mark.parametrize("script", ["run_classifier.py", FILES[-1]])
def test_help_lists_the_flags_within_a_second(script):
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = run_cold(script, "--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # CPU time: wall-clock time depends on other processes.
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if seconds < 1.0:
            break
    assert seconds < 1.0
    assert result.code == 0
    assert "\n  --" in result.output
    assert ("\nrequired:\n" in result.output) == bool(required_flags(script))


def test_importing_a_script_has_no_effect_and_imports_nothing_heavy():
    program = f"""
import importlib, os, sys
from absl import flags
for script in {FILES}:
    importlib.import_module(script.removesuffix(".py") if "." in script else "official_bert.commands." + script)
    assert not {{"tensorflow", "numpy"}} & set(sys.modules), script
    assert not {{"input_file", "output_dir"}} & set(flags.FLAGS), script
"""
    run_program(program)


def test_missing_flags_are_all_named_in_one_line():
    for script in filter(required_flags, FILES):
        config_class = all_commands()[pathlib.Path(script).stem].config_class
        with prints_error("missing") as caught:
            config_class()
        assert set(re.findall(r"--(\w+) \(", str(caught.value))) == required_flags(script)
    result = run_cold("run_classifier.py")
    assert_fails(result, "missing", *(f"--{name} (" for name in required_flags("run_classifier.py")))
    assert result.errors.count("\n") == 1


class TestCreatePretrainingData:
    """Errors that need a process; for the records see tests/tasks."""

    @pytest.fixture
    def flags(self, corpus_file, vocab_file, tmp_path):
        return {"input_file": corpus_file, "output_file": tmp_path / "out.tfrecord", "vocab_file": vocab_file}

    def test_a_run_logs_its_outputs_and_starts_quietly(self, flags):
        result = run_cold("create_pretraining_data.py", **flags, dupe_factor=1, max_seq_length=64)
        assert result.code == 0, result
        records = read_records(flags["output_file"])
        assert f"gave {len(records['input_ids'])} records with {records['input_mask'].sum():,} tokens" in result.errors
        # Only our own lines: no TensorFlow notes about CPUs and GPUs.
        assert all(line[2] == ":" for line in result.errors.splitlines()), result

    @pytest.mark.slow
    def test_a_full_disk_leaves_the_old_file(self, flags, tmp_path, tmp_path_factory):
        out, program = tmp_path / "out.tfrecord", tmp_path_factory.mktemp("limited") / "create_pretraining_data.py"
        out.write_bytes(b"good")
        limit = "import resource, runpy\nresource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        program.write_text(f"{limit}runpy.run_path({str(ROOT / program.name)!r}, run_name='__main__')\n")
        result = run_script(program, **flags, dupe_factor=2)
        assert_fails(result, "cannot write", "File too large")
        assert out.read_bytes() == b"good"
        assert os.listdir(tmp_path) == ["out.tfrecord"]


@pytest.mark.slow
def test_a_pipe_carries_features_and_nothing_else(model_dir, vocab_file, tmp_path):
    for path in (*model_dir.glob("trained_model.ckpt-12.*"), model_dir / "bert_config.json"):
        shutil.copy(path, tmp_path)
    shutil.copy(vocab_file, tmp_path / "vocab.txt")
    flags = {"input_file": "-", "output_file": "-", "layers": "-1", "max_seq_length": 64, "pooling": "cls"}
    # The folder has everything else.
    result = run_script(
        "extract_features.py", piped=b"the town\nthe harbour ||| woke\n", init_checkpoint=tmp_path, **flags
    )
    assert result.code == 0, result
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert [line["linex_index"] for line in lines] == [0, 1]
    assert all(len(line["layers"][0]["values"]) == 32 for line in lines)
    assert "standard output: 2 texts" in result.errors
    assert all(line[2] == ":" for line in result.errors.splitlines()), result  # only our own log


class TestRunPretraining:
    """Training and evaluation runs; for their internals see tests/training."""

    @pytest.fixture
    def flags(self, records_file, one_layer_config_file, tmp_path):
        sizes = {"max_seq_length": 64, "max_predictions_per_seq": 10, "train_batch_size": 8}
        files = {"input_file": records_file, "bert_config_file": one_layer_config_file, "output_dir": tmp_path / "out"}
        return {**files, **sizes, "num_train_steps": 12, "num_warmup_steps": 4, "log_steps": 4}

    @pytest.mark.slow
    def test_train_and_evaluate(self, flags, tmp_path, model_dir):
        out = tmp_path / "out"
        flags |= {"save_checkpoints_steps": 5, "keep_checkpoint_max": 2, "max_eval_steps": 3}
        flags["init_checkpoint"] = model_dir / "bert_model.ckpt"
        result = run_script("run_pretraining.py", "--do_train", "--do_eval", **flags)
        assert result.code == 0, result
        assert "30 variables loaded, 0 newly initialized, 32 unused" in result.errors
        for part in ("step 4:", "step 8:", "step 12:", "loss", "rate", "gradient norm", "tokens/s", "left"):
            assert part in result.errors
        assert {path.name for path in out.glob("*.index")} == {"model.ckpt-10.index", "model.ckpt-12.index"}

        written = (out / "eval_results.txt").read_text()
        results = {name: float(value) for name, value in (line.split(" = ") for line in written.splitlines())}
        scores = ("masked_lm_accuracy", "masked_lm_loss", "next_sentence_accuracy", "next_sentence_loss")
        assert list(results) == ["global_step", "loss", *scores]
        assert results["global_step"] == 12
        assert np.isfinite(list(results.values())).all()

        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        splits = [(line["split"], line["step"]) for line in lines]
        assert splits == [("train", 4), ("train", 8), ("train", 12), ("eval", 12)]
        assert lines[-1]["masked_lm_loss"] == pytest.approx(results["masked_lm_loss"], rel=1e-5)
        for folder, tag, line in ((out, "loss", 0), (out, "learning_rate", 2), (out / "eval", scores[0], 3)):
            (found,) = event_values(folder, lines[line]["step"], tag)
            assert found == pytest.approx(lines[line][tag], rel=1e-6, abs=1e-9)
        settings = json.loads((out / "run_config.json").read_text())
        assert (settings["flags"]["num_train_steps"], settings["flags"]["eval_batch_size"]) == (12, 8)
        assert "--do_train" in settings["command"]

        evaluated = run_script("run_pretraining.py", "--do_eval", output_dir=out, max_eval_steps=3)
        assert evaluated.code == 0, evaluated
        assert (out / "eval_results.txt").read_text() == written

    def test_mistakes_about_devices(self, flags):
        result = run_script("run_pretraining.py", "--do_train", **flags, use_tpu=True, tpu_name="grpc://127.0.0.1:9")
        assert_fails(result, "no TPU answers at grpc://127.0.0.1:9")


def event_values(folder, step, tag):
    """Return the values of a scalar in the TensorBoard events of a folder."""
    events = [event for path in folder.glob("events.*") for event in tf.compat.v1.train.summary_iterator(str(path))]
    values = [value for event in events if event.step == step for value in event.summary.value]
    return [value.simple_value for value in values if value.tag == tag]
