"""Whole runs of the `Trainer` with evaluations and early stopping, and their comparison."""

import os

import keras

from official_bert.options.training import FinetuningOptions
from official_bert.training.finetuning import create_evaluator, has_stopped_early
from official_bert.training.loop import Trainer
from official_bert.training.monitoring import ScalarLog
from tests.faults.killing import scalars
from tests.training.sum_task import PLAN, SumTask, batches

ENDS = ("data-00000-of-00001", "index")
# Scores of the evaluations, every second step; the third is not better, so training stops early, at step 6.
SCORES = {2: 0.5, 4: 0.7, 6: 0.6}


def train(folder, *, during_tracing=lambda: None, during_evaluation=lambda step: None):
    """Train like the fine-tuning scripts; return whether training finished, and the evaluated steps."""
    os.makedirs(folder, exist_ok=True)
    config = FinetuningOptions(
        output_dir=str(folder),
        do_train=True,
        eval_steps=PLAN.eval_steps,
        early_stopping_patience=1,
        **dict.fromkeys(("bert_config_file", "vocab_file"), "not read here"),
    )
    if has_stopped_early(config):
        return True, []
    keras.backend.clear_session()  # numbering of names restarts, as in a new process
    trainer = Trainer(SumTask(during_tracing), seed=1, backend=keras.backend.backend())
    evaluated = []

    def scores_at(step):
        during_evaluation(step)
        evaluated.append(step)
        scores = {"score": SCORES[step]}
        ScalarLog(str(folder)).replace("eval", step, scores)
        return scores

    evaluate = create_evaluator(config, trainer, "score", scores_at)
    is_complete = trainer.train(PLAN, batches, output_dir=str(folder), init_checkpoint=None, evaluate=evaluate)
    return is_complete, evaluated


def bytes_of(folder, names):
    return {name: (folder / name).read_bytes() for name in names}


def assert_same_end(folder, whole):
    """Assert bitwise equality of checkpoints, the best checkpoint, evaluations, and logged numbers."""
    assert scalars(folder) == scalars(whole)
    best = os.listdir(whole / "best")
    assert sorted(best) == ["checkpoint", "evaluations.json", *(f"model.ckpt-4.{end}" for end in ENDS)]
    last = [f"model.ckpt-6.{end}" for end in ENDS]
    assert bytes_of(folder / "best", best) == bytes_of(whole / "best", best)
    assert bytes_of(folder, last) == bytes_of(whole, last)
