"""`Trainer`: trains, evaluates and predicts with any task on any distribution strategy."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from absl import logging

from official_bert.checkpoints.bundle import GLOBAL_STEP, CheckpointReader
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.checkpoints.loading import load, merged, open_checkpoint
from official_bert.data.batches import IS_REAL_EXAMPLE, RECORD_INDEX, TokenBudget, numpy_evaluation_batches
from official_bert.data.record_files import RecordFile
from official_bert.modeling.encoder_options import lora_scale
from official_bert.modeling.token_model import is_needed
from official_bert.options.training import TENSORFLOW, TrainingOptions
from official_bert.support import writing
from official_bert.support.console import Progress
from official_bert.support.errors import UserError
from official_bert.support.files import fault_point
from official_bert.support.signals import RunRequests
from official_bert.training.cluster import Cluster
from official_bert.training.devices import open_cluster
from official_bert.training.monitoring import ScalarLog
from official_bert.training.step import HostNumber
from official_bert.training.task import Task, TrainingPlan
from official_bert.training.training_run import TrainingRun, weights_by_name

if TYPE_CHECKING:
    import tensorflow as tf

# Bytes of per-position vectors that are in memory at once.
_RECORDS_AT_ONCE, _BYTES_AT_ONCE = 512, 2**30
_COMPUTED = "computed"


Keep = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]  # reduces predictions, which have `RECORD_INDEX`


class Trainer:
    """A task's model on the devices of a strategy.

    Attributes:
      model: the model; randomly initialized until training or `restore` sets its weights.
      num_replicas: number of devices that share a batch.
      cluster: the processes that train together; usually one.
    """

    def __init__(
        self,
        task: Task,
        strategy: "tf.distribute.Strategy | Cluster | None" = None,
        *,
        seed: int = 12345,
        use_xla: bool = False,
        backend: str = TENSORFLOW,
    ):
        """Build the model.

        Args:
          task: the task to learn.
          strategy: the distribution strategy of TensorFlow, by default one device. With JAX, all devices share a batch.
          seed: seed of the random initialization.
          use_xla: whether to compile `predict` with XLA, on one device; JAX always does.
          backend: "tensorflow" or "jax", Keras's backend in this process.

        Raises:
          UserError: Keras uses another backend, or XLA is requested for several devices.
        """
        if not isinstance(strategy, Cluster):
            strategy = open_cluster(strategy, use_xla=use_xla, backend=backend)
        if isinstance(task, type) or not all(callable(getattr(task, name, None)) for name in ("build_model", "losses")):
            raise UserError(
                f"task is {task!r:.80}; give an object with build_model, losses and predictions (official_bert.Task); "
                "the data is an argument of train"
            )
        self.task = task
        self.cluster = strategy
        self.num_replicas: int = self.cluster.num_replicas
        keras.utils.set_random_seed(seed)
        with self.cluster.scope():
            self.model: keras.Model = task.build_model()
        self.cluster.check_same("number formats, which mixed_precision=auto chose", self.model.compute_dtype)
        self._predictions = self._compiled(lambda batch: task.predictions(self.model(batch, training=False), batch))

    def train(
        self,
        plan: TrainingPlan,
        batches: Callable[[int], Iterable],
        *,
        output_dir: str,
        init_checkpoint: str | None,
        evaluate: Callable[[int], bool] | None = None,
        callbacks: Sequence[keras.callbacks.Callback] = (),
    ) -> bool:
        """Train from the last checkpoint of the output folder, or from the beginning if there is none.

        Args:
          plan: training settings.
          batches: function from the number of examples used so far to an endless iterable of the remaining batches.
          output_dir: folder of checkpoints, events and `metrics.jsonl`; created if missing.
          init_checkpoint: source of the initial weights; None for random weights.
          evaluate: called with the step every `eval_steps` steps and at the end, and on resuming if an earlier run was
            interrupted at such a step; returns whether to stop early.
          callbacks: Keras callbacks, called in the process that writes files. An epoch for them is the time between two
            log lines; their logs are the numbers of the line. `model.stop_training` stops training early.

        Returns:
          True if training is complete; False if SIGTERM or `max_train_seconds` stopped it, after saving a checkpoint.

        Raises:
          KeyboardInterrupt: Ctrl-C stopped training, after saving a checkpoint.
          UserError: a checkpoint does not match, or a loss is not finite.
        """
        if not callable(batches):
            raise UserError(
                f"batches is {batches!r:.80}; give a function from the number of examples used so far to the remaining "
                "batches"
            )
        if self.cluster.is_chief:
            writing.make_folders(output_dir)
        self.cluster.wait()  # until it exists
        folder = CheckpointFolder(output_dir, keep_max=plan.keep_checkpoint_max, is_written=self.cluster.is_chief)
        # Workers stop together, between two steps: none may leave the others waiting.
        with RunRequests(may_raise=self.cluster.num_workers == 1) as requests:
            try:
                run = TrainingRun(
                    plan=plan,
                    task=self.task,
                    model=self.model,
                    cluster=self.cluster,
                    folder=folder,
                    scalar_log=ScalarLog(output_dir, is_written=self.cluster.is_chief),
                    evaluate=evaluate,
                    callbacks=callbacks,
                    requests=requests,
                )
                if init_checkpoint and not folder.latest:
                    self.load_initial(init_checkpoint)
                is_over = run.begin() or run.take_steps(batches)
            except KeyboardInterrupt:
                if folder.latest:
                    logging.info("interrupted; the same command resumes from %s", folder.latest)
                raise
            return run.is_complete(is_over=is_over)

    def save_weights(self, folder: CheckpointFolder, step: int) -> str:
        """Save a checkpoint without optimizer state; return its prefix."""
        return folder.save(step, {**weights_by_name(self.model), GLOBAL_STEP: np.int64(step)})

    def load_initial(self, path: str, *, is_trained_next: bool = True) -> None:
        """Load an initial checkpoint and log the loaded variables; see `checkpoints.loading.LoadReport`."""
        reader = open_checkpoint(path, "init_checkpoint")
        report = load(reader, self.model.weights, required=is_needed, makes_new_head=is_trained_next)
        is_frozen = any(variable.path in report.missing for variable in self.model.non_trainable_weights)
        report.log(is_trained_next=is_trained_next and not is_frozen)

    def restore(self, path: str) -> int:
        """Restore the weights of a training checkpoint, without optimizer state.

        Args:
          path: the checkpoint's prefix.

        Returns:
          Its step.

        Raises:
          UserError: it does not match, or the workers restore checkpoints of different steps.
        """
        step = HostNumber()
        reader = CheckpointReader(path)
        if lora_scale(self.model) is None:
            reader = merged(reader)
        load(reader, self.model.weights, {GLOBAL_STEP: step})
        self.cluster.check_same("last checkpoints, as while another run trains", int(step.value))
        return int(step.value)

    def predict(
        self, batches: Iterable, *, num_records: int, label: str = "predicting", keep: Keep | None = None
    ) -> dict[str, np.ndarray]:
        """Compute the task's predictions for every record.

        Args:
          batches: from `evaluation_batches`.
          num_records: number of records, for progress.
          label: description for progress.
          keep: returns what to keep of the predictions of a batch; by default everything.

        Returns:
          Name to array, one row per record, in record order.
        """
        parts: list[dict[str, np.ndarray]] = []
        num_done = 0
        with Progress(label, num_records, "records") as progress:
            for part in _without_padding(self._predictions(batches)):
                parts.append(keep(part) if keep else part)
                num_done += len(part[RECORD_INDEX])
                progress.update(num_done)
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        order = np.argsort(columns.pop(RECORD_INDEX))
        return {name: values[order] for name, values in columns.items()}

    def compute_by_record(
        self,
        function: Callable[[dict[str, Any]], Any],
        batches: Callable[[range], Iterable],
        num_records: int,
        *,
        bytes_per_record: int,
        label: str,
    ) -> Iterator[np.ndarray]:
        """Yield each record's float32 result [...] of `function`, in order: too much for all records together."""
        compute = self._compiled(lambda batch: {_COMPUTED: keras.ops.cast(function(batch), "float32")})
        num_done = 0
        with Progress(label, num_records, "records") as progress:
            records_at_once = max(min(_RECORDS_AT_ONCE, _BYTES_AT_ONCE // bytes_per_record), 1)
            for start in range(0, num_records, records_at_once):
                rows: dict[int, np.ndarray] = {}
                numbers = range(start, min(start + records_at_once, num_records))
                for part in _without_padding(compute(batches(numbers))):
                    rows.update(zip(part[RECORD_INDEX].tolist(), part[_COMPUTED], strict=True))
                    progress.update(num_done + len(rows))
                num_done += len(rows)
                yield from (rows[number] for number in sorted(rows))

    def _compiled(self, function: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable:
        """Compile a function of a batch; its results also have the fields that identify rows."""
        return self.cluster.compiled(
            lambda batch: {**function(batch), **{name: batch[name] for name in (IS_REAL_EXAMPLE, RECORD_INDEX)}},
            self.model,
        )


def _without_padding(results: Iterable[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    for part in results:
        fault_point("batch")
        is_real = part.pop(IS_REAL_EXAMPLE) == 1
        yield {name: value[is_real] for name, value in part.items()}


def check_divisible(batch_size: int, num_replicas: int, parameter: str, *, num_parts: int = 1) -> None:
    """Raise unless the devices can share a batch evenly."""
    if missing := -batch_size % (num_replicas * num_parts):
        devices = f"the {num_replicas} devices" if num_replicas > 1 else ""
        parts = f"gradient_accumulation_steps={num_parts}" if num_parts > 1 else ""
        raise UserError(
            f"{parameter}={batch_size} is not a multiple of {' times '.join(filter(None, (devices, parts)))}; "
            f"the next one is {batch_size + missing}"
        )


def training_batch_size(config: TrainingOptions, num_replicas: int, longest: int) -> int | TokenBudget:
    """Return the batch size in the form that `training_batches` takes."""
    if not config.train_batch_tokens:
        return config.train_batch_size
    num_parts = config.gradient_accumulation_steps
    budget = TokenBudget(config.train_batch_tokens, multiple=num_replicas * num_parts)
    if budget.num_tokens < budget.minimum(longest):
        raise UserError(
            f"train_batch_tokens={budget.num_tokens} is too small: examples may have {longest} positions, and each of "
            f"{num_replicas} device(s) takes at least one"
            + (f" for each of gradient_accumulation_steps={num_parts}" if num_parts > 1 else "")
            + f"; give at least {budget.minimum(longest)}"
        )
    return budget


def batches_of(trainer: Trainer, file: RecordFile, batch_size: int, numbers: range | None = None) -> Iterable:
    """Return all records of a file, or those with the given numbers, once, in batches for a trainer's replicas."""
    trainer.cluster.wait()  # until the chief has written the file
    if keras.backend.backend() == TENSORFLOW:
        from official_bert.data.pipeline import evaluation_batches  # imports TensorFlow
    else:
        evaluation_batches = numpy_evaluation_batches
    return evaluation_batches(
        [file.path],
        file.schema,
        batch_size=batch_size,
        lengths=file.lengths,
        num_replicas=trainer.num_replicas,
        numbers=numbers,
    )
