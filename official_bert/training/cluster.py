"""The worker processes of `MultiWorkerMirroredStrategy`, and checks that they agree."""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from absl import logging

from official_bert.support import files, writing
from official_bert.support.errors import UserError
from official_bert.training.run_folder import RunFolder

_CHIEF = 0
# The errors that TensorFlow raises when another process has ended, depending on the operation in progress.
_LOST_WORKER = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)
_LOST_WORKER_TEXT = "Collective ops is aborted"  # part of the message of other error types


class Cluster:
    """The workers of a strategy: processes on one or several machines, all running the same script.

    All workers compute the same things in the same order, including evaluation results. One of them is the chief; only
    the chief writes files to the output folder. With any other strategy this process is the only worker.

    Attributes:
      strategy: distributes the computation.
      num_workers: number of workers.
      index: index of this process among the workers, from 0.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        """Look up this process among the workers of a strategy."""
        self.strategy = strategy
        self.num_workers, self.index = 1, _CHIEF
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            resolver = strategy.cluster_resolver
            self.num_workers = max(resolver.cluster_spec().num_tasks("worker"), 1)
            self.index = resolver.task_id or 0

    @property
    def is_chief(self) -> bool:
        """True if this process is the chief, which writes the files."""
        return self.index == _CHIEF

    def folder(self, path: str) -> RunFolder:
        """Return the output folder of a run; only the chief writes to it."""
        return RunFolder(path, self.is_chief)

    def sums(self, *numbers: int) -> list[int]:
        """Sum numbers over all workers; blocks until every worker has called it."""
        if self.num_workers == 1:
            return list(numbers)
        num_local = self.strategy.num_replicas_in_sync // self.num_workers

        def of_replica(
            context,
        ):  # every replica contributes; only the first replica of each worker contributes a nonzero value
            return tf.constant(numbers, tf.int64) * int(context.replica_id_in_sync_group % num_local == 0)

        values = self.strategy.experimental_distribute_values_from_function(of_replica)
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None).numpy().tolist()

    def from_chief(self, number: int) -> int:
        """Return the chief's number on every worker."""
        return self.sums(number if self.is_chief else 0)[0]

    def any_worker(self, condition: bool) -> bool:
        """Return True if the condition holds on at least one worker."""
        return self.sums(int(condition))[0] > 0

    def wait(self) -> None:
        """Wait for all workers, so that they can read what the chief has written."""
        self.sums(0)

    @tf.autograph.experimental.do_not_convert
    def distribute(self, batches: tf.data.Dataset) -> tf.distribute.DistributedDataset:
        """Distribute the batches over the replicas of all workers: equal parts of each, in order.

        Args:
          batches: the same on every worker; dicts from name to tensor [B, ...], where B is a multiple of the number of
            replicas.
        """
        if self.num_workers == 1:
            return self.strategy.experimental_distribute_dataset(batches)

        def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
            num_local = context.num_replicas_in_sync // context.num_input_pipelines

            def parts(batch):
                shares = {name: self._shares(tensor, num_local)[self.index] for name, tensor in batch.items()}
                return tf.data.Dataset.from_tensor_slices(shares)  # one element per replica

            return batches.flat_map(parts).prefetch(tf.data.AUTOTUNE)

        return self.strategy.distribute_datasets_from_function(of_worker)

    def _shares(self, tensor: tf.Tensor, num_local: int) -> tf.Tensor:
        """Split a tensor [B, ...] evenly: [workers, replicas of each, B / all replicas, ...]."""
        num_replicas = self.num_workers * num_local
        size = tensor.shape[0] // num_replicas if tensor.shape[0] else tf.shape(tensor)[0] // num_replicas
        shape = [self.num_workers, num_local, size, *(tf.shape(tensor)[axis] for axis in range(1, tensor.shape.rank))]
        shares = tf.reshape(tensor, shape)
        shares.set_shape([self.num_workers, num_local, None, *tensor.shape[1:]])
        return shares

    def gather(self, values: tf.Tensor) -> tf.Tensor:
        """Concatenate the results of all replicas of all workers, [b, ...] each, in replica order."""
        if self.num_workers == 1:
            return tf.concat(self.strategy.experimental_local_results(values), axis=0)
        return self.strategy.gather(values, axis=0)

    def check_shared(self, folder: str) -> None:
        """Raise unless all workers see the files that the chief writes to a folder; the folder must exist on the chief.

        Raises:
          UserError: some workers do not see them.
        """
        if self.num_workers == 1:
            return
        path = os.path.join(folder, f".workers-{self.from_chief(secrets.randbits(48))}")
        if self.is_chief:
            with writing.atomic_write(path) as sink:
                sink.write("All workers of a run look for this file to check that they share the folder.\n")
        self.wait()
        is_missing = self.any_worker(not files.exists(path))
        if self.is_chief:
            writing.remove(path)
        if is_missing:
            raise UserError(
                f"the {self.num_workers} workers do not share output_dir={folder}: all machines must see the same "
                f"folder at this path, for example on a network file system"
            )

    def check_same(self, what: str, *values: Any) -> None:
        """Raise unless all workers have equal values, compared as strings.

        Raises:
          UserError: they differ; the message says where.
        """
        own = int(hashlib.sha256(repr(values).encode()).hexdigest()[:12], 16)
        if self.any_worker(own != self.from_chief(own)):
            raise UserError(f"the {self.num_workers} workers differ in their {what}; start the same command on all")

    @contextlib.contextmanager
    def reporting_lost_workers(self) -> Iterator[None]:
        """Run the block as one of the workers; report the loss of another worker as a user error.

        Raises:
          UserError: another worker ended early.
        """
        if self.num_workers == 1:
            yield
            return
        if not self.is_chief:
            logging.info(
                "worker %d of %d: worker 0 writes the files and logs the progress", self.index, self.num_workers
            )
            logging.set_verbosity(logging.WARNING)
        try:
            yield
            self.wait()
        except tf.errors.OpError as error:
            if not isinstance(error, _LOST_WORKER) and _LOST_WORKER_TEXT not in error.message:
                raise
            raise UserError(
                f"worker {self.index} of {self.num_workers} lost contact with another worker; see that worker's log "
                f"for the reason. Start all workers again: the same command resumes from the last checkpoint"
            ) from error
