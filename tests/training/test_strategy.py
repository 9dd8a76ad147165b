"""Where a run computes."""

import functools

import tensorflow as tf

from official_bert.config.run_configs.pretraining import PretrainingConfig
from official_bert.training.strategy import create_strategy


def sum_of_ones(length):
    return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([length]))


def test_runs_of_one_process_do_not_take_each_others_collective_operations_for_their_own(tmp_path):
    files = {"bert_config_file": "config.json", "input_file": "records", "output_dir": str(tmp_path)}
    for length in (1, 2, 3):
        strategy = create_strategy(PretrainingConfig(**files, do_train=True, num_replicas=2))
        total = tf.function(functools.partial(strategy.run, sum_of_ones, (length,)), autograph=False)
        found = strategy.experimental_local_results(total())
        assert [values.numpy().tolist() for values in found] == [[2.0] * length] * 2
