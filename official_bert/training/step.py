"""A training step on any engine: the weights that it trains, its optimizer, its losses and their scale.

`tensorflow_step` and `jax_step` compile it.
"""

import abc
import re
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from official_bert.checkpoints.bundle import GLOBAL_STEP, LOSS_SCALE, NUM_EXAMPLES
from official_bert.modeling.token_model import ENCODER_SCOPE
from official_bert.optimization.optimizers import create_optimizer, layers_of, slots_by_name
from official_bert.optimization.schedules import create_schedule
from official_bert.support.errors import UserError
from official_bert.training.task import Task, TrainingPlan, WeightedSum

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
