"""16 replicas on virtual CPU devices: a training step equals that of one replica with the same global batch.

With 32 replicas, TensorFlow's reduction over devices does not finish on two cores.
"""

import pytest

from tests.conftest import run_program

# In a separate process, which has that many devices from the start.
_PROGRAM = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 16)
import dataclasses
import keras
import numpy as np
from official_bert.training.task import WeightedSum
from official_bert.training.tensorflow_devices import mirrored_strategy
from official_bert.training.tensorflow_step import TensorFlowSteps
from tests.training.sum_runs import PLAN, SumTask

class Task(SumTask):
    def losses(self, outputs, batch):
        errors = tf.square(outputs - tf.reduce_sum(batch["numbers"], axis=1))
        # Weights that differ between the replicas: a mean of their means would be another number.
        weights = tf.cast(batch["numbers"][:, 0] > 0.5, tf.float32)
        return {"squared": WeightedSum(tf.reduce_sum(errors * weights), tf.reduce_sum(weights))}

def one_step(strategy):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = Task().build_model()
    plan = dataclasses.replace(PLAN, train_batch_size=256, num_warmup_steps=0)
    numbers = tf.random.stateless_normal([256, 3], [7, 1])
    batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors({"numbers": numbers}).repeat())
    history = TensorFlowSteps(Task(), model, strategy, plan).take(iter(batches), 1)
    return [history["loss"], history["gradient_norm"], *map(np.array, model.trainable_variables)]

one, many = (one_step(strategy) for strategy in (tf.distribute.get_strategy(), mirrored_strategy("CPU", 16)))
for found, expected in zip(many, one, strict=True):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
"""


@pytest.mark.endurance
def test_a_step_of_16_replicas_is_one_of_one_replica():
    run_program(_PROGRAM)
