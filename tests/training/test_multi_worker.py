"""Two worker processes on this machine: same results as one process, and only one writes files.

As a program, this module makes runs one after another, as a worker: `test_multi_worker.py RUNS`, a JSON file of
[[script, {flag: value}], ...].
"""

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
from tests.conftest import endurance, run_here, script_command, script_environment
from tests.faults.killing import arrays, scalars
from tests.record_files import arrays_of
from tests.training.short_runs import pretraining_flags, runs_of_all_tasks

pytestmark = [pytest.mark.multi_process, pytest.mark.slow]


def start_workers(command, logs):
    """Start the same command as two workers on this machine, each with its own log."""
    addresses = [f"localhost:{port}" for port in free_ports(2)]
    for index in range(2):
        variables = {"TF_CONFIG": tf_config(addresses, index), "TF_NUM_INTRAOP_THREADS": "1"}
        with open(logs / f"worker{index}.log", "w") as log:
            streams = {"stdout": log, "stderr": subprocess.STDOUT}
            yield subprocess.Popen(command, **streams, env=script_environment() | variables)


def finish(processes):
    """Wait for all processes and return their exit codes."""
    try:
        return [process.wait(300) for process in processes]
    finally:
        for process in processes:
            process.kill()


def log_of(logs, index):
    return (logs / f"worker{index}.log").read_text()


@pytest.fixture(scope="module")
def runs(tmp_path_factory, quiet_model, records_file, vocab_file):
    data = tmp_path_factory.mktemp("data")
    return runs_of_all_tasks(data, quiet_model, records_file, vocab_file, head_dropout=0.0)


def in_folder(run, folder):
    """Return a run with its output folder; the classifier's also exports its model."""
    script, flags = run
    export = {"do_export": True, "export_dir": str(folder / "export")} if script == "run_classifier" else {}
    return script, {**flags, **export, "output_dir": str(folder)}


@pytest.fixture(scope="module")
def alone(runs, tmp_path_factory):
    """Return a function from a task to the folder of its run in this process, which is made once."""
    folder = tmp_path_factory.mktemp("alone")

    @functools.cache
    def folder_of(task):
        script, flags = in_folder(runs[task], folder / task)
        run_here(script, **flags)
        return folder / task

    return folder_of


def check_same_training(one_folder, other_folder):
    """Compare losses, scores in training, weights and slots."""
    expected, found = scalars(one_folder), scalars(other_folder)
    assert [(line["split"], line["step"]) for line in found] == [(line["split"], line["step"]) for line in expected]
    compared = 0
    for one, two in zip(expected, found, strict=True):
        for name in one.keys() - {"split", "step"}:
            tolerance = 1e-3 if "norm" in name else 1e-5
            np.testing.assert_allclose(two[name], one[name], rtol=tolerance, atol=1e-6, err_msg=name)
            compared += "loss" in name
    assert compared >= 6
    last = max(line["step"] for line in expected)
    weights, others = (arrays_of(folder / f"model.ckpt-{last}") for folder in (one_folder, other_folder))
    assert weights.keys() == others.keys()
    for name, one in weights.items():
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
    for name, read in (("vectors.npy", np.load), ("test_results.tsv", np.loadtxt)):
        if (one_folder / name).exists():
            expected, found = (read(folder / name) for folder in (one_folder, other_folder))
            assert len(expected) >= 21
            np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    "tasks", [["classification"], *endurance(["pretraining", "sentence encoder", "tagging", "question answering"])]
)
def test_two_workers_match_one_and_one_of_them_writes(alone, runs, tmp_path, forked_python, tasks):
    (tmp_path / "runs.json").write_text(json.dumps([in_folder(runs[task], tmp_path / task) for task in tasks]))
    command = [forked_python, __file__, tmp_path / "runs.json"]
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
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        environment = script_environment() | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
        self.process = subprocess.Popen([python, *launcher, "--", python, *worker], **streams, env=environment)
        self.log = ""

    def read_until(self, text):
        for line in self.process.stdout:
            self.log += line
            if text in line:
                return
        raise AssertionError(f"no line with {text!r}:\n{self.log}")

    def end(self):
        """Read the remaining output and return the exit code."""
        self.log += self.process.stdout.read()
        return self.process.wait()

    def end_by_killing(self, index):
        """Kill a worker after some steps; the other one and the launcher end with a message."""
        self.read_until("step 15:")
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as source:
            os.kill(int(source.read().split()[index]), signal.SIGKILL)
        began = time.monotonic()
        assert self.end() == 1
        assert time.monotonic() - began < 60
        assert f"worker {1 - index} of 2 lost contact with another worker" in self.log, self.log
        assert "Traceback" not in self.log


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
    run = Launched(forked_python, {**long_run, "output_dir": whole})
    assert run.end() == 0, run.log
    run = Launched(sys.executable, {**long_run, "output_dir": broken})
    run.end_by_killing(killed)
    assert f"launch_workers: error: worker {killed} was ended by SIGKILL" in run.log
    last = Launched(forked_python, {**long_run, "output_dir": broken})
    assert last.end() == 0, last.log
    assert "resuming from" in last.log
    assert arrays(broken) == arrays(whole)


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
    run.end_by_killing(1)
    assert "Fatal" not in run.log


@pytest.mark.endurance
def test_a_signal_stops_all_workers_at_the_same_step(long_run, tmp_path, forked_python):
    run = Launched(forked_python, {**long_run, "num_train_steps": 100_000, "output_dir": tmp_path / "out"})
    run.read_until("step 10:")
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130, run.log
    assert re.search(r"Ctrl-C: stopped; the same command resumes from .*/model.ckpt-(?!0$)\d+$", run.log, re.M)
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
    first, *others = start_workers(command, tmp_path)
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
def test_workers_must_evaluate_the_same_checkpoint(tmp_path, forked_python):
    (tmp_path / "restore.py").write_text(
        """
import sys
import numpy as np
from official_bert.checkpoints.bundle import write_checkpoint
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.training.loop import Trainer
from official_bert.training.tensorflow_devices import create_strategy
from tests.training.sum_runs import SumTask

flags = PretrainingConfig(bert_config_file="none", input_file="none", output_dir="none", do_train=True)
trainer = Trainer(SumTask(), create_strategy(flags), seed=1)
step = trainer.cluster.index
path = f"{sys.argv[1]}/model.ckpt-{step}"
write_checkpoint(path, {**{each.path: each.value for each in trainer.model.weights}, "global_step": np.int64(step)})
try:
    trainer.restore(path)
except UserError as error:
    print(error)
"""
    )
    assert finish(list(start_workers([forked_python, tmp_path / "restore.py", tmp_path], tmp_path))) == [0, 0]
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


def refuse_changes(folders):
    """Make every later change in these folders raise."""

    def look(event, arguments):
        is_change = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod")
        is_written = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if (is_change or is_written) and str(arguments[0]).startswith(folders):
            raise AssertionError(f"{event} {arguments}")

    sys.addaudithook(look)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as source:
        runs_of_worker = json.load(source)
    if json.loads(os.environ["TF_CONFIG"])["task"]["index"]:
        refuse_changes(tuple(flags["output_dir"] for _, flags in runs_of_worker))
    for script, flags in runs_of_worker:
        run_here(script, **flags)
