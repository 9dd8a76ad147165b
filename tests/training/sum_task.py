"""A task so small that a test can train it many times; the loop, the files and the signals are the real ones."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from official_bert.data.schema import RecordSchema
from official_bert.training.task import TrainingPlan, WeightedSum

PLAN = TrainingPlan(
    train_batch_size=4,
    num_train_steps=30,
    num_warmup_steps=2,
    learning_rate=0.01,
    random_seed=1,
    iterations_per_loop=2,
    save_checkpoints_steps=3,
    keep_checkpoint_max=2,
    log_steps=4,
    eval_steps=2,
)


class SumModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.norm = keras.layers.LayerNormalization(name="LayerNorm")
        self.dense = keras.layers.Dense(1)
        self({"numbers": np.zeros([1, 3], np.float32)})

    def call(self, batch, training=False):
        return self.dense(self.norm(batch["numbers"]))[:, 0]


class SumTask:
    """Learns to add three numbers."""

    schema = RecordSchema()

    def __init__(self, during_tracing=lambda: None):
        self._during_tracing = during_tracing

    def build_model(self):
        return SumModel()

    def losses(self, outputs, batch):
        self._during_tracing()
        errors = ops.square(outputs - ops.sum(batch["numbers"], axis=1))
        return {"squared": WeightedSum(ops.sum(errors), ops.convert_to_tensor(float(PLAN.train_batch_size)))}

    def predictions(self, outputs, batch):
        raise NotImplementedError


def batches(start):
    def batch(first):
        return {"numbers": tf.random.stateless_normal([PLAN.train_batch_size, 3], [7, first])}

    return tf.data.Dataset.counter(start, PLAN.train_batch_size).map(batch)
