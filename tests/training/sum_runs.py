"""Runs of the `Trainer` on the smallest task, without a script: starting them and reading their checkpoints."""

import dataclasses
import os
import threading

import keras
import numpy as np

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.training.loop import Trainer
from tests.training.sum_task import PLAN, SumTask, batches

SHORT = dataclasses.replace(PLAN, eval_steps=None, num_train_steps=14, keep_checkpoint_max=0)


def train(folder, make_batches=batches, evaluate=None, callbacks=(), **changes):
    """Train; return whether training finished."""
    keras.backend.clear_session()  # numbering of names restarts, as in a new process
    trainer = Trainer(SumTask(), seed=1, backend=keras.backend.backend())
    plan = dataclasses.replace(SHORT, **changes)
    files = {"output_dir": str(folder), "init_checkpoint": None}
    others = threading.enumerate()
    is_complete = trainer.train(plan, make_batches, **files, evaluate=evaluate, callbacks=callbacks)
    for thread in set(threading.enumerate()) - set(others):  # that reads batches ahead
        thread.join(5)
        assert not thread.is_alive()
    return is_complete


def saved_steps(folder):
    return sorted(int(name.split("-")[1].split(".")[0]) for name in os.listdir(folder) if name.endswith(".index"))


def weights_of(prefix):
    reader = CheckpointReader(str(prefix))
    return {name: reader.read(name) for name in reader.shapes if name.endswith(("kernel", "gamma", "/adam_m"))}


def assert_same(first, second):
    for name, values in weights_of(first).items():
        np.testing.assert_array_equal(weights_of(second)[name], values)
