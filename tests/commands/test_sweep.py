"""Sweeps: grids of simulated finished runs, and small grids of real processes."""

import dataclasses
import itertools
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest

from official_bert.tasks.classification.options import ClassifierConfig
from official_bert.training.run_folder import read_results, read_run_config
from tests.conftest import (
    ROOT,
    assert_fails,
    assert_refused,
    prints_error,
    run_cold,
    run_here,
    run_script,
    script_command,
    script_environment,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def flags(sst2):
    """Flags for the smallest grid."""
    return {**sst2, "random_seed": 1}


OF_PAPER = {"task_name": "cola", "data_dir": "data", "vocab_file": "vocab.txt", "bert_config_file": "bert_config.json"}
OWN_FLAGS = ("output_dir", "train_batch_size", "learning_rate", "num_train_epochs", "random_seed")


def swept(flags, *arguments, command="run_classifier"):
    """Return the config of a sweep with some flags of a command."""
    others = [f"--{name}={value}" for name, value in flags.items() if name not in OWN_FLAGS]
    own = {name: value for name, value in flags.items() if name in OWN_FLAGS}
    return {**own, "command": shlex.join([command, *arguments, *others])}


def read_table(folder):
    return [line.split("\t") for line in (folder / "sweep.tsv").read_text().splitlines()]


def write_finished(folder, score, **changes):
    """Write the files of a finished run."""
    config = ClassifierConfig(**OF_PAPER, output_dir=str(folder), do_train=True, do_eval=True, **changes)
    folder.mkdir()
    (folder / "run_config.json").write_text(json.dumps({"flags": dataclasses.asdict(config)}))
    (folder / "eval_results.txt").write_text(f"eval_matthews_correlation = {score}\nloss = 0.5\n")


@pytest.fixture
def paper_grid(tmp_path):
    """The paper's grid with two seeds, all finished; 16, 2e-5, 3 is best on average, but not for each seed."""
    for batch_size, rate, epochs, seed in itertools.product((16, 32), (5e-5, 3e-5, 2e-5), (2.0, 3.0, 4.0), (7, 8)):
        settings = (batch_size, rate, epochs)
        score = {(16, 2e-5, 3.0): 0.7, (32, 5e-5, 2.0): 0.9 if seed == 7 else 0.1}.get(settings, 0.5)
        score += 0.01 * (seed == 8)
        folder = tmp_path / f"batch_{batch_size}-rate_{rate:g}-epochs_{epochs:g}-seed_{seed}"
        grid = {"train_batch_size": batch_size, "learning_rate": rate, "num_train_epochs": epochs, "random_seed": seed}
        write_finished(folder, score, **grid)
    return {**OF_PAPER, "output_dir": tmp_path, "random_seed": "7,8"}


def test_the_paper_grid_is_ranked_by_the_mean_over_seeds(paper_grid, tmp_path):
    result = run_cold("sweep", **swept(paper_grid))
    assert result.code == 0, result
    assert "36 runs, 36 of them finished already" in result.errors
    header, *rows = read_table(tmp_path)
    own = ["train_batch_size", "learning_rate", "num_train_epochs"]
    assert header == [*own, "seed_7", "seed_8", "mean_eval_matthews_correlation", "std"]
    grid = itertools.product(("16", "32"), ("5e-05", "3e-05", "2e-05"), ("2", "3", "4"))
    assert [tuple(row[:3]) for row in rows] == list(grid)
    assert rows[0][3:] == ["0.5000", "0.5100", "0.5050", "0.0071"]
    assert rows[9][3:] == ["0.9000", "0.1100", "0.5050", "0.5586"]  # (0.9 - 0.11) / sqrt(2)
    lines = result.output.splitlines()
    assert [line.split() for line in lines[:-1]] == [header, *rows]
    assert lines[-1] == (
        "best on dev: --train_batch_size=16 --learning_rate=2e-05 --num_train_epochs=3, "
        "eval_matthews_correlation 0.7050 (std 0.0071)"
    )


def test_runs_of_an_earlier_version_count_as_finished_if_they_have_their_settings(paper_grid, tmp_path):
    paper_grid["output_dir"] = f"{tmp_path}/."  # the same folder, written differently
    # An earlier version's run lacks newer flags.
    path = tmp_path / "batch_16-rate_5e-05-epochs_2-seed_7" / "run_config.json"
    settings = json.loads(path.read_text())
    del settings["flags"]["allow_inexact_resume"]
    path.write_text(json.dumps(settings))
    assert "36 of them finished" in run_script("sweep", **swept(paper_grid)).errors
    path.unlink()
    assert_no_sweep(swept(paper_grid), "=None, not ")


def assert_no_sweep(flags, *parts):
    assert_refused("sweep", {name: str(value) for name, value in flags.items()}, *parts)


@pytest.mark.parametrize(
    ("arguments", "changes", "parts"),
    [
        ([], {"max_seq_length": 64}, ["seed_7 has a run with --max_seq_length=128, not 64; delete that folder or"]),
        ([], {"learning_rate": "5e-5,high"}, ["--learning_rate=5e-5,high: must be a comma-separated list"]),
        ([], {"num_train_epochs": "2,2.0"}, ["--num_train_epochs=2,2.0 contains a number twice"]),
        ([], {"random_seed": "20240101,20240101"}, ["--random_seed=20240101,20240101 contains a number twice"]),
        ([], {"random_seed": "20240101,20240102", "eval_file": "e"}, ["--eval_file needs --task_name=custom"]),
        ([], {"eval_file": "e"}, ["run_classifier: --eval_file needs --task_name=custom"]),
        (["--nodo_train"], {}, ["a sweep trains and evaluates; leave --nodo_train out"]),
        (["--do_export", "--export_dir=e"], {}, ["does not export; export the winner with run_classifier --do_export"]),
        (["--train_batch_tokens=99"], {}, ["sizes of --train_batch_size; leave --train_batch_tokens out"]),
        (["--learning_rate=5e-5"], {}, ["--learning_rate is set by the sweep; give it before --, not to run_class"]),
        (["--lr=5e-5"], {}, ["run_classifier: there is no flag --lr; --help lists the flags"]),
    ],
)
def test_mistakes_are_found_before_any_run(paper_grid, tmp_path, arguments, changes, parts):
    assert_no_sweep(swept({**paper_grid, **changes}, *arguments), *parts)
    assert not (tmp_path / "sweep.tsv").exists()


def test_only_commands_that_give_labels_are_swept(tmp_path):
    result = run_script("sweep", "--", "run_ner", output_dir=tmp_path / "out", command="run_squad --do_train")
    assert_fails(result, "--command cannot be used with a command after --")
    known = "run_classifier, run_multiple_choice, run_ner"
    message = f"the command to sweep must be one of {known} with its flags, not 'run_squad'"
    assert_no_sweep({"command": "run_squad --do_train", "output_dir": tmp_path / "out"}, message)


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        ([], "accuracy"),
        (["--multi_label"], "micro_f1"),
        (["--regression"], "pearson"),
        (["--primary_metric=recall_bad"], "recall_bad"),
        ([], "f1"),  # of entities
    ],
)
def test_data_of_the_users_own_is_ranked_by_its_problem(paper_grid, tmp_path, monkeypatch, kind, metric):
    monkeypatch.setattr(sys, "executable", "false")  # a command that always fails
    columns = {"text_a_column": "text", "train_file": "train.tsv", "eval_file": "dev.tsv"}
    command, flags = "run_classifier", {**paper_grid, **columns, "output_dir": str(tmp_path / "other")}
    flags["task_name"] = "custom"
    if metric == "f1":
        data = ROOT / "data" / "demo_tagging"
        command, flags["train_file"], flags["eval_file"] = "run_ner", data / "train.txt", data / "dev.txt"
        del flags["text_a_column"], flags["task_name"]
    with prints_error("seed_7 ended with exit code 1; fix"):
        run_here("sweep", **swept(flags, *kind, command=command))
    assert read_table(tmp_path / "other")[0][5].startswith(f"mean_eval_{metric}")


