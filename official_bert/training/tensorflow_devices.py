"""TensorFlow's devices, from one CPU to several machines or a TPU: the strategies that share each batch."""

import contextlib
import functools
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.options.groups import DeviceOptions, TpuOptions
from official_bert.support.errors import UserError, pluralize
from official_bert.support.processes import available_cores
from official_bert.support.signals import ended_by_ctrl_c
from official_bert.training.cluster import Cluster, configured_workers
from official_bert.training.task import Task, TrainingPlan
from official_bert.training.tensorflow_step import TensorFlowSteps

_SECONDS_TO_ANSWER = 10
# The errors that TensorFlow raises when another process has ended, depending on the operation in progress.
_LOST_WORKER = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)
_LOST_WORKER_TEXT = "Collective ops is aborted"  # part of the message of other error types


def create_strategy(devices: DeviceOptions, *, allows_workers: bool = True) -> tf.distribute.Strategy:
    """Create the distribution strategy; call it before any other access to a device."""
    num_replicas = 1 if devices.num_replicas is None else devices.num_replicas
    distribution = _chosen(devices, num_replicas)
    if distribution == "tpu":
        return _tpu_strategy(devices)
    if devices.master:
        raise UserError(
            f"master={devices.master}: TensorFlow 2 has no session masters; it is the TPU's address with "
            "use_tpu; otherwise leave it out"
        )
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    names = {tf.config.experimental.get_device_details(gpu).get("device_name", "unknown model") for gpu in gpus}
    found = f"{pluralize(len(gpus), 'GPU')} ({', '.join(sorted(names))})" if gpus else "no GPU found"
    logging.info("%s; %s", found, pluralize(available_cores(), "CPU core"))
    if distribution == "multi_worker":
        if not allows_workers:
            raise UserError(
                "TF_CONFIG names several workers, and this script computes on one machine; unset it and give each "
                "machine a part of the input, or use beam_predict"
            )
        if num_replicas != 1:
            raise UserError(
                f"num_replicas={num_replicas}: each worker uses all GPUs it sees, or its CPU; leave "
                "num_replicas out, and choose GPUs with CUDA_VISIBLE_DEVICES"
            )
        return _multi_worker_strategy()
    if distribution == "one_device":
        return tf.distribute.get_strategy()
    if not gpus:
        return _logical_cpu_strategy(num_replicas)
    if num_replicas > len(gpus):
        raise UserError(f"num_replicas={num_replicas}: this machine has {len(gpus)} GPUs")
    return mirrored_strategy("GPU", num_replicas if num_replicas > 1 else len(gpus))


def _chosen(devices: DeviceOptions, num_replicas: int) -> str:
    """Resolve `distribution`, if the flag leaves the choice to other flags and the machine."""
    if devices.distribution == "auto":
        if devices.use_tpu:
            return "tpu"
        if len(configured_workers()[0]) > 1:
            return "multi_worker"
        return "one_device" if num_replicas == 1 else "mirrored"
    if devices.use_tpu != (devices.distribution == "tpu"):
        raise UserError(
            f"distribution={devices.distribution} and use_tpu={devices.use_tpu} contradict each other; use_tpu, which "
            "also chooses how a TPU reads its inputs, is enough for a TPU"
        )
    return devices.distribution


@functools.cache
def mirrored_strategy(kind: str, num_replicas: int) -> tf.distribute.MirroredStrategy:
    """Return the only strategy of a kind: two would mix up their collective operations in one process."""
    return tf.distribute.MirroredStrategy([f"{kind}:{index}" for index in range(num_replicas)])


def _logical_cpu_strategy(num_replicas: int) -> tf.distribute.Strategy:
    if num_replicas < 2:
        raise UserError(
            "this machine has no GPUs that TensorFlow finds; num_replicas=2 tries several devices with two virtual CPU "
            "devices"
        )
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * num_replicas)
    return mirrored_strategy("CPU", num_replicas)


@functools.cache
def _multi_worker_strategy() -> tf.distribute.MultiWorkerMirroredStrategy:
    """Return the strategy of this process's cluster, which it can join only once."""
    resolver = _cluster_resolver()
    workers = resolver.cluster_spec().job_tasks("worker")
    logging.info("worker %d of %d; waiting for all of them: %s", resolver.task_id, len(workers), ", ".join(workers))
    try:
        with ended_by_ctrl_c():
            return tf.distribute.MultiWorkerMirroredStrategy(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise UserError(
            f"worker {resolver.task_id} of {len(workers)} cannot join the others ({_first_line(error)}); check that "
            f"all are started, that their machines reach each other, and that nothing else listens at "
            f"{workers[resolver.task_id]} here"
        ) from error


def _cluster_resolver() -> tf.distribute.cluster_resolver.ClusterResolver:
    """Find the workers and this process's index, from TF_CONFIG or else SLURM's variables."""
    if "TF_CONFIG" in os.environ:
        configured_workers()  # raises if it is invalid
        return tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if "SLURM_PROCID" not in os.environ:
        raise UserError(
            "distribution=multi_worker: neither TF_CONFIG nor SLURM's variables say which workers there are; set "
            "TF_CONFIG on each (official-bert launch_workers prints it), or start them with srun"
        )
    try:
        # SLURM assigns GPUs to tasks. These two numbers only make the resolver assign a port to each.
        num_tasks = int(os.environ.get("SLURM_STEP_NUM_TASKS", "1"))
        resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
            gpus_per_node=num_tasks, gpus_per_task=1, auto_set_gpu=False
        )
        resolver.cluster_spec()  # determines this task's index
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"SLURM's variables cannot be used ({_first_line(error)}); start the workers with srun"
        ) from error
    return resolver


