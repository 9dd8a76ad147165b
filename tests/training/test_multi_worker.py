"""Two worker processes on this machine: same results as one process, and only one writes files."""

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from official_bert.commands.launch_workers import free_ports, tf_config
from official_bert.training.run_folder import read_results
from tests.conftest import ROOT, endurance, run_script, script_command, script_environment
from tests.faults.killing import scalars
from tests.record_files import arrays_of
from tests.training.short_runs import pretraining_flags, runs_of_all_tasks
from tests.training.worker_runs import run_all

pytestmark = [pytest.mark.multi_process, pytest.mark.slow]


def start_workers(command, logs, count=2):
    """Start the same command as workers on this machine, each with its own log."""
    addresses = [f"localhost:{port}" for port in free_ports(count)]
    for index in range(count):
        with open(logs / f"worker{index}.log", "w") as log:
            yield subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**script_environment(), "TF_CONFIG": tf_config(addresses, index), "TF_NUM_INTRAOP_THREADS": "1"},
            )


def finish(processes, seconds=300):
    """Wait for all processes and return their exit codes."""
    try:
        return [process.wait(seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()


def log_of(logs, index):
    return (logs / f"worker{index}.log").read_text()


@pytest.fixture(scope="module")
def runs(tmp_path_factory, quiet_model, records_file, vocab_file):
    data = tmp_path_factory.mktemp("data")
    return runs_of_all_tasks(data, quiet_model, records_file, vocab_file, head_dropout=0.0)


def with_folders(runs, folder, **more):
    """Return the runs with separate folders; the classifier's also exports its model."""
    found = []
    for name, (script, flags) in runs.items():
        export = {"do_export": True, "export_dir": str(folder / name / "export")} if name == "classification" else {}
        found.append((script, {**flags, **more, **export, "output_dir": str(folder / name)}))
    return found


@pytest.fixture(scope="module")
def alone(runs, tmp_path_factory):
    """Return a function from a task to the folder of its run in this process, which is made once."""
    folder = tmp_path_factory.mktemp("alone")

    @functools.cache
    def folder_of(task):
        run_all(with_folders({task: runs[task]}, folder))
        return folder / task

    return folder_of


def check_same_training(one_folder, other_folder):
    """Compare losses, scores in training, weights and slots."""
    expected, found = scalars(one_folder), scalars(other_folder)
    assert [(line["split"], line["step"]) for line in found] == [(line["split"], line["step"]) for line in expected]
    compared = 0
    for one, two in zip(expected, found, strict=True):
        for name in one.keys() - {"split", "step"}:
            np.testing.assert_allclose(
                two[name], one[name], rtol=1e-3 if "norm" in name else 1e-5, atol=1e-6, err_msg=name
            )
            compared += "loss" in name
    assert compared >= 6
    last = max(line["step"] for line in expected)
    arrays, others = (arrays_of(folder / f"model.ckpt-{last}") for folder in (one_folder, other_folder))
    assert arrays.keys() == others.keys()
    for name, one in arrays.items():
        # Biases of keys and of start and end logits have zero gradients up to rounding: they are noise.
        noise = 1e-8 if name.endswith(("adam_m", "adam_v")) else 2e-6
        np.testing.assert_allclose(others[name], one, atol=max(1e-3 * np.abs(one).max(), noise), err_msg=name)


def check_same_results(one_folder, other_folder):
    """Compare scores and predictions."""
    one, two = (read_results(str(folder / "eval_results.txt")) for folder in (one_folder, other_folder))
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_allclose(float(two[name]), float(one[name]), rtol=1e-4, atol=1e-6, err_msg=name)
    for name in ("predictions.conll", "predictions.json"):
        if (one_folder / name).exists():
            assert (other_folder / name).read_bytes() == (one_folder / name).read_bytes()
    if (one_folder / "vectors.npy").exists():
        vectors = [np.load(folder / "vectors.npy") for folder in (one_folder, other_folder)]
        np.testing.assert_allclose(vectors[1], vectors[0], atol=1e-5)
    if (one_folder / "test_results.tsv").exists():
        tables = [np.loadtxt(folder / "test_results.tsv") for folder in (one_folder, other_folder)]
        assert len(tables[0]) == 21
        np.testing.assert_allclose(tables[1], tables[0], atol=1e-5)


@pytest.mark.parametrize(
    "tasks",
    [["classification"], *endurance(["pretraining", "sentence encoder", "tagging", "question answering"])],
)
def test_two_workers_match_one_and_one_of_them_writes(alone, runs, tmp_path, forked_python, tasks):
    (tmp_path / "runs.json").write_text(json.dumps(with_folders({task: runs[task] for task in tasks}, tmp_path)))
    command = [forked_python, ROOT / "tests" / "training" / "worker_runs.py", tmp_path / "runs.json"]
    assert finish(list(start_workers(command, tmp_path))) == [0, 0], log_of(tmp_path, 0) + log_of(tmp_path, 1)
    assert "model.ckpt" not in log_of(tmp_path, 1)
    for task in tasks:
        check_same_training(alone(task), tmp_path / task)
        check_same_results(alone(task), tmp_path / task)
        names = [
            sorted(re.sub("tfevents.*", "", str(path.relative_to(folder))) for path in folder.rglob("*"))
            for folder in (alone(task), tmp_path / task)
        ]
        assert names[0] == names[1]


class Launched:
    """`launch_workers` with two workers."""

    def __init__(self, python, flags, script="run_pretraining.py"):
        _, *launcher = script_command("launch_workers", {"num_workers": 2})
        _, *worker = script_command(script, flags)
        self.process = subprocess.Popen(
            [python, *launcher, "--", python, *worker],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**script_environment(), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        )
        self.log = ""

    def read_until(self, text):
        for line in self.process.stdout:
            self.log += line
            if text in line:
                return
        raise AssertionError(f"no line with {text!r}:\n{self.log}")

    def kill_worker(self, index):
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(children) as source:
            os.kill(int(source.read().split()[index]), signal.SIGKILL)

    def end(self):
        """Read the remaining output and return the exit code."""
        self.log += self.process.stdout.read()
        return self.process.wait()


@pytest.fixture
def long_run(records_file, model_dir, one_layer_config_file):
    flags = {"num_train_steps": 40, "save_checkpoints_steps": 10, "log_steps": 5}
    return pretraining_flags(records_file, model_dir, bert_config_file=one_layer_config_file, **flags)


@pytest.mark.endurance
@pytest.mark.parametrize("killed", [0, 1])
def test_a_worker_that_is_killed_ends_the_others_and_the_restarted_run_is_exact(
    long_run, tmp_path, forked_python, killed
):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    uninterrupted = Launched(forked_python, {**long_run, "output_dir": whole})
    assert uninterrupted.end() == 0, uninterrupted.log
    run = Launched(sys.executable, {**long_run, "output_dir": broken})
    run.read_until("step 15:")
    run.kill_worker(killed)
    began = time.monotonic()
    assert run.end() == 1
    assert time.monotonic() - began < 60
    assert "Traceback" not in run.log
    message = f"worker {1 - killed} of 2 lost contact with another worker"
    assert message in run.log, run.log
    assert f"launch_workers: error: worker {killed} was ended by SIGKILL" in run.log
    last = Launched(forked_python, {**long_run, "output_dir": broken})
    assert last.end() == 0, last.log
    assert "resuming from" in last.log
    expected, found = arrays_of(whole / "model.ckpt-40"), arrays_of(broken / "model.ckpt-40")
    assert expected.keys() == found.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def test_two_workers_on_jax_match_one_process_of_tensorflow(alone, runs, tmp_path, monkeypatch):
    """They choose their number format after they have met."""
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")  # so that it is float32 on every CPU
    _, flags = runs["classification"]
    flags = {**flags, "backend": "jax", "mixed_precision": "auto", "output_dir": tmp_path}
    flags["init_checkpoint"] = alone("classification") / "model.ckpt-0"  # random weights depend on the library
    run = Launched(sys.executable, flags, "run_classifier.py")
    assert run.end() == 0, run.log
    check_same_training(alone("classification"), tmp_path)
    check_same_results(alone("classification"), tmp_path)


@pytest.mark.endurance
def test_a_worker_on_jax_that_is_killed_ends_the_other(long_run, tmp_path):
    run = Launched(sys.executable, {**long_run, "num_train_steps": 100_000, "backend": "jax", "output_dir": tmp_path})
    run.read_until("step 5:")
    run.kill_worker(1)
    began = time.monotonic()
    assert run.end() == 1
    assert time.monotonic() - began < 60
    assert "worker 0 of 2 lost contact with another worker" in run.log
    assert "Traceback" not in run.log
    assert "Fatal" not in run.log


@pytest.mark.endurance
@pytest.mark.parametrize(("number", "name", "code"), [(signal.SIGTERM, "SIGTERM", 0), (signal.SIGINT, "Ctrl-C", 130)])
def test_a_signal_stops_all_workers_at_the_same_step(long_run, tmp_path, forked_python, number, name, code):
    run = Launched(forked_python, {**long_run, "num_train_steps": 100_000, "output_dir": tmp_path / "out"})
    run.read_until("step 10:")
    run.process.send_signal(number)
    assert run.end() == code, run.log
    assert re.search(rf"{name}: stopped; the same command resumes from .*/model.ckpt-(?!0$)\d+$", run.log, re.M)
    assert "Traceback" not in run.log


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("output_dir={folder}/{index}", "the 2 workers do not share output_dir={folder}/0"),
        ("output_dir={folder}/0 --log_steps=1{index}", "the 2 workers differ in their flags"),
    ],
)
def test_workers_must_agree(long_run, tmp_path, forked_python, flag, message):
    flags = [forked_python, *script_command("run_pretraining.py", long_run)[1:]]
    index = '$(echo "$TF_CONFIG" | sed "s/.*index...//;s/}.*//")'
    shell = f'exec "$@" --{flag.format(folder=tmp_path, index=index)}'
    command = [*script_command("launch_workers", {"num_workers": 2}), "--", "sh", "-c", shell, "sh", *flags]
    process = subprocess.run(command, capture_output=True, text=True, env=script_environment())
    assert process.returncode == 1
    assert message.format(folder=tmp_path) in process.stdout, process.stdout
    assert "Traceback" not in process.stdout
    assert not list((tmp_path / "0").glob(".workers*"))


