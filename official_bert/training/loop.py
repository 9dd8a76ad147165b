"""`Trainer`: trains, evaluates and predicts with any task on any distribution strategy."""

import time
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints.bundle import GLOBAL_STEP, UNLOGGED_STEPS, CheckpointReader
from official_bert.checkpoints.folder import CheckpointFolder
from official_bert.checkpoints.loading import LoadReport, load_initial, restore, restore_present
from official_bert.data.pipeline import IS_REAL_EXAMPLE, RECORD_INDEX
from official_bert.support import writing
from official_bert.support.errors import UserError
from official_bert.support.fault_points import fault_point
from official_bert.support.progress import Progress
from official_bert.training.cluster import Cluster
from official_bert.training.plan import TrainingPlan
from official_bert.training.save_requests import SaveRequests
from official_bert.training.sigterm import SigtermNotice, Terminated
from official_bert.training.step import OVERFLOW_STEPS, SKIPPED_STEPS, TrainingSteps
from official_bert.training.summaries import ScalarLog
from official_bert.training.task import Task

# On CPU and GPU a compiled call is cut to about this long, so that progress is shown and SIGTERM is handled in time.
_SECONDS_PER_CALL = 1.0
# Of records whose vectors at every position are in memory together.
_RECORDS_AT_ONCE, _BYTES_AT_ONCE = 512, 2**30
_COMPUTED = "computed"
_MOST_FAILURES = 20  # steps in a row that nan_policy passes over
_SECONDS_BETWEEN_LOG_LINES = 30  # without a terminal, where steps are too slow for `log_steps` to show life