def _tpu_strategy(devices: TpuOptions) -> tf.distribute.Strategy:
    address = devices.tpu_name or devices.master
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=address or "", zone=devices.tpu_zone, project=devices.gcp_project
        )
        _check_answers(resolver.master())
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError, OSError) as error:
        raise UserError(
            f"use_tpu: no TPU answers at {address or 'this machine'} ({_first_line(error)}); check tpu_name, "
            "tpu_zone and gcp_project, or leave use_tpu out"
        ) from error
    strategy = tf.distribute.TPUStrategy(resolver)
    num_cores = strategy.num_replicas_in_sync
    if num_cores != devices.num_tpu_cores:
        raise UserError(f"num_tpu_cores={devices.num_tpu_cores}, but the TPU has {num_cores}")
    logging.info("TPU with %d cores at %s", num_cores, address or "this machine")
    return strategy


def _check_answers(master: str) -> None:
    """Raise OSError unless something listens at `grpc://host:port`; TensorFlow itself would wait for minutes."""
    host, _, port = master.removeprefix("grpc://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", maxsplit=1)[0][:200] or type(error).__name__


class TensorFlowCluster(Cluster):
    def __init__(self, strategy: tf.distribute.Strategy | None = None, *, use_xla: bool = False):
        strategy = strategy or tf.distribute.get_strategy()
        if use_xla and strategy is not tf.distribute.get_strategy():
            raise UserError("use_xla compiles for one device alone, without a distribution; leave it out")
        self.strategy, self._use_xla = strategy, use_xla
        self.num_replicas = strategy.num_replicas_in_sync
        self.is_cut_short = not isinstance(strategy, tf.distribute.TPUStrategy)
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            resolver = strategy.cluster_resolver
            self.num_workers = max(resolver.cluster_spec().num_tasks("worker"), 1)
            self.index = resolver.task_id or 0

    def scope(self) -> contextlib.AbstractContextManager:
        return self.strategy.scope()

    def training_steps(self, task: Task, model: keras.Model, plan: TrainingPlan) -> TensorFlowSteps:
        return TensorFlowSteps(task, model, self.strategy, plan)

    def sums(self, *numbers: int) -> list[int]:
        if self.num_workers == 1:
            return list(numbers)
        num_local = self.strategy.num_replicas_in_sync // self.num_workers

        def of_replica(context):  # only the first replica of each worker contributes a nonzero value
            return tf.constant(numbers, tf.int64) * int(context.replica_id_in_sync_group % num_local == 0)

        values = self.strategy.experimental_distribute_values_from_function(of_replica)
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None).numpy().tolist()

    @tf.autograph.experimental.do_not_convert
    def distribute(self, batches: tf.data.Dataset) -> tf.distribute.DistributedDataset:
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

    def compiled(
        self, function: Callable[[Any], Mapping[str, Any]], model: keras.Model
    ) -> Callable[[tf.data.Dataset], Iterator[dict[str, np.ndarray]]]:
        del model
        function = tf.function(function, jit_compile=self._use_xla or None, autograph=False)

        @tf.function(autograph=False)
        def on_batch(batch):
            results = self.strategy.run(function, args=(batch,))
            return {name: self._gathered(value) for name, value in results.items()}

        def on_batches(batches):
            dataset = self.distribute(batches)
            traced_once = on_batch.get_concrete_function(dataset.element_spec)  # for batches of all lengths
            for batch in dataset:
                yield {name: value.numpy() for name, value in traced_once(batch).items()}

        return on_batches

    def _gathered(self, values: tf.Tensor) -> tf.Tensor:
        """Concatenate the results of all replicas of all workers, [b, ...] each, in replica order."""
        if self.num_workers == 1:
            return tf.concat(self.strategy.experimental_local_results(values), axis=0)
        return self.strategy.gather(values, axis=0)

    def _is_lost_worker(self, error: Exception) -> bool:
        return isinstance(error, _LOST_WORKER) or (
            isinstance(error, tf.errors.OpError) and _LOST_WORKER_TEXT in error.message
        )
