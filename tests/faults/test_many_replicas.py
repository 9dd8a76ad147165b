"""16 replicas on virtual CPU devices: a training step equals that of one replica with the same global batch.

With 32 replicas, TensorFlow's reduction over devices does not finish on two cores.
"""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT, script_environment

pytestmark = pytest.mark.endurance

# In a separate process, which has that many devices from the start.
_PROGRAM = """
import json, sys
import tensorflow as tf
num_replicas = int(sys.argv[1])
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * num_replicas)
import dataclasses
import numpy as np
from official_bert.training.task import TrainingPlan
from official_bert.training.tensorflow_step import TensorFlowSteps
from official_bert.training.tensorflow_devices import mirrored_strategy
from official_bert.training.task import WeightedSum
from tests.training.sum_task import PLAN, SumTask

strategy = mirrored_strategy("CPU", num_replicas) if num_replicas > 1 else tf.distribute.get_strategy()
plan = dataclasses.replace(PLAN, train_batch_size=256, num_warmup_steps=0)

class Task(SumTask):
    def losses(self, outputs, batch):
        errors = tf.square(outputs - tf.reduce_sum(batch["numbers"], axis=1))
        # Weights that differ between the replicas: a mean of their means would be another number.
        weights = tf.cast(batch["numbers"][:, 0] > 0.5, tf.float32)
        return {"squared": WeightedSum(tf.reduce_sum(errors * weights), tf.reduce_sum(weights))}

import keras
keras.utils.set_random_seed(1)
task = Task()
with strategy.scope():
    model = task.build_model()
steps = TensorFlowSteps(task, model, strategy, plan)
numbers = tf.random.stateless_normal([256, 3], [7, 1])
dataset = tf.data.Dataset.from_tensors({"numbers": numbers}).unbatch().batch(256).repeat()
iterator = iter(strategy.experimental_distribute_dataset(dataset))
history = steps.take(iterator, 1)
print(json.dumps({
    "loss": float(history["loss"][0]), "gradient_norm": float(history["gradient_norm"][0]),
    "weights": [np.array(variable).ravel().tolist() for variable in model.trainable_variables],
}))
"""


def one_step(num_replicas):
    command = [sys.executable, "-c", _PROGRAM, str(num_replicas)]
    process = subprocess.run(command, capture_output=True, text=True, env=script_environment(), cwd=ROOT, timeout=300)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def test_a_step_of_16_replicas_is_one_of_one_replica():
    one, many = one_step(1), one_step(16)
    assert many["loss"] == pytest.approx(one["loss"], rel=1e-5)
    assert many["gradient_norm"] == pytest.approx(one["gradient_norm"], rel=1e-5)
    for found, expected in zip(many["weights"], one["weights"], strict=True):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-7)
