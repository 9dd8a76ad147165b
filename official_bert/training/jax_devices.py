"""JAX's devices: GPUs, TPUs or CPUs of one process or of several, which share each batch, and the batches on them."""

import atexit
import contextlib
import logging as standard_logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax
import keras
import numpy as np
from absl import logging
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from official_bert.support.errors import UserError, pluralize
from official_bert.support.signals import ended_by_ctrl_c
from official_bert.training.cluster import Cluster, configured_workers
from official_bert.training.jax_step import JaxSteps
from official_bert.training.task import Task, TrainingPlan

_AXIS = "batch"  # name of the mesh's only axis
_BATCHES_AHEAD = 3  # batches that are read and put on the devices ahead of the step


def has_tpu() -> bool:
    return jax.default_backend() == "tpu"


def gpu_details() -> list[dict[str, Any]]:
    """Describe the GPUs as TensorFlow does."""
    return [
        {"device_name": device.device_kind, "compute_capability": tuple(map(int, device.compute_capability.split(".")))}
        for device in jax.local_devices()
        if device.platform == "gpu"
    ]


def keep_compiled(folder: str) -> None:
    """Keep compiled steps in a folder for later processes, unless JAX_COMPILATION_CACHE_DIR names another one."""
    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", folder)


def create_cluster(distribution: str, num_replicas: int | None) -> "JaxCluster":
    """Join the workers of TF_CONFIG, if it names several, and return the devices; see the flags of these names."""
    standard_logging.getLogger("jax").setLevel(standard_logging.WARNING)  # it logs each kind of device that is absent
    is_shared = distribution == "multi_worker" or (distribution == "auto" and len(configured_workers()[0]) > 1)
    if is_shared:
        if num_replicas:
            raise UserError(f"num_replicas={num_replicas}: each worker uses all its devices; leave num_replicas out")
        _join_workers()
    elif distribution == "one_device":
        num_replicas = 1
    elif num_replicas and num_replicas > 1:
        jax.config.update("jax_num_cpu_devices", num_replicas)  # has no effect on GPUs and TPUs
    devices = jax.devices()
    num_replicas = num_replicas or len(devices)
    if num_replicas > len(devices):
        raise UserError(f"num_replicas={num_replicas}: this machine has {pluralize(len(devices), 'device')}")
    names = sorted({device.device_kind for device in devices})
    logging.info("JAX: %s (%s)", pluralize(len(devices), "device"), ", ".join(names))
    return JaxCluster(devices[:num_replicas])


def _join_workers() -> None:
    """Join the workers of TF_CONFIG or, without it, those that JAX finds: of SLURM, or the hosts of a TPU."""
    workers, index = configured_workers()
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM
    try:
        if workers:
            logging.info("worker %d of %d; waiting for all of them: %s", index, len(workers), ", ".join(workers))
        with ended_by_ctrl_c():
            if workers:
                jax.distributed.initialize(workers[0], len(workers), index, cluster_detection_method="deactivate")
            else:
                jax.distributed.initialize()
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0][:200]
        if workers:
            raise UserError(
                f"worker {index} of {len(workers)} cannot join the others ({reason}); check that all are started, and "
                f"that their machines reach {workers[0]}"
            ) from error
        raise UserError(
            f"distribution=multi_worker: TF_CONFIG is not set, and JAX finds no workers of SLURM or of a TPU ({reason})"
            "; set TF_CONFIG on each (official-bert launch_workers prints it)"
        ) from error


class JaxCluster(Cluster):
    """Devices that share each batch in a mesh of one dimension; arrays have the same meaning for any number of them."""

    def __init__(self, devices: list[jax.Device] | None = None):
        self._mesh = Mesh(np.array(devices or jax.devices()), (_AXIS,))
        self.num_replicas = self._mesh.size
        self.num_workers, self.index = jax.process_count(), jax.process_index()
        self.copied = NamedSharding(self._mesh, PartitionSpec())  # of weights: each device has a copy
        self._shared = NamedSharding(self._mesh, PartitionSpec(_AXIS))  # of batches: each device has a part

    def scope(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def training_steps(self, task: Task, model: keras.Model, plan: TrainingPlan) -> JaxSteps:
        return JaxSteps(task, model, self.copied, plan)

    def distribute(self, batches: Iterable[Mapping[str, Any]]) -> "DeviceBatches":
        return DeviceBatches(batches, self._put)

    def _put(self, batch: Mapping[str, Any]) -> dict[str, jax.Array]:
        def put(array):
            array = np.asarray(array)
            return jax.make_array_from_callback(array.shape, self._shared, lambda index: array[index])

        return {name: put(array) for name, array in batch.items()}

    def compiled(
        self, function: Callable[[Any], Mapping[str, Any]], model: keras.Model
    ) -> Callable[[Iterable[Mapping[str, Any]]], Iterator[dict[str, np.ndarray]]]:
        def on_batch(values, batch):
            with keras.StatelessScope(zip(model.variables, values, strict=True)):
                return function(batch)

        compiled = jax.jit(on_batch, out_shardings=self.copied)

        def on_batches(batches):
            values = [jax.device_put(variable.value, self.copied) for variable in model.variables]
            with contextlib.closing(self.distribute(batches)) as distributed:
                for batch in distributed:
                    yield jax.tree.map(np.asarray, compiled(values, batch))

        return on_batches

    def sums(self, *numbers: int) -> list[int]:
        if self.num_workers == 1:
            return list(numbers)
        halves = [part for number in numbers for part in divmod(number, 2**24)]  # int64 is not JAX's default
        gathered = (
            np.asarray(multihost_utils.process_allgather(np.array(halves, np.int32))).astype(np.int64).sum(axis=0)
        )
        return [int(high) * 2**24 + int(low) for high, low in gathered.reshape(-1, 2)]

    def _is_lost_worker(self, error: Exception) -> bool:
        # JAX raises ValueError, too, with the text of the library that connects the processes.
        is_lost = isinstance(error, jax.errors.JaxRuntimeError) or "Gloo" in str(error)
        if not is_lost or "RESOURCE_EXHAUSTED" in str(error):
            return False
        atexit.register(os._exit, 1)  # before JAX's own end, which waits for the lost worker and aborts
        return True


class DeviceBatches:
    """Iterator of batches that a thread reads and puts on the devices ahead of their use."""

    def __init__(self, batches: Iterable[Mapping[str, Any]], put: Callable[[Mapping[str, Any]], Any]):
        self._returned: deque[Any] = deque()
        self._ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(_BATCHES_AHEAD)
        self._is_closed = threading.Event()
        threading.Thread(target=self._read, args=(batches, put), daemon=True).start()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._returned:
            return self._returned.popleft()
        batch, error = self._ready.get()
        if error is not None:
            self._ready.put((None, error))  # for further calls
            raise error
        return batch

    def give_back(self, batch: Any) -> None:
        """Return a batch, which the next call yields once more."""
        self._returned.appendleft(batch)

    def close(self) -> None:
        self._is_closed.set()

    def _read(self, batches: Iterable[Mapping[str, Any]], put: Callable[[Mapping[str, Any]], Any]) -> None:
        error: BaseException = StopIteration()
        try:
            for batch in batches:
                self._offer((put(batch), None))
                if self._is_closed.is_set():
                    return
        except BaseException as raised:  # raised again where the batches are used
            error = raised
        self._offer((None, error))

    def _offer(self, item: tuple[Any, BaseException | None]) -> None:
        while not self._is_closed.is_set():
            with contextlib.suppress(queue.Full):
                self._ready.put(item, timeout=1)
                return
