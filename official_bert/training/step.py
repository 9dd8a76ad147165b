"""A training step: what it is on any engine, `TrainingSteps`, and compiled by TensorFlow, looped on the device.

`TrainingSteps` has the weights that a step trains, its optimizer, its losses and their scale. For JAX see `jax_step`.
"""

import abc
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from official_bert.checkpoints.bundle import GLOBAL_STEP, LOSS_SCALE, NUM_EXAMPLES
from official_bert.modeling.token_model import ENCODER_SCOPE
from official_bert.optimization import replicas
from official_bert.optimization.optimizers import create_optimizer, layers_of, slots_by_name
from official_bert.optimization.schedules import create_schedule
from official_bert.support.errors import UserError
from official_bert.training.task import Task, TrainingPlan, WeightedSum, compares_examples

INITIAL_SCALE, MIN_SCALE = 2.0**15, 1.0
STEPS_TO_DOUBLE = 2000  # consecutive finite steps
_POOLER = f"{ENCODER_SCOPE}/pooler/"
_BIAS = re.compile(r"/(bias|beta)$")
OVERFLOW_STEPS, SKIPPED_STEPS = "overflow_steps", "skipped_steps"
_SEED_STATE = "seed_generator_state"  # Keras's name for the state of a dropout layer
_MAX_SEED = 2**31 - 2  # Keras takes seeds modulo this number


class LossScale:
    """A loss factor: see "Mixed Precision Training", section 3.2."""

    def __init__(self):
        """Create the state; call in the scope of the devices."""
        # All devices compute the same values.
        options = {"trainable": False, "aggregation": "only_first_replica"}
        self.scale = keras.Variable(INITIAL_SCALE, dtype="float32", name="loss_scale", **options)  # the factor
        self._good_steps = keras.Variable(0, dtype="int", name="good_steps", **options)
        # the checkpointed variables, by name
        self.state = {f"{LOSS_SCALE}scale": self.scale, f"{LOSS_SCALE}good_steps": self._good_steps}

    def update(self, is_finite: Any) -> Any:
        """Update the scale after a step, whether its gradients were finite; return whether they overflowed."""
        scale, good_steps = ops.convert_to_tensor(self.scale), self._good_steps + 1
        is_overflow = ops.logical_and(ops.logical_not(is_finite), scale > MIN_SCALE)
        doubles = ops.logical_and(is_finite, good_steps >= STEPS_TO_DOUBLE)
        keeps_counting = ops.logical_and(is_finite, ops.logical_not(doubles))
        self._good_steps.assign(ops.where(keeps_counting, good_steps, 0))
        self.scale.assign(ops.where(is_overflow, scale / 2, ops.where(doubles, scale * 2, scale)))
        return is_overflow


def freeze(model: keras.Model, *, num_trained_layers: int | None, train_only: str | None) -> None:
    """Freeze an encoder's weights that are not selected; biases alone: Ben Zaken et al., "BitFit", 2022."""
    weights = [weight for weight in model.trainable_weights if weight.path.startswith(f"{ENCODER_SCOPE}/")]
    layers, first = [None] * len(weights), None
    if num_trained_layers is not None:
        given = f"train_layers=last:{num_trained_layers}"
        layers = layers_of([weight.path for weight in weights], given)
        num_layers = 1 + max(layer for layer in layers if layer is not None)
        first = num_layers - num_trained_layers
        if first < 0:
            raise UserError(f"{given}: the model has only {num_layers} layers")
    for weight, layer in zip(weights, layers, strict=True):
        is_in_layers = first is None or weight.path.startswith(_POOLER) or (layer is not None and layer >= first)
        weight.trainable = is_in_layers and (train_only is None or _BIAS.search(weight.path) is not None)