@pytest.mark.endurance
def test_ctrl_c_stops_a_worker_that_waits_for_the_others(long_run, tmp_path):
    command = script_command("run_pretraining.py", {**long_run, "output_dir": tmp_path / "out"})
    first, *others = start_workers(command, tmp_path, count=2)
    others[0].kill()  # before it can join
    try:
        deadline = time.monotonic() + 120
        while "waiting for all of them" not in log_of(tmp_path, 0):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        time.sleep(2)
        assert first.poll() is None
        first.send_signal(signal.SIGINT)
        assert first.wait(10) == -signal.SIGINT
    finally:
        first.kill()


@pytest.mark.endurance
def test_workers_must_evaluate_the_same_checkpoint(long_run, tmp_path, forked_python):
    trained = run_script("run_pretraining.py", **{**long_run, "num_train_steps": 1, "output_dir": tmp_path / "out"})
    assert trained.code == 0, trained
    (tmp_path / "restore.py").write_text(
        f"""
import sys
from official_bert.config.bert_config import BertConfig
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.task import PretrainingTask
from official_bert.training.loop import Trainer
from official_bert.training.tensorflow_devices import create_strategy

flags = dict(bert_config_file={str(long_run["bert_config_file"])!r}, input_file="none", output_dir="none")
strategy = create_strategy(PretrainingConfig(**flags, do_train=True))
config = BertConfig.from_json_file(flags["bert_config_file"])
task = PretrainingTask(config, max_seq_length=64, max_predictions_per_seq=10, eval_batch_size=8)
trainer = Trainer(task, strategy, seed=1)
try:
    trainer.restore({str(tmp_path / "out" / "model.ckpt-")!r} + str(trainer.cluster.index))
except UserError as error:
    print(error)
"""
    )
    assert finish(list(start_workers([forked_python, tmp_path / "restore.py"], tmp_path))) == [0, 0]
    for index in range(2):
        assert "the 2 workers differ in their last checkpoints" in log_of(tmp_path, index)


@pytest.mark.endurance
def test_slurm_says_which_workers_there_are(long_run, tmp_path, forked_python):
    variables = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2"}
    flags = {**long_run, "num_train_steps": 2, "output_dir": tmp_path, "distribution": "multi_worker"}
    command = [forked_python, *script_command("run_pretraining.py", flags)[1:]]
    environments = [{**script_environment(), **variables, "SLURM_PROCID": str(index)} for index in range(2)]
    workers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=each) for each in environments]
    logs = [worker.communicate(timeout=300)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], logs
    assert "worker 1 of 2" in logs[1]
    assert (tmp_path / "model.ckpt-2.index").exists()