@pytest.mark.endurance
def test_a_sweep_resumes(flags, tmp_path, model_dir, forked_children):
    model, out = shutil.copytree(model_dir, tmp_path / "model"), tmp_path / "out"
    shutil.copy(flags["bert_config_file"], model)
    flags = {**flags, "init_checkpoint": model / "bert_model.ckpt", "output_dir": out, "keep_checkpoint_max": 1}
    del flags["bert_config_file"]
    result = run_script("sweep", **swept(flags))
    assert result.code == 0, result
    first = out / "batch_8-rate_0.001-epochs_1-seed_1"
    assert "run 1 of 1: batch_8-rate_0.001-epochs_1-seed_1" in result.errors
    assert "training examples" not in result.errors  # only warnings of the run itself
    assert " bert_config_file=" in result.errors and "from the folder of init_checkpoint" in result.errors
    score = f"{read_results(str(first / 'eval_results.txt'))['eval_accuracy']:.4f}"
    assert read_table(out)[1:] == [["8", "0.001", "1", score, score, ""]]
    made = {path: path.stat().st_mtime_ns for path in first.iterdir()}

    result = run_script("sweep", **swept({**flags, "learning_rate": "1e-3,1e-2,0"}))
    assert result.code == 0, result
    assert "3 runs, 1 of them finished already" in result.errors
    assert "run 2 of 3: batch_8-rate_0.01-epochs_1-seed_1" in result.errors
    assert "run 3 of 3, 0:00:" in result.errors  # time left, known from run 2
    assert {path: path.stat().st_mtime_ns for path in first.iterdir()} == made
    settings = read_run_config(str(out / "batch_8-rate_0.01-epochs_1-seed_1")).flags
    assert (settings["learning_rate"], settings["keep_checkpoint_max"]) == (0.01, 1)
    assert [row[1] for row in read_table(out)] == ["learning_rate", "0.001", "0.01", "0"]


def test_a_run_that_fails_ends_the_sweep(flags, tmp_path, forked_children):
    flags = {**flags, "learning_rate": "1e-3,1e-2", "init_checkpoint": "absent.ckpt"}
    result = run_script("sweep", **swept({**flags, "output_dir": tmp_path}))
    assert_fails(result, "seed_1 ended with exit code 1; fix the error above and run the command again; finished runs")
    assert "run_classifier: error: --init_checkpoint absent.ckpt: no such checkpoint" in result.errors
    assert [row[3:] for row in read_table(tmp_path)[1:]] == [["", "", ""]] * 2
    assert not (tmp_path / "batch_8-rate_0.01-epochs_1-seed_1").exists()


def test_sigterm_ends_the_run_too(flags, tmp_path, forked_python, forked_children):
    flags = {**flags, "num_train_epochs": 5000, "output_dir": tmp_path, "log_steps": 1}
    run = tmp_path / "batch_8-rate_0.001-epochs_5000-seed_1"
    command = [forked_python, *script_command("sweep", swept(flags))[1:]]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=script_environment()) as process:
        while not (run / "metrics.jsonl").exists():  # written once it trains
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "stopped during batch_8-rate_0.001-epochs_5000-seed_1; the same command resumes" in errors.splitlines()[-1]
    assert (run / "checkpoint").read_text().splitlines()[0] != 'model_checkpoint_path: "model.ckpt-0"'
