"""Two worker processes on this machine: the same run as one process, with files written by one of them."""

import json
import os
import random
import socket
import subprocess
import sys

import numpy as np
import pytest

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.training.results import read_results
from tests.conftest import ROOT, script_environment
from tests.training.worker_runs import run_all

pytestmark = pytest.mark.multi_process
WORDS = ("the", "rain", "snow", "warm", "broken", "committees", "harbour", "bridge", "mirror", "town")


def free_ports(count):
    """Ports that nothing listens at."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("localhost", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def start_workers(command, logs, count=2):
    """Starts the same command as workers on this machine, each with a log of its own."""
    addresses = [f"localhost:{port}" for port in free_ports(count)]
    for index in range(count):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        with open(logs / f"worker{index}.log", "w") as log:
            yield subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**script_environment(), "TF_CONFIG": json.dumps(task), "TF_NUM_INTRAOP_THREADS": "1"},
            )


def finish(processes, seconds=300):
    """Waits for all; returns their exit codes."""
    try:
        return [process.wait(seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()


def log_of(logs, index):
    return (logs / f"worker{index}.log").read_text()


@pytest.fixture(scope="module")
def quiet_model(tmp_path_factory, model_dir):
    """A model of one layer without dropout, whose masks differ between devices on purpose."""
    folder = tmp_path_factory.mktemp("model")
    config = json.loads((model_dir / "bert_config.json").read_text())
    config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_hidden_layers=1)
    (folder / "bert_config.json").write_text(json.dumps(config))
    return {
        "bert_config_file": str(folder / "bert_config.json"),
        "init_checkpoint": str(model_dir / "bert_model.ckpt"),
    }


def texts(rng, count):
    return [" ".join(rng.choices(WORDS, k=rng.randrange(2, 12))) for _ in range(count)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory, quiet_model, records_file, vocab_file):
    """A short run of each task: name to script and flags, without the output folder."""
    data, rng = tmp_path_factory.mktemp("data"), random.Random(1)
    for name, count in (("train", 50), ("dev", 21)):
        rows = [f"{text}\t{int('snow' in text)}\n" for text in texts(rng, count)]
        (data / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
        sentences = [
            [f"{word} {'B-LOC' if word == 'harbour' else 'O'}\n" for word in text.split()] for text in texts(rng, count)
        ]
        (data / f"{name}.conll").write_text("\n".join("".join(lines) for lines in sentences))
        paragraphs = []
        for number, text in enumerate(texts(rng, count)):
            context, answer = f"the {text} quay", text.split()[0]
            answers = [{"text": answer, "answer_start": context.index(answer)}]
            question = {"id": f"{name}{number}", "question": "what was it", "answers": answers}
            paragraphs.append({"context": context, "qas": [question]})
        content = {"version": "made", "data": [{"title": "made", "paragraphs": paragraphs}]}
        (data / f"{name}.json").write_text(json.dumps(content))
    tuning = {
        **quiet_model, "vocab_file": vocab_file, "do_train": True, "train_batch_size": 8, "num_train_epochs": 1.0,
        "max_seq_length": 24, "learning_rate": 1e-3, "log_steps": 1, "do_predict": True, "predict_batch_size": 4,
    }  # fmt: skip
    labelling = {**tuning, "do_eval": True, "eval_batch_size": 4, "eval_steps": 3}
    table = {"task_name": "custom", "text_a_column": "sentence", "label_column": "label", "data_dir": str(data)}
    return {
        "pretraining": ("run_pretraining", {
            **quiet_model, "input_file": records_file, "max_seq_length": 64, "max_predictions_per_seq": 10,
            "do_train": True, "train_batch_size": 8, "num_train_steps": 6, "num_warmup_steps": 2, "learning_rate": 1e-3,
            "log_steps": 1, "do_eval": True, "eval_batch_size": 4, "max_eval_steps": 3,
        }),
        "classification": ("run_classifier", {
            **labelling, **table, "train_file": "train.tsv", "eval_file": "dev.tsv",
            "predict_file": "dev.tsv",
        }),
        "tagging": ("run_ner", {
            **labelling, "train_file": str(data / "train.conll"), "eval_file": str(data / "dev.conll"),
            "predict_file": str(data / "dev.conll"), "gradient_accumulation_steps": 2,
        }),
        "question answering": ("run_squad", {
            **tuning, "train_file": str(data / "train.json"), "predict_file": str(data / "dev.json"), "doc_stride": 8,
            "max_query_length": 6,
        }),
    }  # fmt: skip


def with_folders(runs, folder, **more):
    return [(script, {**flags, **more, "output_dir": str(folder / name)}) for name, (script, flags) in runs.items()]


@pytest.fixture(scope="module")
def alone(runs, tmp_path_factory):
    """The folder in which this process ran all."""
    folder = tmp_path_factory.mktemp("alone")
    run_all(with_folders(runs, folder))
    return folder


@pytest.fixture(scope="module")
def together(runs, tmp_path_factory):
    """The folder in which two workers ran all, and the folder with their logs."""
    folder, logs = tmp_path_factory.mktemp("together"), tmp_path_factory.mktemp("logs")
    (logs / "runs.json").write_text(json.dumps(with_folders(runs, folder)))
    command = [sys.executable, ROOT / "tests" / "training" / "worker_runs.py", logs / "runs.json"]
    assert finish(list(start_workers(command, logs))) == [0, 0], log_of(logs, 0) + log_of(logs, 1)
    return folder, logs


TASKS = ("pretraining", "classification", "tagging", "question answering")


def metrics_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("task", TASKS)
def test_two_workers_train_as_one(alone, together, task):
    expected, found = metrics_of(alone / task), metrics_of(together[0] / task)
    assert [(line["split"], line["step"]) for line in found] == [(line["split"], line["step"]) for line in expected]
    compared = 0
    for one, two in zip(expected, found, strict=True):
        for name in one.keys() - {"split", "step", "examples_per_second", "tokens_per_second"}:
            np.testing.assert_allclose(
                two[name], one[name], rtol=1e-3 if "norm" in name else 1e-5, atol=1e-6, err_msg=name
            )
            compared += "loss" in name
    assert compared >= 6
    last = max(line["step"] for line in expected)
    readers = [CheckpointReader(str(folder / task / f"model.ckpt-{last}")) for folder in (alone, together[0])]
    assert readers[0].shapes == readers[1].shapes
    for name in readers[0].shapes:
        one, two = (reader.read(name) for reader in readers)
        # Key biases and those of start and end logits have a gradient of 0 but for rounding: they are noise.
        noise = 1e-8 if name.endswith(("adam_m", "adam_v")) else 2e-6
        np.testing.assert_allclose(two, one, atol=max(1e-3 * np.abs(one).max(), noise), err_msg=name)


@pytest.mark.parametrize("task", TASKS)
def test_two_workers_evaluate_and_predict_as_one(alone, together, task):
    one, two = (
        read_results(str(alone / task / "eval_results.txt")),
        read_results(str(together[0] / task / "eval_results.txt")),
    )
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_allclose(float(two[name]), float(one[name]), rtol=1e-4, atol=1e-6, err_msg=name)
    for name in ("predictions.conll", "predictions.json"):
        if (alone / task / name).exists():
            assert (together[0] / task / name).read_bytes() == (alone / task / name).read_bytes()
    if task == "classification":
        tables = [np.loadtxt(folder / task / "test_results.tsv") for folder in (alone, together[0])]
        assert len(tables[0]) == 21
        np.testing.assert_allclose(tables[1], tables[0], atol=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_one_worker_writes_what_one_process_writes(alone, together, task):
    def files_in(folder):
        names = {
            os.path.relpath(os.path.join(parent, name), folder)
            for parent, _, found in os.walk(folder)
            for name in found
        }
        return sorted(name for name in names if "tfevents" not in name), sum("tfevents" in name for name in names)

    assert files_in(together[0] / task) == files_in(alone / task)
    assert "model.ckpt" not in log_of(together[1], 1)
