"""Write a run's metrics: TensorBoard events, `metrics.jsonl` and `eval_results.txt`."""

import json
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import tensorflow as tf
from absl import logging

from official_bert.support import files, writing
from official_bert.support.metrics_file import METRICS_FILE, parse_line
from official_bert.training.hyperparameters import hyperparameters_summary
from official_bert.training.run_folder import read_run_config, training_settings


class ScalarLog:
    """Scalars of a run, written as TensorBoard events and as lines of `metrics.jsonl`.

    As in the reference, training events are in the output folder and evaluation events in its subfolder `eval`.
    Training events begin with the run's hyperparameters, if the folder has its flags.
    """

    def __init__(self, output_dir: str, *, is_written: bool = True):
        """Open the log of an output folder, unless another worker writes it; writes nothing yet."""
        self._is_written = is_written
        self._output_dir = output_dir
        self._path = os.path.join(output_dir, METRICS_FILE)
        self._writers: dict[str, tf.summary.SummaryWriter] = {}

    def discard_after(self, step: int) -> None:
        """Drop lines of `metrics.jsonl` after a step, for a run that resumes there."""
        self._drop(lambda line: line["step"] > step)

    def replace(self, split: str, step: int, scalars: Mapping[str, float]) -> None:
        """Write a line like `write`, replacing one from an earlier evaluation of the step."""
        self._drop(lambda line: line["split"] == split and line["step"] == step)
        self.write(split, step, scalars)

    def _drop(self, is_dropped: Callable[[dict], bool]) -> None:
        if not self._is_written or not files.exists(self._path):
            return
        with files.open_file(self._path, "rb") as source:
            lines = source.read().splitlines(keepends=True)
        whole = [(line, scalars) for line in lines if (scalars := parse_line(line))]
        if len(whole) < len(lines):
            logging.warning("%s: dropped %d damaged lines", self._path, len(lines) - len(whole))
        with writing.atomic_write(self._path, "wb") as sink:
            sink.writelines(line for line, scalars in whole if not is_dropped(scalars))

    def write(self, split: str, step: int, scalars: Mapping[str, float]) -> None:
        """Write the scalars of a step.

        Args:
          split: "train" or "eval".
          step: steps taken.
          scalars: name to number.
        """
        if not self._is_written:
            return
        # `tf.summary.scalar` needs the package tensorboard; the reference's event format does not.
        values = [tf.compat.v1.Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        writer = self._writer(split)
        with writer.as_default():
            tf.summary.experimental.write_raw_pb(tf.compat.v1.Summary(value=values).SerializeToString(), step=step)
        writer.flush()
        with files.open_file(self._path, "a") as sink:
            sink.write(json.dumps({"split": split, "step": step, **scalars}) + "\n")
        writing.flush(self._path)  # a checkpoint saved later guarantees that the line exists

    def _writer(self, split: str) -> tf.summary.SummaryWriter:
        if split not in self._writers:
            folder = self._output_dir if split == "train" else os.path.join(self._output_dir, split)
            self._writers[split] = writer = tf.summary.create_file_writer(folder)
            run = read_run_config(self._output_dir) if split == "train" else None
            if run is not None:
                with writer.as_default():
                    summary = hyperparameters_summary(training_settings(run.flags))
                    tf.summary.experimental.write_raw_pb(summary, step=0)
        return self._writers[split]


def write_results(path: str, results: Mapping[str, Any], unlogged: Collection[str] = ()) -> None:
    """Write `eval_results.txt` as the reference does, and log it: sorted `key = value` lines.

    Args:
      path: the file.
      results: name to number.
      unlogged: names of numbers that are written but not logged.
    """
    lines = {key: f"{key} = {results[key]!s}" for key in sorted(results)}
    for key, line in lines.items():
        if key not in unlogged:
            logging.info("%s", line)
    with writing.atomic_write(path) as sink:
        sink.writelines(f"{line}\n" for line in lines.values())