class Trainer:
    """A task's model on a strategy's devices.

    Attributes:
      model: the model; its weights are random until training or `restore` sets them.
      num_replicas: the devices that share a batch.
      cluster: the processes that train together; one as a rule.
    """

    def __init__(self, task: Task, strategy: tf.distribute.Strategy, *, seed: int, use_xla: bool = False):
        """Builds the model.

        Args:
          task: what to learn.
          strategy: where to compute.
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
        """Trains from the last checkpoint of the output folder, or from the start if there is none.

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
        writing.make_folders(output_dir)
        folder = CheckpointFolder(output_dir, keep_max=plan.keep_checkpoint_max)
        # Workers stop together, between two steps: none may leave the others alone at something else.
        requests = SaveRequests(save_seconds=plan.save_checkpoints_secs, max_seconds=plan.max_train_seconds)
        with SigtermNotice(may_raise=self.cluster.num_workers == 1) as sigterm, requests:
            try:
                is_over = self._train(
                    plan, batches, folder, ScalarLog(output_dir), init_checkpoint, evaluate, sigterm, requests
                )
            except KeyboardInterrupt:
                if folder.latest:
                    logging.info("interrupted; the same command resumes from %s", folder.latest)
                raise
            is_terminated = self.cluster.is_any(sigterm.is_set)
            if is_terminated or not is_over:
                reason = "SIGTERM" if is_terminated else f"max_train_seconds={plan.max_train_seconds:g}"
                logging.info("%s: stopped; the same command resumes from %s", reason, folder.latest)
                return False
            return True

    def _train(
        self,
        plan: TrainingPlan,
        batches: Callable[[int], tf.data.Dataset],
        folder: CheckpointFolder,
        scalar_log: ScalarLog,
        init_checkpoint: str | None,
        evaluate: Callable[[int], bool] | None,
        sigterm: SigtermNotice,
        requests: SaveRequests,
    ) -> bool:
        """Trains; returns whether training reached its end."""
        steps = TrainingSteps(self._task, self.model, self._strategy, plan)
        window = _Window(plan.batch_size)
        if folder.latest:
            folder.tidy()
            restore(folder.latest, self.model.weights, {**steps.slots, GLOBAL_STEP: steps.step})
            window.restore(folder.latest)
            restore_present(folder.latest, steps.loss_scale_state)
            logging.info("resuming from %s", folder.latest)
        else:
            if init_checkpoint:
                self.load_initial(init_checkpoint)
            self._save(folder, steps, window)
        start = int(steps.step.numpy())
        scalar_log.forget_after(start)
        if start and _is_evaluated(plan, start, evaluate) and _evaluate(evaluate, start, sigterm):
            return True
        if start >= plan.num_train_steps:
            logging.warning(
                "%s exists already: nothing left to train up to step %d", folder.latest, plan.num_train_steps
            )
            return True

        logging.info(
            "training %s parameters from step %d to %d on %d device(s)",
            f"{sum(int(np.prod(variable.shape)) for variable in self.model.trainable_variables):,}",
            start,
            plan.num_train_steps,
            self.num_replicas,
        )
        logging.info("compiling the training step; this may take a minute")
        try:
            with sigterm.raised():
                iterator = iter(self.cluster.distribute(batches(steps.num_examples)))
                steps.compile(iterator)
        except Terminated:
            return False  # the last checkpoint is of this very step
        with Progress(
            "training", plan.num_train_steps, "steps", start=start, log_every_seconds=_SECONDS_BETWEEN_LOG_LINES
        ) as progress:
            return self._loop(plan, steps, iterator, folder, scalar_log, window, progress, sigterm, requests, evaluate)

    def _loop(
        self,
        plan: TrainingPlan,
        steps: TrainingSteps,
        iterator: Iterator,
        folder: CheckpointFolder,
        scalar_log: ScalarLog,
        window: "_Window",
        progress: Progress,
        sigterm: SigtermNotice,
        requests: SaveRequests,
        evaluate: Callable[[int], bool] | None,
    ) -> bool:
        """Takes the steps; returns whether training reached its end."""
        step = int(steps.step.numpy())
        pace = _Pace(plan.iterations_per_loop, is_cut_short=not isinstance(self._strategy, tf.distribute.TPUStrategy))
        intervals = [plan.log_steps, plan.save_checkpoints_steps] + ([plan.eval_steps] if evaluate else [])
        is_over, is_stopped = False, self.cluster.is_any(sigterm.is_set)
        failures = _Failures(plan.nan_policy)
        while not is_over and not is_stopped:
            event = min(_next_multiple(step, every) for every in intervals)
            num_steps = min(self.cluster.of_chief(pace.num_steps), event - step, plan.num_train_steps - step)
            began = time.monotonic()
            history = steps.take(iterator, num_steps)
            seconds = time.monotonic() - began
            step = int(steps.step.numpy())
            fault_point("step")
            window.add(history, None if pace.is_first_call else seconds)
            if pace.is_first_call:
                progress.restart(step)
            pace.add(num_steps, seconds)
            is_overflow = history.get(OVERFLOW_STEPS, [0])[-1]
            is_rolled_back = failures.add(step, history, folder.latest)
            if is_rolled_back:
                steps.roll_back(folder.latest)
                window = _Window(plan.batch_size)
            is_over = step == plan.num_train_steps
            is_logged = is_over or step % plan.log_steps == 0
            scalars = window.scalars() if window.num_steps else {}
            progress.update(step, *_describe(step, scalars), log=is_logged)
            if is_logged and scalars:
                if skipped := scalars.get(SKIPPED_STEPS):
                    logging.warning(
                        "step %d: skipped %d of the %d steps since the last line, whose gradients were not finite",
                        step,
                        skipped,
                        window.num_steps,
                    )
                if is_overflow and scalars[OVERFLOW_STEPS] == window.num_steps:
                    logging.warning(
                        "step %d: all %d steps since the last line overflowed in float16 and changed nothing; if that "
                        "goes on, use mixed_precision=bfloat16 or a lower learning_rate",
                        step,
                        window.num_steps,
                    )
                scalar_log.write("train", step, scalars)
                window = _Window(plan.batch_size)
            if _is_evaluated(plan, step, evaluate):
                progress.clear()
                is_over = _evaluate(evaluate, step, sigterm) or is_over
            # Last, since a checkpoint vouches for all that was written of its step.
            stops, saves = self.cluster.sums(
                int(sigterm.is_set or (self.cluster.is_chief and requests.is_over)),
                int(requests.is_due if self.cluster.is_chief else requests.is_signalled),
            )
            is_stopped = stops > 0
            if is_over or is_stopped or saves or is_rolled_back or step % plan.save_checkpoints_steps == 0:
                progress.clear()
                self._save(folder, steps, window)
                requests.note_saved()
        return is_over

    def _save(self, folder: CheckpointFolder, steps: TrainingSteps, window: "_Window") -> None:
        step = int(steps.step.numpy())
        state = {**steps.slots, **steps.loss_scale_state, GLOBAL_STEP: steps.step, **window.arrays()}
        prefix = folder.save(step, {**self._weights(), **state})
        logging.info("saved %s", prefix)

    def save_weights(self, folder: CheckpointFolder, step: int) -> str:
        """Saves a checkpoint without optimizer state; returns its prefix."""
        return folder.save(step, {**self._weights(), GLOBAL_STEP: np.int64(step)})

    def _weights(self) -> dict[str, tf.Tensor]:
        return {variable.path: variable.value for variable in self.model.weights}

    def load_initial(self, path: str) -> LoadReport:
        """Sets the weights from an initial checkpoint, logs and returns what came; see `checkpoints.loading`."""
        report = load_initial(path, self.model.weights, required=lambda name: name.startswith("bert/"))
        report.log()
        return report

    def restore(self, path: str) -> int:
        """Sets the weights from a checkpoint of a run, without optimizer state.

        Args:
          path: the checkpoint's prefix.

        Returns:
          Its step.

        Raises:
          UserError: it does not fit, or the workers restore checkpoints of different steps.
        """
        step = tf.Variable(0, dtype=tf.int64, trainable=False)
        restore(path, self.model.weights, {GLOBAL_STEP: step})
        self.cluster.check_same("last checkpoints, as while another run trains", int(step.numpy()))
        return int(step.numpy())

    def predict(
        self, batches: tf.data.Dataset, *, num_records: int, label: str = "predicting"
    ) -> dict[str, np.ndarray]:
        """Computes the task's predictions of every record.

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
        """Computes anything else of every record; as `predict`, with a function from a batch to tensors [B, ...]."""
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
        """Computes something of every record that would be too much to have at once, such as a vector per position.

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
        """Compiles a function of a batch; concatenates the results of the replicas, with what identifies the rows."""

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
        """What is computed of each batch, without the examples that fill it up."""
        dataset = self.cluster.distribute(batches)
        traced_once = compiled.get_concrete_function(dataset.element_spec)  # for batches of all lengths
        for batch in dataset:
            part = {name: value.numpy() for name, value in traced_once(batch).items()}
            fault_point("batch")
            is_real = part.pop(IS_REAL_EXAMPLE) == 1
            yield {name: value[is_real] for name, value in part.items()}