class TrainingSteps(abc.ABC):
    """The steps of a training, with their state except the weights."""

    def __init__(self, task: Task, model: keras.Model, plan: TrainingPlan):
        """Freeze the weights that the plan does not train, and create the optimizer; in the scope of the devices."""
        self._task = task
        self._model = model
        self._seed = plan.random_seed
        self._num_parts = plan.gradient_accumulation_steps
        self._skips = plan.nan_policy == "skip"
        if plan.num_trained_layers is not None or plan.train_only is not None:
            freeze(model, num_trained_layers=plan.num_trained_layers, train_only=plan.train_only)
        schedule = create_schedule(
            plan.lr_schedule,
            plan.learning_rate,
            num_train_steps=plan.num_train_steps,
            num_warmup_steps=plan.num_warmup_steps,
            end_learning_rate=plan.end_learning_rate,
        )
        self.optimizer = create_optimizer(plan.optimizer, schedule, model, plan.optimizer_options)
        self._loss_scale = LossScale() if model.compute_dtype == "float16" else None
        self.step = self.optimizer.iterations  # variable, number of steps taken, counted by the optimizer
        # loss scaling variables by name; empty except in float16
        self.loss_scale_state = self._loss_scale.state if self._loss_scale else {}
        self.slots = slots_by_name(self.optimizer, model.trainable_variables)  # optimizer variables by name
        self._batch_size, self._num_train_steps = plan.train_batch_size, plan.num_train_steps
        # the steps and, for variable batch sizes, the examples
        self.counts = {GLOBAL_STEP: self.step}
        if self._batch_size is None:
            self.counts[NUM_EXAMPLES] = HostNumber()
        self._seed_states = [state for state in model.non_trainable_variables if state.path.endswith(_SEED_STATE)]
        self._scalar_names: list[str] = []  # set when the step is traced

    @property
    def num_examples(self) -> int:
        """Number of examples used so far, over all epochs."""
        if self._batch_size is None:
            return int(self.counts[NUM_EXAMPLES].value)
        return int(self.step.numpy()) * self._batch_size

    @abc.abstractmethod
    def compile(self, batches: Iterator) -> None:
        """Compile the step ahead of the first `take`, without running it."""

    def take(self, batches: Iterator, num_steps: int) -> dict[str, np.ndarray]:
        """Run steps in one call, until one is not finite and not passed over; return name to float [steps]."""
        history = self._run_steps(batches, num_steps)
        columns = {name: history[:, column] for column, name in enumerate(self._scalar_names)}
        if self._batch_size is None:
            examples = self.counts[NUM_EXAMPLES]
            examples.assign(examples.value + columns["examples"].sum(dtype=np.int64))
        return columns

    @abc.abstractmethod
    def _run_steps(self, batches: Iterator, num_steps: int) -> np.ndarray:
        """Run steps; return their scalars, float32 [steps, len(self._scalar_names)]."""

    @property
    def _passed_over(self) -> str | None:
        """The name of the scalar that is 1 after a step that changed nothing and that training continues after."""
        return next((name for name in (OVERFLOW_STEPS, SKIPPED_STEPS) if name in self._scalar_names), None)

    def _counts_of(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is counted in the examples of a batch, float32 scalars."""
        mask = batch.get("input_mask", ops.zeros([0]))  # precomputed features have no tokens
        counts = {"tokens": ops.sum(mask), "positions": ops.size(mask)}
        if self._batch_size is None:
            counts["examples"] = ops.shape(next(iter(batch.values())))[0]
        return {name: ops.cast(count, "float32") for name, count in counts.items()}

    def _minimized(
        self, outputs: Any, batch: Mapping[str, Any], weights: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Return what is minimized, and the scalars; of a part of a batch, `weights` are those of all of it."""
        losses = self._task.losses(outputs, batch)
        weights = weights or self._weights(losses)
        # The contribution of these examples to each mean over the whole batch.
        means = {
            name: ops.divide_no_nan(loss.total, weights[name]) * self._factor(loss) for name, loss in losses.items()
        }
        total = sum(means.values())
        minimized = total * ops.convert_to_tensor(self._loss_scale.scale) if self._loss_scale else total
        return minimized, {"loss": total, **{f"{name}_loss": mean for name, mean in means.items()}}

    def _factor(self, loss: WeightedSum) -> Any:
        num_steps = int(self._num_train_steps * loss.rise)
        return ops.minimum(ops.cast(self.step, "float32") / num_steps, 1.0) ** 2 if num_steps else 1.0

    @abc.abstractmethod
    def _weights(self, losses: Mapping[str, WeightedSum]) -> dict[str, Any]:
        """Return the weight of each loss over all devices, as a constant of the gradients."""

    def _layer_seeds(self) -> list[int]:
        """Derive a seed of each layer's dropout from that of the run; the part of a step is the other half of a key."""
        return [(self._seed + index * 1_000_003) % _MAX_SEED for index in range(len(self._seed_states))]


class HostNumber:
    """An int64 number that is saved with a checkpoint, but not needed on the devices."""

    shape = ()

    def __init__(self):
        self.value = np.int64(0)

    def assign(self, value: Any) -> None:
        self.value = np.int64(value)

    def numpy(self) -> np.int64:
        return self.value


class TensorFlowSteps(TrainingSteps):
    """Compiled training steps on the devices of a strategy."""

    def __init__(self, task: Task, model: keras.Model, strategy: tf.distribute.Strategy, plan: TrainingPlan):
        with strategy.scope():
            super().__init__(task, model, plan)
        self._strategy = strategy
        step = self._replica_step
        self._step_function = tf.function(step, jit_compile=True, autograph=False) if plan.use_xla else step

    def compile(self, batches: Iterator) -> None:
        self._loop.get_concrete_function(batches, tf.constant(1))

    def _run_steps(self, batches: Iterator, num_steps: int) -> np.ndarray:
        return self._loop(batches, tf.constant(num_steps)).numpy()

    @tf.function(reduce_retracing=True)
    def _loop(self, batches, num_steps):
        history = tf.TensorArray(tf.float32, size=num_steps)
        num_taken = 0
        is_finite = True
        while num_taken < num_steps and is_finite:
            scalars = self._strategy.run(self._step_function, args=(next(batches), self.step + 1))
            row = self._strategy.experimental_local_results(scalars)[0]  # every replica holds the same sums
            history = history.write(num_taken, row)
            num_taken += 1
            is_finite = tf.reduce_all(tf.math.is_finite(row)) | self._is_passed_over(row)
        return history.stack()[:num_taken]

    @tf.autograph.experimental.do_not_convert
    def _replica_step(self, batch: Mapping[str, tf.Tensor], step: tf.Tensor) -> tf.Tensor:
        """Run one step on one replica; `step` counts from 1."""
        gradients, sums = self._gradients(batch, step)
        # The rate that `take_step` reads, too: the optimizer has not counted this step yet.
        scalars = {**replicas.sum_over_replicas(sums), "learning_rate": self.optimizer.learning_rate}
        scale = tf.constant(1.0) if self._skips else None
        if self._loss_scale:
            scale = scalars["loss_scale"] = tf.convert_to_tensor(self._loss_scale.scale.value)
        norm = replicas.take_step(self.optimizer, self._model.trainable_variables, gradients, gradient_scale=scale)
        if self._loss_scale:
            scalars[OVERFLOW_STEPS] = tf.cast(self._loss_scale.update(tf.math.is_finite(norm)), tf.float32)
        elif self._skips:
            scalars[SKIPPED_STEPS] = tf.cast(~tf.math.is_finite(norm), tf.float32)
        scalars["gradient_norm"] = norm
        self._scalar_names = list(scalars)
        return tf.stack(list(scalars.values()))

    @tf.autograph.experimental.do_not_convert
    def _is_passed_over(self, row: tf.Tensor) -> tf.Tensor:
        """Return True if a step with these scalars changed nothing and training should continue."""
        name = self._passed_over
        return tf.constant(False) if name is None else row[self._scalar_names.index(name)] > 0

    def _gradients(
        self, batch: Mapping[str, tf.Tensor], step: tf.Tensor
    ) -> tuple[list[tf.Tensor | None], dict[str, tf.Tensor]]:
        """Compute this replica's gradients and scalars; both must be summed over replicas."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        first_part = self._num_parts * (step * self._strategy.num_replicas_in_sync + tf.cast(replica, tf.int64))
        if self._num_parts == 1:
            gradients, sums = self._gradients_of_part(batch, first_part)
        else:
            accumulate = self._cached if compares_examples(self._task) else self._accumulated
            gradients, sums = accumulate(batch, first_part)
        return gradients, {**sums, **self._counts_of(batch)}

    def _accumulated(
        self, batch: Mapping[str, tf.Tensor], first_part: tf.Tensor
    ) -> tuple[list[tf.Tensor | None], dict[str, tf.Tensor]]:
        """Accumulate `_gradients_of_part` over the parts of a batch."""
        # The loss weights depend only on the batch: TensorFlow prunes the unused forward pass.
        weights = self._weights(self._task.losses(self._model(batch, training=False), batch))
        no_sums = dict.fromkeys(["loss", *(f"{name}_loss" for name in weights)], tf.constant(0.0))

        def of_part(part, number):
            return self._gradients_of_part(part, first_part + number, weights)

        return self._sum_over_parts(self._parts(batch), of_part, no_sums)

    def _cached(
        self, batch: Mapping[str, tf.Tensor], first_part: tf.Tensor
    ) -> tuple[list[tf.Tensor | None], dict[str, tf.Tensor]]:
        """Compute the gradients of losses that compare the examples of all parts of a batch.

        The outputs of all parts are computed first, then the gradients of the losses with respect to the outputs, and
        last, part by part once more, the gradients of the variables: only the outputs are stored in between.

        Source: Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup" (2021).
        """
        parts = self._parts(batch)

        def outputs_of_part(part, number):
            with keras.StatelessScope(self._dropout_seeds(first_part + tf.cast(number, tf.int64))):
                return self._model(part, training=True)

        outputs = tf.map_fn(
            lambda number: tf.nest.map_structure(
                tf.stop_gradient, outputs_of_part({name: tensor[number] for name, tensor in parts.items()}, number)
            ),
            tf.range(self._num_parts),
            fn_output_signature=tf.nest.map_structure(
                lambda output: tf.TensorSpec([None, *output.shape[1:]], output.dtype),
                self._model(batch, training=False),  # TensorFlow prunes the computation: only shapes are read
            ),
            parallel_iterations=1,
        )
        outputs = tf.nest.map_structure(lambda output: tf.concat(tf.unstack(output, self._num_parts), 0), outputs)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(tf.nest.flatten(outputs))
            minimized, sums = self._minimized(outputs, batch)
        upstream = tape.gradient(minimized, tf.nest.flatten(outputs), unconnected_gradients="zero")
        upstream = [tf.stack(tf.split(gradient, self._num_parts)) for gradient in upstream]
        variables = [variable.value for variable in self._model.trainable_variables]

        def of_part(part, number):
            with tf.GradientTape() as tape:
                outputs = tf.nest.flatten(outputs_of_part(part, number))
            return tape.gradient(outputs, variables, [gradient[number] for gradient in upstream]), {}

        gradients, _ = self._sum_over_parts(parts, of_part, {})
        return gradients, sums

    def _parts(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Split a batch into its parts, [B, ...] to [parts, B / parts, ...]."""
        return {
            name: tf.reshape(tensor, [self._num_parts, -1, *tensor.shape[1:]])
            if tensor.shape[1:].is_fully_defined()
            else tf.reshape(tensor, tf.concat([[self._num_parts, -1], tf.shape(tensor)[1:]], axis=0))
            for name, tensor in batch.items()
        }

    def _sum_over_parts(
        self, parts: Mapping[str, tf.Tensor], of_part: Callable, no_sums: Mapping[str, tf.Tensor]
    ) -> tuple[list[tf.Tensor | None], dict[str, tf.Tensor]]:
        """Sum the gradients, None if no loss depends on a variable, and the scalars of `of_part(part, number)`."""
        unused: set[int] = set()

        # Inside two nested loops, TensorFlow's graph optimizer turns sums into temporary variables that it then
        # confuses; it does not touch a function that is not inlined.
        @tf.function(experimental_attributes={"_noinline": True}, autograph=False)
        def dense_of_part(part, number):
            gradients, sums = of_part(part, number)
            return replicas.dense(gradients), sums  # XLA needs the shape of sparse gradients, which calls hide

        def add_part(number, gradients, sums):
            part = {name: tensor[number] for name, tensor in parts.items()}
            added, added_sums = dense_of_part(part, tf.cast(number, tf.int64))
            unused.update(index for index, gradient in enumerate(added) if gradient is None)
            gradients = [
                total if gradient is None else total + gradient
                for total, gradient in zip(gradients, added, strict=True)
            ]
            return number + 1, gradients, {name: total + added_sums[name] for name, total in sums.items()}

        zeros = [tf.zeros_like(variable.value) for variable in self._model.trainable_variables]
        _, gradients, sums = tf.while_loop(
            lambda number, *_: number < self._num_parts,
            add_part,
            (tf.constant(0), zeros, dict(no_sums)),
            parallel_iterations=1,  # running two parts in parallel would need the memory of both
        )
        return [None if index in unused else gradient for index, gradient in enumerate(gradients)], sums

    def _gradients_of_part(
        self, batch: Mapping[str, tf.Tensor], part: tf.Tensor, weights: Mapping[str, tf.Tensor] | None = None
    ) -> tuple[list[tf.Tensor | tf.IndexedSlices | None], dict[str, tf.Tensor]]:
        """Compute the gradients and the losses of some examples."""
        with tf.GradientTape() as tape:
            with keras.StatelessScope(self._dropout_seeds(part)):
                outputs = self._model(batch, training=True)
            minimized, sums = self._minimized(outputs, batch, weights)
        return tape.gradient(minimized, [variable.value for variable in self._model.trainable_variables]), sums

    @staticmethod
    def _weights(losses: Mapping[str, WeightedSum]) -> dict[str, tf.Tensor]:
        return replicas.sum_over_replicas({name: tf.stop_gradient(loss.weight) for name, loss in losses.items()})

    def _dropout_seeds(self, part: tf.Tensor) -> list[tuple[keras.Variable, tf.Tensor]]:
        """Return keys that depend on the layer and the part of a step, but not on history."""
        keys = [tf.stack([tf.constant(seed, tf.int64), part]) for seed in self._layer_seeds()]
        return list(zip(self._seed_states, keys, strict=True))
