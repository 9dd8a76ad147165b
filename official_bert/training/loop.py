"""`Trainer`: trains, evaluates and predicts with any task on any distribution strategy."""

from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints.bundle import GLOBAL_STEP, CheckpointReader
from official_bert.checkpoints.checkpoint_folder import CheckpointFolder
from official_bert.checkpoints.loading import load
from official_bert.checkpoints.opening import open_checkpoint
from official_bert.data.pipeline import IS_REAL_EXAMPLE, RECORD_INDEX
from official_bert.modeling.encoder import is_needed
from official_bert.support import writing
from official_bert.support.errors import UserError
from official_bert.support.fault_points import fault_point
from official_bert.support.progress import Progress
from official_bert.training.cluster import Cluster
from official_bert.training.plan import TrainingPlan
from official_bert.training.run_requests import RunRequests
from official_bert.training.step import TrainingSteps
from official_bert.training.summaries import ScalarLog
from official_bert.training.task import Task
from official_bert.training.training_run import TrainingRun, weights_by_name

# Of records whose vectors at every position are in memory together.
_RECORDS_AT_ONCE, _BYTES_AT_ONCE = 512, 2**30
_COMPUTED = "computed"


class Trainer:
    """A task's model on a strategy's devices.

    Attributes:
      model: the model; its weights are random until training or `restore` sets them.
      num_replicas: number of devices that share a batch.
      cluster: the processes that train together; one as a rule.
    """

    def __init__(self, task: Task, strategy: tf.distribute.Strategy, *, seed: int, use_xla: bool = False):
        """Build the model.

        Args:
          task: what to learn.
          strategy: the distribution strategy.
          seed: of the random weights.
          use_xla: whether XLA compiles what `predict` computes.

        Raises:
          UserError: XLA is to compile for several devices.
        """
        if use_xla and strategy is not tf.distribute.get_strategy():
            raise UserError("use_xla compiles for one device alone, without a distribution; leave it out")
        self._task = task
        self._strategy = strategy
        self.num_replicas = strategy.num_replicas_in_sync
        self.cluster = Cluster(strategy)
        keras.utils.set_random_seed(seed)
        with strategy.scope():
            self.model = task.build_model()
        self.cluster.check_same("number formats, which mixed_precision=auto chose", self.model.compute_dtype)
        predictions = tf.autograph.experimental.do_not_convert(
            lambda batch: task.predictions(self.model(batch, training=False), batch)
        )
        self._predictions = self._on_replicas(
            tf.function(predictions, jit_compile=True, autograph=False) if use_xla else predictions
        )

    def train(
        self,
        plan: TrainingPlan,
        batches: Callable[[int], tf.data.Dataset],
        *,
        output_dir: str,
        init_checkpoint: str | None,
        evaluate: Callable[[int], bool] | None = None,
    ) -> bool:
        """Train from the last checkpoint of the output folder, or from the start if there is none.

        Args:
          plan: how to train.
          batches: called with the number of examples used so far; gives the batches from there on, without end.
          output_dir: where checkpoints, events and `metrics.jsonl` go; created if it is not there.
          init_checkpoint: where the first weights come from; None for random ones.
          evaluate: called with the step every `eval_steps` steps and at the end, and again at the start with the step
            where an earlier run was stopped, should that be such a step; returns whether to stop early.

        Returns:
          Whether training reached its end, early or not; False if SIGTERM or `max_train_seconds` stopped it, after
          saving a checkpoint.

        Raises:
          UserError: a checkpoint does not fit, or a loss is not finite.
        """
        is_written = self.cluster.folder(output_dir).is_written
        if is_written:
            writing.make_folders(output_dir)
        self.cluster.wait()  # until it is there
        folder = CheckpointFolder(output_dir, keep_max=plan.keep_checkpoint_max, is_written=is_written)
        # Workers stop together, between two steps: none may leave the others alone at something else.
        with RunRequests(
            save_seconds=plan.save_checkpoints_secs,
            max_seconds=plan.max_train_seconds,
            may_raise=self.cluster.num_workers == 1,
        ) as requests:
            try:
                run = TrainingRun(
                    plan=plan,
                    model=self.model,
                    steps=TrainingSteps(self._task, self.model, self._strategy, plan),
                    cluster=self.cluster,
                    folder=folder,
                    scalar_log=ScalarLog(output_dir, is_written=is_written),
                    evaluate=evaluate,
                    requests=requests,
                )
                if folder.latest:
                    run.resume()
                else:
                    if init_checkpoint:
                        self.load_initial(init_checkpoint)
                    run.save()
                is_over = run.is_over() or run.take_steps(batches)
            except KeyboardInterrupt:
                if folder.latest:
                    logging.info("interrupted; the same command resumes from %s", folder.latest)
                raise
            is_terminated = self.cluster.any_worker(requests.is_terminated)
            if is_terminated or not is_over:
                reason = "SIGTERM" if is_terminated else f"max_train_seconds={plan.max_train_seconds:g}"
                logging.info("%s: stopped; the same command resumes from %s", reason, folder.latest)
                return False
            return True

    def save_weights(self, folder: CheckpointFolder, step: int) -> str:
        """Save a checkpoint without optimizer state; return its prefix."""
        return folder.save(step, {**weights_by_name(self.model), GLOBAL_STEP: np.int64(step)})

    def load_initial(self, path: str, *, is_trained_next: bool = True) -> None:
        """Set the weights from an initial checkpoint, and log what came; see `checkpoints.loading.LoadReport`."""
        reader = open_checkpoint(path, "init_checkpoint")
        report = load(reader, self.model.weights, required=is_needed)
        report.log(is_trained_next=is_trained_next)

    def restore(self, path: str) -> int:
        """Set the weights from a checkpoint of a run, without optimizer state.

        Args:
          path: the checkpoint's prefix.

        Returns:
          Its step.

        Raises:
          UserError: it does not fit, or the workers restore checkpoints of different steps.
        """
        step = tf.Variable(0, dtype=tf.int64, trainable=False)
        load(CheckpointReader(path), self.model.weights, {GLOBAL_STEP: step})
        self.cluster.check_same("last checkpoints, as while another run trains", int(step.numpy()))
        return int(step.numpy())

    def predict(
        self, batches: tf.data.Dataset, *, num_records: int, label: str = "predicting"
    ) -> dict[str, np.ndarray]:
        """Compute the task's predictions of every record.

        Args:
          batches: as `evaluation_batches` gives them.
          num_records: how many records they hold, for the progress.
          label: what it is for, for the progress.

        Returns:
          Name to array, one row per record, in the order of the records.
        """
        return self._compute(self._predictions, batches, num_records, label)

    def compute(
        self,
        function: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]],
        batches: tf.data.Dataset,
        num_records: int,
        *,
        label: str,
    ) -> dict[str, np.ndarray]:
        """Compute anything else of every record; as `predict`, with a function from a batch to tensors [B, ...]."""
        return self._compute(self._on_replicas(function), batches, num_records, label)

    def compute_by_record(
        self,
        function: Callable[[dict[str, tf.Tensor]], tf.Tensor],
        batches: Callable[[range], tf.data.Dataset],
        num_records: int,
        *,
        bytes_per_record: int,
        label: str,
    ) -> Iterator[np.ndarray]:
        """Compute something of every record that would be too much to have at once, such as a vector per position.

        Args:
          function: from a batch to a tensor [B, ...].
          batches: called with the numbers of some records; gives them as `evaluation_batches` does.
          num_records: how many there are.
          bytes_per_record: maximum size of what is computed of a record; decides how many are in memory together.
          label: what it is for, for the progress.

        Yields:
          What was computed of each record as float32, in their order, as long as its batch was.
        """
        compiled = self._on_replicas(lambda batch: {_COMPUTED: tf.cast(function(batch), tf.float32)})
        num_done = 0
        with Progress(label, num_records, "records") as progress:
            records_at_once = max(min(_RECORDS_AT_ONCE, _BYTES_AT_ONCE // bytes_per_record), 1)
            for start in range(0, num_records, records_at_once):
                rows: dict[int, np.ndarray] = {}
                for part in self._parts(compiled, batches(range(start, min(start + records_at_once, num_records)))):
                    rows.update(zip(part[RECORD_INDEX].tolist(), part[_COMPUTED], strict=True))
                    progress.update(num_done + len(rows))
                num_done += len(rows)
                yield from (rows[number] for number in sorted(rows))

    def _on_replicas(self, function: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]]) -> Callable:
        """Compile a function of a batch; concatenate the results of the replicas, with what identifies the rows."""

        @tf.autograph.experimental.do_not_convert
        def on_replica(part):
            return {**function(part), **{name: part[name] for name in (IS_REAL_EXAMPLE, RECORD_INDEX)}}

        @tf.function(autograph=False)
        def on_batch(batch):
            results = self._strategy.run(on_replica, args=(batch,))
            return {name: self.cluster.gather(value) for name, value in results.items()}

        return on_batch

    def _compute(
        self, compiled: Callable, batches: tf.data.Dataset, num_records: int, label: str
    ) -> dict[str, np.ndarray]:
        parts: list[dict[str, np.ndarray]] = []
        num_done = 0
        with Progress(label, num_records, "records") as progress:
            for part in self._parts(compiled, batches):
                parts.append(part)
                num_done += len(part[RECORD_INDEX])
                progress.update(num_done)
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        order = np.argsort(columns.pop(RECORD_INDEX))
        return {name: values[order] for name, values in columns.items()}

    def _parts(self, compiled: Callable, batches: tf.data.Dataset) -> Iterator[dict[str, np.ndarray]]:
        """Return the outputs for each batch, without the examples that fill it up."""
        dataset = self.cluster.distribute(batches)
        traced_once = compiled.get_concrete_function(dataset.element_spec)  # for batches of all lengths
        for batch in dataset:
            part = {name: value.numpy() for name, value in traced_once(batch).items()}
            fault_point("batch")
            is_real = part.pop(IS_REAL_EXAMPLE) == 1
            yield {name: value[is_real] for name, value in part.items()}


def check_divisible(batch_size: int, strategy: tf.distribute.Strategy, parameter: str, *, num_parts: int = 1) -> None:
    """Raise unless the replicas of a strategy can share a batch evenly.

    Args:
      batch_size: examples in a step, over all replicas.
      strategy: has the replicas.
      parameter: what the user calls the batch size, such as "train_batch_size".
      num_parts: parts that each replica splits its share into.

    Raises:
      UserError: they cannot; the message names the parameter.
    """
    num_replicas = strategy.num_replicas_in_sync
    if batch_size % (num_replicas * num_parts):
        devices = f"the {num_replicas} devices" if num_replicas > 1 else ""
        parts = f"gradient_accumulation_steps={num_parts}" if num_parts > 1 else ""
        raise UserError(
            f"{parameter}={batch_size} is not a multiple of {' times '.join(filter(None, (devices, parts)))}"
        )
