"""Generated runs, for tests of their curves."""

import numpy as np

from official_bert.support.metrics_file import Series
from official_bert.visualization.curves import Run

TRAINING = ("loss", "masked_lm_loss", "next_sentence_loss", "gradient_norm", "learning_rate", "examples_per_second")


def make_run(number=0, *, num_lines=30, name=None, names=TRAINING, step=10) -> Run:
    """Return falling curves with noise; the first metric is the loss."""
    rng = np.random.default_rng(number)
    steps = [step * line for line in range(1, num_lines + 1)]
    series = {
        ("train", metric): Series(steps, (8 / np.arange(1, num_lines + 1) + rng.random(num_lines) + number).tolist())
        for metric in names
    }
    series["eval", "masked_lm_accuracy"] = Series(steps[::5], rng.random(len(steps[::5])).tolist())
    return Run(name=name or f"random_seed={number}", folder=f"out/run-{number}", series=series)
