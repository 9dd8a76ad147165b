"""A training run, from its first or last checkpoint to its end: steps, log lines, evaluations, checkpoints, limits."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.checkpoints.loading import load
from official_bert.config.bert_config import LORA_SCALE
from official_bert.modeling.encoder_options import lora_scale
from official_bert.support.console import Progress
from official_bert.support.files import fault_point
from official_bert.support.signals import RunRequests, Stopped
from official_bert.training.cluster import Cluster
from official_bert.training.monitoring import FailedSteps, ScalarLog, StepsPerCall, StepWindow, describe_scalars
from official_bert.training.step import OVERFLOW_STEPS, SKIPPED_STEPS
from official_bert.training.task import Task, TrainingPlan

_SAVES_BY_TIME = 50  # saving by time takes at most one part in so many of the training time
_SECONDS_BETWEEN_LOG_LINES = 30  # without a terminal, if steps are too slow for `log_steps` to show progress


@dataclasses.dataclass(kw_only=True)
class TrainingRun:
    """The parts of a run, assembled by `Trainer.train`."""

    plan: TrainingPlan
    task: Task
    model: keras.Model
    cluster: Cluster  # the processes that train together
    folder: CheckpointFolder
    scalar_log: ScalarLog
    evaluate: Callable[[int], bool] | None  # as in `Trainer.train`
    callbacks: Sequence[keras.callbacks.Callback]  # as in `Trainer.train`
    requests: RunRequests  # signals that ask for a checkpoint or the end

    def __post_init__(self):
        self.steps = self.cluster.training_steps(self.task, self.model, self.plan)
        if self.callbacks:
            self.model.optimizer = self.steps.optimizer  # some read its settings
        self._callbacks = keras.callbacks.CallbackList(
            self.callbacks if self.cluster.is_chief else [],
            model=self.model,
            steps=self.plan.num_train_steps,
            verbose=0,
        )
        self._failures = FailedSteps()
        self._window = StepWindow(self.plan.train_batch_size)
        self._began = self._saved = time.monotonic()  # of the run and of its last checkpoint
        self._seconds_to_save = 0.0

    @property
    def step(self) -> int:
        """Number of steps taken so far, including earlier runs."""
        return int(self.steps.step.numpy())

    def _resume(self) -> None:
        latest = self.folder.latest
        self.folder.remove_leftovers()
        reader = CheckpointReader(latest)
        load(reader, self.model.weights, self.steps.slots, self.steps.counts)
        load(reader, self.steps.loss_scale_state, required=lambda name: False)
        self._window.restore(reader)
        logging.info("resuming from %s", latest)

    def save(self, *, is_temporary: bool = False) -> None:
        """Save a checkpoint of the current step; the next one replaces a temporary one."""
        began = time.monotonic()
        state = {
            **self.steps.slots,
            **self.steps.loss_scale_state,
            **{name: np.int64(count.numpy()) for name, count in self.steps.counts.items()},
            **self._window.arrays(),
        }
        tensors = {**weights_by_name(self.model), **state}
        logging.info("saved %s", self.folder.save(self.step, tensors, is_temporary=is_temporary))
        self._saved = time.monotonic()
        self._seconds_to_save = self._saved - began
        self.requests.is_save_requested = False  # the checkpoint fulfils earlier requests

    def begin(self) -> bool:
        """Resume from the last checkpoint, or save the initial weights; return True if no steps remain.

        A step whose evaluation was interrupted is evaluated.
        """
        if self.folder.latest:
            self._resume()
        else:
            self.save()
        start = self.step
        self.scalar_log.discard_after(start)
        if start and self._is_evaluated(start) and self._stops_early(start):
            return True
        if not self._is_last(start):
            return False
        logging.warning(
            "%s exists already: nothing left to train up to step %d", self.folder.latest, self.plan.num_train_steps
        )
        return True

    def take_steps(self, batches: Callable[[int], Iterable]) -> bool:
        """Train to the last step of the plan; return False if a signal or the time limit stopped it."""
        start = self.step
        logging.info(
            "training %s parameters from step %d to %d on %d device(s)",
            f"{sum(int(np.prod(variable.shape)) for variable in self.model.trainable_variables):,}",
            start,
            self.plan.num_train_steps,
            self.cluster.num_replicas,
        )
        logging.info("compiling the training step; this may take a minute")
        try:
            with self.requests.raise_on_stop():
                iterator = iter(self.cluster.distribute(batches(self.steps.num_examples)))
                self.steps.compile(iterator)
        except Stopped:
            return False  # the last checkpoint is of this step
        closing = contextlib.closing if hasattr(iterator, "close") else contextlib.nullcontext  # JAX's has a thread
        with (
            closing(iterator),
            Progress(
                "training", self.plan.num_train_steps, "steps", log_every_seconds=_SECONDS_BETWEEN_LOG_LINES
            ) as progress,
        ):
            self.model.stop_training = False
            self._callbacks.on_train_begin()
            self._callbacks.on_epoch_begin(start // self.plan.log_steps)
            is_over = self._loop(iterator, progress)
            self._callbacks.on_train_end()
        return is_over

    def is_complete(self, *, is_over: bool) -> bool:
        """Return True if no worker was stopped before the end; log the reason otherwise, and pass Ctrl-C on."""
        requests = self.requests
        is_stopped, is_interrupted = self.cluster.sums(int(requests.is_stopped), int(requests.is_interrupted))
        if is_over and not is_stopped:
            return True
        reason = "Ctrl-C" if is_interrupted else "SIGTERM" if is_stopped else None
        reason = reason or f"max_train_seconds={self.plan.max_train_seconds:g}"
        logging.info("%s: stopped; the same command resumes from %s", reason, self.folder.latest)
        if is_interrupted:
            raise KeyboardInterrupt
        return False

    def _loop(self, iterator: Iterator, progress: Progress) -> bool:
        plan, step = self.plan, self.step
        pace = StepsPerCall(plan.iterations_per_loop, is_cut_short=self.cluster.is_cut_short)
        intervals = [plan.log_steps, plan.save_checkpoints_steps] + ([plan.eval_steps] if self.evaluate else [])
        is_over, is_stopped = False, self.cluster.any_worker(self.requests.is_stopped)
        while not is_over and not is_stopped:
            event = min((step // every + 1) * every for every in intervals)  # the next multiple
            num_steps = min(self.cluster.from_chief(pace.num_steps), event - step, plan.num_train_steps - step)
            began = time.monotonic()
            history = self.steps.take(iterator, num_steps)
            seconds = time.monotonic() - began
            step = self.step
            fault_point("step")
            self._window.add(history, None if pace.is_first_call else seconds)
            if pace.is_first_call:
                progress.restart(step)
            pace.add(num_steps, seconds)
            is_overflow = history.get(OVERFLOW_STEPS, [0])[-1]
            self._failures.check(step, history, self.folder.latest)
            is_over = self._is_last(step)
            self._log(step, progress, is_logged=is_over or step % plan.log_steps == 0, is_overflow=is_overflow)
            if self._is_evaluated(step):
                progress.clear()
                is_over = self._stops_early(step) or is_over
            # Last, because a checkpoint guarantees that everything else of its step was written.
            stops, saves, ends, is_due = self.cluster.sums(
                int(self.requests.is_stopped or (self.cluster.is_chief and self._is_out_of_time)),
                int(self.requests.is_save_requested),
                int(self.model.stop_training),  # set by a callback
                int(self.cluster.is_chief and self._is_due),
            )
            is_stopped, is_over = stops > 0, is_over or ends > 0
            is_kept = is_over or is_stopped or saves or step % plan.save_checkpoints_steps == 0
            if is_kept or is_due:
                progress.clear()
                self.save(is_temporary=not is_kept)
        return is_over

    def _log(self, step: int, progress: Progress, *, is_logged: bool, is_overflow: bool) -> None:
        """Update the progress; at a log line, write the window's scalars and begin a new window."""
        window = self._window
        scalars = window.scalars() if window.num_steps else {}
        progress.update(step, *describe_scalars(step, scalars), log=is_logged)
        if not is_logged or not scalars:
            return
        if skipped := scalars.get(SKIPPED_STEPS):
            message = "step %d: skipped %d of the %d steps since the last line, whose gradients were not finite"
            logging.warning(message, step, skipped, window.num_steps)
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
        self._callbacks.on_train_batch_end(step - 1, logs)
        self._callbacks.on_epoch_end(epoch, logs)
        self._callbacks.on_epoch_begin(epoch + 1)
        self._window = StepWindow(self.plan.train_batch_size)

    def _is_evaluated(self, step: int) -> bool:
        return self.evaluate is not None and (self._is_last(step) or step % self.plan.eval_steps == 0)

    def _is_last(self, step: int) -> bool:
        return step >= self.plan.num_train_steps

    @property
    def _is_out_of_time(self) -> bool:
        """True if `max_train_seconds` are over."""
        limit = self.plan.max_train_seconds
        return bool(limit and time.monotonic() - self._began >= limit)

    @property
    def _is_due(self) -> bool:
        """True if it is time for a checkpoint."""
        every = self.plan.save_checkpoints_secs
        return bool(every and time.monotonic() - self._saved >= max(every, _SAVES_BY_TIME * self._seconds_to_save))

    def _stops_early(self, step: int) -> bool:
        """Evaluate; return True to stop early, but not after a signal: the resumed run evaluates this step."""
        try:
            with self.requests.raise_on_stop():
                return self.evaluate(step)
        except Stopped:
            return False


def weights_by_name(model: keras.Model) -> dict[str, Any]:
    """Return a model's variable values, and the scale of its low-rank updates, if any, by checkpoint name."""
    scale = lora_scale(model)
    values = {variable.path: variable.value for variable in model.weights}
    return values if scale is None else {**values, LORA_SCALE: np.float32(scale)}