def check_divisible(batch_size: int, strategy: tf.distribute.Strategy, parameter: str, *, num_parts: int = 1) -> None:
    """Raises unless the replicas of a strategy can share a batch evenly.

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


class _Pace:
    """Chooses how many steps the next compiled call takes.

    Attributes:
      num_steps: how many.
      is_first_call: whether the next call is the one that compiles, whose time says nothing about the speed.
    """

    def __init__(self, limit: int, *, is_cut_short: bool):
        self._limit = limit
        self._is_cut_short = is_cut_short
        self.num_steps = 1 if is_cut_short else limit
        self.is_first_call = True

    def add(self, num_steps: int, seconds: float) -> None:
        """Learns from a call; grows slowly."""
        self.is_first_call = False
        if self._is_cut_short:
            fitting = int(_SECONDS_PER_CALL * num_steps / seconds)
            self.num_steps = max(1, min(self._limit, fitting, 2 * self.num_steps))


class _Failures:
    """Decides what follows from steps whose loss or gradients are not finite; `policy` as in `TrainingPlan`."""

    def __init__(self, policy: str):
        self._policy = policy
        self._num_in_a_row = 0

    def add(self, step: int, history: dict[str, np.ndarray], latest: str) -> bool:
        """Looks at the steps of a call, which such a step ends unless it was skipped.

        Args:
          step: the last of them.
          history: their scalars.
          latest: the last checkpoint.

        Returns:
          Whether to go back to the weights of the last checkpoint.

        Raises:
          UserError: training is to stop.
        """
        if history.get(OVERFLOW_STEPS, [0])[-1]:
            return False  # a smaller scale of the loss comes next
        is_skipped = history.get(SKIPPED_STEPS, np.zeros(1)) > 0
        is_failed = not is_skipped[-1] and not all(np.isfinite(values[-1]) for values in history.values())
        last_taken = max(np.flatnonzero(~is_skipped), default=-1)
        if last_taken >= 0 and not is_failed:
            self._num_in_a_row = 0
        self._num_in_a_row += len(is_skipped) - 1 - int(last_taken) + is_failed
        if not is_failed and self._num_in_a_row <= _MOST_FAILURES:
            return False
        loss = f"loss {history['loss'][-1]} and gradient norm {history['gradient_norm'][-1]} at step {step}"
        if self._policy == "rollback" and self._num_in_a_row <= _MOST_FAILURES:
            logging.warning("%s: back to the weights of %s, and on with the next batch", loss, latest)
            return True
        times = f", for the {self._num_in_a_row}th time in a row" if self._num_in_a_row > 1 else ""
        raise UserError(
            f"{loss}{times}; the last good checkpoint is {latest}; try a lower learning_rate or a longer warm-up"
        )


class _Window:
    """Averages over the steps since the last log line."""

    def __init__(self, batch_size: int | None):
        self._batch_size = batch_size
        self._histories: list[dict[str, np.ndarray]] = []
        self._timed_examples = 0.0
        self._timed_tokens = 0.0
        self._seconds = 0.0

    @property
    def num_steps(self) -> int:
        """How many steps there are."""
        return sum(len(history["tokens"]) for history in self._histories)

    def restore(self, prefix: str) -> None:
        """Begins with the steps that a checkpoint was saved with, should it lie between two log lines."""
        reader = CheckpointReader(prefix)
        columns = {name: reader.read(name) for name in reader.shapes if name.startswith(UNLOGGED_STEPS)}
        if columns:
            self._histories = [{name.removeprefix(UNLOGGED_STEPS): values for name, values in columns.items()}]

    def arrays(self) -> dict[str, np.ndarray]:
        """The steps, for a checkpoint; none if it lies at a log line, as most do."""
        return {f"{UNLOGGED_STEPS}{name}": values for name, values in self._columns().items()}

    def _columns(self) -> dict[str, np.ndarray]:
        names = self._histories[-1] if self._histories else {}
        # The steps of a run that was resumed with another precision may lack one.
        return {name: np.concatenate([part[name] for part in self._histories if name in part]) for name in names}

    def add(self, history: dict[str, np.ndarray], seconds: float | None) -> None:
        """Adds the steps of a call; `seconds` is None if its time does not count."""
        self._histories.append(history)
        if seconds is not None:
            num_steps = len(history["tokens"])
            self._timed_examples += self._batch_size * num_steps if self._batch_size else np.sum(history["examples"])
            self._timed_tokens += float(np.sum(history["tokens"]))
            self._seconds += seconds

    def scalars(self) -> dict[str, float]:
        """Means of the losses and the gradient norm, the last learning rate, and the speed once it is known.

        `padding` is the share of the positions of all batches that hold no token.

        In float16 also the last scale of the loss, and the number of steps that overflowed; with steps that may be
        skipped, their number. Gradient norms and losses of these are left out where they are not finite.
        """
        columns = self._columns()
        tokens, positions = columns.pop("tokens"), columns.pop("positions", np.zeros(0))
        columns.pop("examples", None)
        last = {name: float(columns.pop(name)[-1]) for name in ("learning_rate", "loss_scale") if name in columns}
        names = (OVERFLOW_STEPS, SKIPPED_STEPS)
        counts = {name: float(np.sum(columns.pop(name))) for name in names if name in columns}
        finite = {name: values[np.isfinite(values)] for name, values in columns.items()}
        scalars = {name: float(np.mean(values)) for name, values in finite.items() if len(values)} | last | counts
        if num_positions := float(np.sum(positions)):
            # The first steps of a window lack it if the version that saved their checkpoint did not count positions.
            scalars["padding"] = 1 - float(np.sum(tokens[-len(positions) :])) / num_positions
        if self._timed_examples:
            scalars["examples_per_second"] = float(self._timed_examples) / self._seconds
            if self._timed_tokens:  # what a frozen encoder computed before has none
                scalars["tokens_per_second"] = self._timed_tokens / self._seconds
        return scalars


def _is_evaluated(plan: TrainingPlan, step: int, evaluate: Callable[[int], bool] | None) -> bool:
    return evaluate is not None and (step == plan.num_train_steps or step % plan.eval_steps == 0)


def _evaluate(evaluate: Callable[[int], bool], step: int, sigterm: SigtermNotice) -> bool:
    """Whether to stop early; not after SIGTERM, when the next start evaluates this step."""
    try:
        with sigterm.raised():
            return evaluate(step)
    except Terminated:
        return False


def _next_multiple(step: int, every: int) -> int:
    return (step // every + 1) * every


def _describe(step: int, scalars: dict[str, float]) -> list[str]:
    """What the progress shows beside the time left, the most important first."""
    texts = {
        "loss": "step {step:,}: loss {value:.4f}",
        "examples_per_second": "{value:,.0f} examples/s",
        "learning_rate": "learning rate {value:.2e}",
        "gradient_norm": "gradient norm {value:.2f}",
        "tokens_per_second": "{value:,.0f} tokens/s",
        "loss_scale": "loss scale {value:,.0f}",
    }
    shown = [text.format(step=step, value=scalars[name]) for name, text in texts.items() if name in scalars]
    losses = [(name.removesuffix("_loss"), value) for name, value in scalars.items() if name.endswith("_loss")]
    if len(losses) == 1:  # it is the loss that is shown already
        return shown
    return shown + [f"{name} {value:.4f}" for name, value in losses]
