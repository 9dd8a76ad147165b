"""A training run, from its first or last checkpoint to its end: steps, log lines, evaluations, checkpoints."""

import dataclasses
import time
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints.bundle import GLOBAL_STEP, CheckpointReader
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.checkpoints.loading import load
from official_bert.config.tensor_names import LORA_SCALE
from official_bert.modeling.lora import lora_scale
from official_bert.support.fault_points import fault_point
from official_bert.support.progress import Progress
from official_bert.support.signals import Terminated
from official_bert.training.cluster import Cluster
from official_bert.training.monitoring import FailurePolicy, StepsPerCall, StepWindow, describe_scalars
from official_bert.training.plan import TrainingPlan
from official_bert.training.run_requests import RunRequests
from official_bert.training.step import OVERFLOW_STEPS, SKIPPED_STEPS, TrainingSteps
from official_bert.training.summaries import ScalarLog
from official_bert.training.time_budget import TimeBudget

_SECONDS_BETWEEN_LOG_LINES = 30  # without a terminal, if steps are too slow for `log_steps` to show progress


@dataclasses.dataclass(kw_only=True)
class TrainingRun:
    """The parts of a run, assembled by `Trainer.train`.

    Attributes:
      plan: training settings.
      model: the model.
      steps: runs the steps and holds the optimizer's state.
      cluster: the processes that train together.
      folder: the checkpoint folder.
      scalar_log: log of scalars.
      evaluate: as in `Trainer.train`.
      callbacks: as in `Trainer.train`.
      requests: external requests for checkpoints or the end, by time or signal.
    """

    plan: TrainingPlan
    model: keras.Model
    steps: TrainingSteps
    cluster: Cluster
    folder: CheckpointFolder
    scalar_log: ScalarLog
    evaluate: Callable[[int], bool] | None
    callbacks: keras.callbacks.CallbackList
    requests: RunRequests

    def __post_init__(self):
        self._failures = FailurePolicy(self.plan.nan_policy)
        self._window = StepWindow(self.plan.train_batch_size)
        self._budget = TimeBudget(self.plan.max_train_seconds, self.steps.used_share, self.cluster)

    @property
    def step(self) -> int:
        """Number of steps taken so far, including earlier runs."""
        return int(self.steps.step.numpy())

    def resume(self) -> None:
        """Restore the last checkpoint of the folder.

        Raises:
          UserError: it does not match the model or the optimizer.
        """
        latest = self.folder.latest
        self.folder.remove_leftovers()
        reader = CheckpointReader(latest)
        load(reader, self.model.weights, {**self.steps.slots, GLOBAL_STEP: self.steps.step})
        load(reader, self.steps.loss_scale_state, required=lambda name: False)
        self._window.restore(reader)
        self._budget.restore(reader)
        logging.info("resuming from %s", latest)

    def save(self) -> None:
        """Save a checkpoint of the current step."""
        state = {
            **self.steps.slots,
            **self.steps.loss_scale_state,
            GLOBAL_STEP: self.steps.step,
            **self._window.arrays(),
            **self._budget.arrays(),
        }
        logging.info("saved %s", self.folder.save(self.step, {**weights_by_name(self.model), **state}))

    def is_over(self) -> bool:
        """Return True if no steps remain; evaluate a step whose evaluation was interrupted."""
        start = self.step
        self.scalar_log.discard_after(start)
        if start and self._is_evaluated(start) and self._stops_early(start):
            return True
        if not self._is_last(start):
            return False
        aim = f"up to step {self.plan.num_train_steps}"
        if self._budget.is_used_up:
            aim = f"in max_train_seconds={self.plan.max_train_seconds:g}"
        logging.warning("%s exists already: nothing left to train %s", self.folder.latest, aim)
        return True

    def take_steps(self, batches: Callable[[int], tf.data.Dataset]) -> bool:
        """Train to the last step of the plan; return False if a signal or the time limit stopped it.

        Args:
          batches: as in `Trainer.train`.

        Raises:
          UserError: a loss is not finite.
        """
        start = self.step
        logging.info(
            "training %s parameters from step %d to %d on %d device(s)",
            f"{sum(int(np.prod(variable.shape)) for variable in self.model.trainable_variables):,}",
            start,
            self.plan.num_train_steps,
            self.cluster.strategy.num_replicas_in_sync,
        )
        logging.info("compiling the training step; this may take a minute")
        try:
            with self.requests.raise_on_stop():
                iterator = iter(self.cluster.distribute(batches(self.steps.num_examples)))
                self.steps.compile(iterator)
        except Terminated:
            return False  # the last checkpoint is of this step
        with Progress(
            "training", self.plan.num_train_steps, "steps", start=start, log_every_seconds=_SECONDS_BETWEEN_LOG_LINES
        ) as progress:
            self.model.stop_training = False
            self.callbacks.on_train_begin()
            self.callbacks.on_epoch_begin(start // self.plan.log_steps)
            is_over = self._loop(iterator, progress)
            self.callbacks.on_train_end()
        if self._is_last(self.step):
            self._budget.log_end(self.step)
        return is_over

    def _loop(self, iterator: Iterator, progress: Progress) -> bool:
        plan, step = self.plan, self.step
        is_cut_short = not isinstance(self.cluster.strategy, tf.distribute.TPUStrategy)
        pace = StepsPerCall(plan.iterations_per_loop, is_cut_short=is_cut_short)
        intervals = [plan.log_steps, plan.save_checkpoints_steps] + ([plan.eval_steps] if self.evaluate else [])
        is_over, is_stopped = False, self.cluster.any_worker(self.requests.is_terminated)
        while not is_over and not is_stopped:
            event = min(_next_multiple(step, every) for every in intervals)
            num_steps = min(self.cluster.from_chief(pace.num_steps), event - step, plan.num_train_steps - step)
            began = time.monotonic()
            history = self.steps.take(iterator, num_steps)
            seconds = time.monotonic() - began
            step = self.step
            self._budget.update()
            fault_point("step")
            self._window.add(history, None if pace.is_first_call else seconds)
            if pace.is_first_call:
                progress.restart(step)
            pace.add(num_steps, seconds)
            is_overflow = history.get(OVERFLOW_STEPS, [0])[-1]
            is_rolled_back = self._failures.add(step, history, self.folder.latest)
            if is_rolled_back:
                self.steps.roll_back(self.folder.latest)
                self._window = StepWindow(plan.train_batch_size)
            is_over = self._is_last(step)
            self._log(step, progress, is_logged=is_over or step % plan.log_steps == 0, is_overflow=is_overflow)
            if self._is_evaluated(step):
                progress.clear()
                is_over = self._stops_early(step) or is_over
            # Last, because a checkpoint guarantees that everything else of its step was written.
            stops, saves, ends = self.cluster.sums(
                int(self.requests.is_terminated or (self.cluster.is_chief and self.requests.is_over)),
                int(self.requests.is_due if self.cluster.is_chief else self.requests.is_signalled),
                int(self.model.stop_training),  # set by a callback
            )
            is_stopped, is_over = stops > 0, is_over or ends > 0
            if is_over or is_stopped or saves or is_rolled_back or step % plan.save_checkpoints_steps == 0:
                progress.clear()
                self.save()
                self.requests.mark_saved()
        return is_over

    def _log(self, step: int, progress: Progress, *, is_logged: bool, is_overflow: bool) -> None:
        """Update the progress; at a log line, write the window's scalars and begin a new window."""
        window = self._window
        scalars = window.scalars() if window.num_steps else {}
        progress.update(step, *describe_scalars(step, scalars), log=is_logged)
        if not is_logged or not scalars:
            return
        if skipped := scalars.get(SKIPPED_STEPS):
            logging.warning(
                "step %d: skipped %d of the %d steps since the last line, whose gradients were not finite",
                step,
                skipped,
                window.num_steps,
            )
        if is_overflow and scalars[OVERFLOW_STEPS] == window.num_steps:
            logging.warning(
                "step %d: all %d steps since the last line overflowed in float16 and changed nothing; if this "
                "continues, use mixed_precision=bfloat16 or a lower learning_rate",
                step,
                window.num_steps,
            )
        self.scalar_log.write("train", step, scalars)
        logs = {name: float(value) for name, value in scalars.items()}
        epoch = (step - 1) // self.plan.log_steps
        self.callbacks.on_train_batch_end(step - 1, logs)
        self.callbacks.on_epoch_end(epoch, logs)
        self.callbacks.on_epoch_begin(epoch + 1)
        self._window = StepWindow(self.plan.train_batch_size)

    def _is_evaluated(self, step: int) -> bool:
        return self.evaluate is not None and (self._is_last(step) or step % self.plan.eval_steps == 0)

    def _is_last(self, step: int) -> bool:
        return step >= self.plan.num_train_steps or self._budget.is_used_up

    def _stops_early(self, step: int) -> bool:
        """Evaluate; return True to stop early, but not after SIGTERM: the resumed run evaluates this step."""
        try:
            with self.requests.raise_on_stop():
                return self.evaluate(step)
        except Terminated:
            return False


def weights_by_name(model: keras.Model) -> dict[str, tf.Tensor]:
    """Return a model's variable values, and the scale of its low-rank updates, if any, by checkpoint name."""
    scale = lora_scale(model)
    values = {variable.path: variable.value for variable in model.weights}
    return values if scale is None else {**values, LORA_SCALE: np.float32(scale)}


def _next_multiple(step: int, every: int) -> int:
    return (step // every + 1) * every
