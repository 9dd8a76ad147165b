"""The compiled training step in TensorFlow, looped on the device; for JAX see `training.jax_step`."""

from collections.abc import Callable, Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf

from official_bert.optimization import replicas
from official_bert.training.step import OVERFLOW_STEPS, SKIPPED_STEPS, TrainingSteps
from official_bert.training.task import Task, TrainingPlan, WeightedSum, compares_examples


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
