"""A task so small that a test can train it many times, and its runs; the loop, the files and the signals are real."""

import dataclasses
import os
import shutil
import threading

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.data.schema import RecordSchema
from official_bert.options.training import FinetuningOptions
from official_bert.training.finetuning import create_evaluator, has_stopped_early
from official_bert.training.loop import Trainer
from official_bert.training.monitoring import ScalarLog
from official_bert.training.task import TrainingPlan, WeightedSum
from tests.faults.killing import scalars

PLAN = TrainingPlan(
    train_batch_size=4, num_train_steps=30, num_warmup_steps=2, learning_rate=0.01, random_seed=1, log_steps=4,
    iterations_per_loop=2, save_checkpoints_steps=3, keep_checkpoint_max=2, eval_steps=2,
)  # fmt: skip
SHORT = dataclasses.replace(PLAN, eval_steps=None, num_train_steps=14, keep_checkpoint_max=0)
ENDS = ("data-00000-of-00001", "index")
# Scores of the evaluations, every second step; the third is not better, so training stops early, at step 6.
SCORES = {2: 0.5, 4: 0.7, 6: 0.6}


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


def new_trainer(**task_options):
    keras.backend.clear_session()  # numbering of names restarts, as in a new process
    return Trainer(SumTask(**task_options), seed=1, backend=keras.backend.backend())


def train(folder, make_batches=batches, evaluate=None, callbacks=(), **changes):
    """Train; return whether training finished."""
    trainer, plan = new_trainer(), dataclasses.replace(SHORT, **changes)
    files = {"output_dir": str(folder), "init_checkpoint": None}
    others = threading.enumerate()
    is_complete = trainer.train(plan, make_batches, **files, evaluate=evaluate, callbacks=callbacks)
    for thread in set(threading.enumerate()) - set(others):  # that reads batches ahead
        thread.join(5)
        assert not thread.is_alive()
    return is_complete


def train_and_evaluate(folder, *, during_tracing=lambda: None, during_evaluation=lambda step: None):
    """Train like the fine-tuning scripts; return whether training finished, and the evaluated steps."""
    os.makedirs(folder, exist_ok=True)
    files = {"output_dir": str(folder), **dict.fromkeys(("bert_config_file", "vocab_file"), "not read here")}
    config = FinetuningOptions(**files, do_train=True, eval_steps=PLAN.eval_steps, early_stopping_patience=1)
    if has_stopped_early(config):
        return True, []
    trainer, evaluated = new_trainer(during_tracing=during_tracing), []

    def scores_at(step):
        during_evaluation(step)
        evaluated.append(step)
        scores = {"score": SCORES[step]}
        ScalarLog(str(folder)).replace("eval", step, scores)
        return scores

    evaluate = create_evaluator(config, trainer, "score", scores_at)
    is_complete = trainer.train(PLAN, batches, output_dir=str(folder), init_checkpoint=None, evaluate=evaluate)
    return is_complete, evaluated


def begun(folder, step):
    """Copy a run as it was at a checkpoint."""
    target = shutil.copytree(folder, folder.with_name(f"{folder.name} from {step}"))
    for path in target.glob("model.ckpt-*"):
        if not path.name.startswith(f"model.ckpt-{step}."):
            path.unlink()
    (target / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')
    return target


def saved_steps(folder):
    return sorted(int(name.split("-")[1].split(".")[0]) for name in os.listdir(folder) if name.endswith(".index"))


def weights_of(prefix):
    reader = CheckpointReader(str(prefix))
    return {name: reader.read(name) for name in reader.shapes if name.endswith(("kernel", "gamma", "/adam_m"))}


def assert_same(first, second):
    for name, values in weights_of(first).items():
        np.testing.assert_array_equal(weights_of(second)[name], values)


def assert_same_end(folder, whole):
    """Assert bitwise equality of checkpoints, the best checkpoint, evaluations, and logged numbers."""
    assert scalars(folder) == scalars(whole)
    best = os.listdir(whole / "best")
    assert sorted(best) == ["checkpoint", "evaluations.json", *(f"model.ckpt-4.{end}" for end in ENDS)]
    for name in (*(f"best/{name}" for name in best), *(f"model.ckpt-6.{end}" for end in ENDS)):
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
