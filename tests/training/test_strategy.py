"""The devices that a run uses."""

import functools
import re

import pytest
import tensorflow as tf

from official_bert.support.errors import UserError
from official_bert.support.processes import available_cores
from official_bert.tasks.pretraining.options import PretrainingConfig
from official_bert.training.devices import create_cluster
from official_bert.training.tensorflow_devices import create_strategy


def devices(**flags):
    files = {"bert_config_file": "config.json", "input_file": "records", "output_dir": "out"}
    return PretrainingConfig(**files, do_train=True, **flags)


def sum_of_ones(length):
    return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([length]))


def test_runs_of_one_process_do_not_take_each_others_collective_operations_for_their_own():
    for length in (1, 2, 3):
        strategy = create_strategy(devices(num_replicas=2))
        total = tf.function(functools.partial(strategy.run, sum_of_ones, (length,)), autograph=False)
        found = strategy.experimental_local_results(total())
        assert [values.numpy().tolist() for values in found] == [[2.0] * length] * 2


@pytest.mark.parametrize(
    ("flags", "message", "variables"),
    [
        ({"distribution": "mirrored"}, "this machine has no GPUs", {}),
        ({"distribution": "tpu"}, "distribution=tpu and use_tpu=False contradict", {}),
        ({"distribution": "one_device", "num_replicas": 2}, "contradict each other", {}),
        ({"distribution": "multi_worker"}, "neither TF_CONFIG nor SLURM's variables", {}),
        ({"distribution": "multi_worker"}, "start the workers with srun", {"SLURM_PROCID": "0"}),
        ({"distribution": "multi_worker", "num_replicas": 2}, "num_replicas=2: each worker uses all", {}),
    ],
)
def test_flags_that_cannot_be_followed(monkeypatch, flags, message, variables):
    for name in ("TF_CONFIG", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=message):
        create_cluster(devices(**flags))


WORKERS = '"cluster": {"worker": ["a:1", "b:2"]}'
FIRST = '"task": {"type": "worker", "index": 0}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "it is not JSON"),
        ('{"cluster": {"worker": ["a:1"]}}', "it has no task"),
        ("[" * 100_000, "it is nested too deeply"),
        (f'{{"cluster": {{"worker": ["a:99999", "b:1"]}}, {FIRST}}}', "'a:99999' is not host"),
        (f'{{{WORKERS}, "task": {{"type": "worker", "index": 2}}}}', "this process must be one of its workers"),
        (f'{{{WORKERS}, "task": {{"type": "worker", "index": "1"}}}}', "task.index is '1'; it must be a whole number"),
        (f'{{{WORKERS}, "task": {{"type": "chief", "index": 0}}}}', "task.type is 'chief'; it must be \"worker\""),
        (f'{{"cluster": {{"worker": ["a:1"], "ps": ["b:2"]}}, {FIRST}}}', "nothing else is"),
    ],
)
def test_a_cluster_that_cannot_be_understood(monkeypatch, text, message):
    monkeypatch.setenv("TF_CONFIG", text)
    expected = f"^the variable TF_CONFIG cannot be used: .*{message}.*; it must look like"
    for distribution in ("auto", "multi_worker"):
        with pytest.raises(UserError, match=expected):
            create_strategy(devices(distribution=distribution))


def test_a_cluster_of_one_is_no_cluster_and_the_log_says_where_it_runs(monkeypatch, caplog):
    monkeypatch.setenv("TF_CONFIG", f'{{"cluster": {{"worker": ["a:1"]}}, {FIRST}}}')
    with caplog.at_level("INFO", logger="absl"):
        assert create_strategy(devices()) is tf.distribute.get_strategy()
    assert re.search(rf"(no GPU found|\d GPUs? \(\w.*\)); {available_cores()} CPU core", caplog.text)


def test_a_script_of_one_machine_does_not_join_a_cluster(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", f"{{{WORKERS}, {FIRST}}}")
    with pytest.raises(UserError, match="this script computes on one machine"):
        create_strategy(devices(), allows_workers=False)
