"""The compiled training step in JAX; for TensorFlow see `training.step`.

A step is a function of arrays: those of the variables that it changes, of those that it only reads, and of the batch.
Keras's stateless scope gives each variable its array while the step is traced. JAX sees the arrays of all devices as
one, so that a sum is over all of them; it adds what they need to exchange.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.interpreters import partial_eval
from jax.sharding import NamedSharding, PartitionSpec

from official_bert.training.step import OVERFLOW_STEPS, SKIPPED_STEPS, TrainingSteps
from official_bert.training.task import Task, TrainingPlan, WeightedSum, compares_examples

_Batch = Mapping[str, jax.Array]
_Arrays = list[jax.Array]


class JaxSteps(TrainingSteps):
    """Compiled training steps on devices that share each batch."""

    def __init__(self, task: Task, model: keras.Model, copied: NamedSharding, plan: TrainingPlan):
        """Create the optimizer; `copied` is the sharding of arrays of which each device has a copy."""
        super().__init__(task, model, plan)
        self._copied = copied
        self._trained = list(model.trainable_variables)
        self._changed = [*self._trained, *self.optimizer.variables, *self.loss_scale_state.values()]
        teacher = getattr(task, "teacher", None)
        others = [*model.non_trainable_variables, *(teacher.variables if teacher else [])]
        known = {id(variable) for variable in (*self._changed, *self._seed_states)}
        self._read = [variable for variable in others if id(variable) not in known]
        self._is_used: list[bool] = []  # whether the losses depend on each trained variable; set when traced
        self._compiled: dict[tuple, Callable] = {}  # by the shapes of a batch

    def compile(self, batches: Iterator) -> None:
        batch = next(batches)
        self._step_for(batch)
        batches.give_back(batch)

    def _run_steps(self, batches: Iterator, num_steps: int) -> np.ndarray:
        changed, read = self._arrays(self._changed), self._arrays(self._read)
        rows: list[jax.Array] = []
        try:
            while len(rows) < num_steps:
                batch = next(batches)
                changed, row = self._step_for(batch)(changed, read, batch)
                # Seen one step late, so that the devices need not wait.
                if rows and not self._goes_on(np.asarray(rows[-1])):
                    batches.give_back(batch)
                    break
                rows.append(row)
        finally:
            for variable, array in zip(self._changed, changed, strict=True):
                variable.assign(array)
        if len(rows) < num_steps:
            self.step.assign(self.step.value - 1)  # the last step does not count
        return np.stack(rows)

    def _arrays(self, variables: list[keras.Variable]) -> _Arrays:
        return [jax.device_put(variable.value, self._copied) for variable in variables]

    def _goes_on(self, row: np.ndarray) -> bool:
        name = self._passed_over
        return bool(np.isfinite(row).all()) or (name is not None and row[self._scalar_names.index(name)] > 0)

    def _step_for(self, batch: _Batch) -> Callable:
        """Return the step for batches of these shapes, compiled on the first use."""
        shapes = tuple((name, array.shape) for name, array in batch.items())
        if shapes not in self._compiled:
            changed, read = (
                [jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=self._copied) for each in variables]
                for variables in (self._changed, self._read)
            )
            step = jax.jit(self._step, donate_argnums=0, out_shardings=self._copied)
            self._compiled[shapes] = step.lower(changed, read, batch).compile()
        return self._compiled[shapes]

    def _scope(self, changed: _Arrays, read: _Arrays, part: Any = None) -> keras.StatelessScope:
        """Give the variables their arrays, and dropout the keys of a part of a step, independent of history."""
        pairs = [*zip(self._changed, changed, strict=True), *zip(self._read, read, strict=True)]
        if part is not None:
            keys = [jnp.stack([jnp.uint32(seed), part.astype(jnp.uint32)]) for seed in self._layer_seeds()]
            pairs += zip(self._seed_states, keys, strict=True)
        return keras.StatelessScope(pairs)

    def _step(self, changed: _Arrays, read: _Arrays, batch: _Batch) -> tuple[_Arrays, jax.Array]:
        """Return what the changed variables are after a step, and its scalars."""
        with self._scope(changed, read):
            rate, step = self.optimizer.learning_rate, self.step.value + 1
            scale = self._loss_scale.scale.value if self._loss_scale else 1.0
        gradients, sums = self._gradients(changed, read, batch, step)
        scalars = {**sums, "learning_rate": rate}
        gradients = [gradient / scale for gradient in gradients]
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(gradient)) for gradient in gradients))
        is_finite = jnp.isfinite(norm)
        if (limit := self.optimizer.global_clipnorm) is not None:
            gradients = [gradient * (limit / jnp.maximum(norm, limit)) for gradient in gradients]
        with self._scope(changed, read) as scope:
            for variable, gradient, is_used in zip(self._trained, gradients, self._is_used, strict=True):
                if is_used:  # as in TensorFlow, others do not even decay
                    self.optimizer.update_step(gradient, variable, rate)
            if self._loss_scale or self._skips:
                for variable, before in zip(self._changed, changed, strict=True):
                    variable.assign(jnp.where(is_finite, variable.value, before))
            if self._loss_scale:
                scalars["loss_scale"] = scale
                scalars[OVERFLOW_STEPS] = self._loss_scale.update(is_finite)
            elif self._skips:
                scalars[SKIPPED_STEPS] = ~is_finite
            self.step.assign(step)
        scalars["gradient_norm"] = norm
        self._scalar_names = list(scalars)
        row = jnp.stack([jnp.asarray(scalar, jnp.float32) for scalar in scalars.values()])
        return [scope.get_current_value(variable) for variable in self._changed], row

    def _gradients(
        self, changed: _Arrays, read: _Arrays, batch: _Batch, step: jax.Array
    ) -> tuple[_Arrays, dict[str, jax.Array]]:
        """Compute the gradients and the scalars of a batch."""
        trained, others = changed[: len(self._trained)], changed[len(self._trained) :]
        first_part = self._num_parts * step

        def scope(trained, number=None):
            return self._scope([*trained, *others], read, None if number is None else first_part + number)

        def minimized(trained, number, part, weights=None):
            with scope(trained, number):
                return self._minimized(self._model(part, training=True), part, weights)

        jaxpr = jax.make_jaxpr(lambda trained: minimized(trained, 0, batch)[0])(trained).jaxpr
        self._is_used = partial_eval.dce_jaxpr(jaxpr, [True])[1]
        if self._num_parts == 1:
            gradients, sums = jax.grad(minimized, has_aux=True)(trained, 0, batch)
        elif compares_examples(self._task):
            gradients, sums = self._cached(trained, batch, scope)
        else:
            with scope(trained):  # the weights depend only on the batch: XLA leaves the forward pass out
                weights = self._weights(self._task.losses(self._model(batch, training=False), batch))
            gradients, sums = _summed(
                lambda number, part: jax.grad(minimized, has_aux=True)(trained, number, part, weights),
                jnp.arange(self._num_parts),
                self._parts(batch),
            )
        return gradients, {**sums, **self._counts_of(batch)}

    def _cached(
        self, trained: _Arrays, batch: _Batch, scope: Callable[..., keras.StatelessScope]
    ) -> tuple[_Arrays, dict[str, jax.Array]]:
        """Compute the gradients of losses that compare the examples of all parts, as `TensorFlowSteps` does."""

        def outputs_of(trained, number, part):
            with scope(trained, number):
                return self._model(part, training=True)

        def minimized(outputs):
            with scope(trained):
                return self._minimized(jax.tree.map(lambda each: each.reshape(-1, *each.shape[2:]), outputs), batch)

        numbered = jnp.arange(self._num_parts), self._parts(batch)
        outputs = jax.lax.map(lambda each: outputs_of(trained, *each), numbered)
        upstream, sums = jax.grad(minimized, has_aux=True)(outputs)

        def of_part(number, part, gradients):
            return jax.vjp(lambda trained: outputs_of(trained, number, part), trained)[1](gradients)[0]

        return _summed(of_part, *numbered, upstream), sums

    def _parts(self, batch: _Batch) -> dict[str, jax.Array]:
        """Split a batch into its parts, [B, ...] to [parts, B / parts, ...]; each device has a share of every part."""
        shares = NamedSharding(self._copied.mesh, PartitionSpec(None, *self._copied.mesh.axis_names))
        return {
            name: jax.lax.with_sharding_constraint(array.reshape(self._num_parts, -1, *array.shape[1:]), shares)
            for name, array in batch.items()
        }

    @staticmethod
    def _weights(losses: Mapping[str, WeightedSum]) -> dict[str, Any]:
        return {name: jax.lax.stop_gradient(loss.weight) for name, loss in losses.items()}


def _summed(function: Callable, *arguments: Any) -> Any:
    """Sum the results of a function of the parts, computed in turn."""
    zeros = jax.tree.map(
        lambda each: jnp.zeros(each.shape, each.dtype),
        jax.eval_shape(function, *jax.tree.map(lambda each: each[0], arguments)),
    )
    return jax.lax.scan(lambda total, part: (jax.tree.map(jnp.add, total, function(*part)), None), zeros, arguments)[0]
