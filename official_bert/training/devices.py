"""Devices of a run, from one CPU to several machines or a TPU: their precision, and the agreement of workers."""

import contextlib
import functools
import hashlib
import os
import pathlib
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any, Literal, TypedDict

import keras
import tensorflow as tf
from absl import logging

from official_bert.modeling.encoder_options import EncoderOptions, FlatLayout, LoraSettings, UnpaddedLayout
from official_bert.options.groups import DeviceOptions, TpuOptions
from official_bert.options.training import TrainingOptions
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError, pluralize
from official_bert.support.processes import available_cores, is_address

NONE, BFLOAT16, FLOAT16, AUTO = "none", "bfloat16", "float16", "auto"
_POLICIES = {NONE: "float32", BFLOAT16: "mixed_bfloat16", FLOAT16: "mixed_float16"}  # Keras's

_CPU_INFO = pathlib.Path("/proc/cpuinfo")
_BFLOAT16_INSTRUCTIONS = ("amx_bf16", "avx512_bf16")  # names in Linux; used by TensorFlow's oneDNN
_TENSOR_CORES, _BFLOAT16_TENSOR_CORES = (7, 0), (8, 0)  # NVIDIA compute capabilities
_SECONDS_TO_ANSWER = 10
_TF_CONFIG_ADVICE = (
    'it must look like {"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
)
_CHIEF = 0
# The errors that TensorFlow raises when another process has ended, depending on the operation in progress.
_LOST_WORKER = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)
_LOST_WORKER_TEXT = "Collective ops is aborted"  # part of the message of other error types


class _Workers(TypedDict):
    worker: list[str]


class _Worker(TypedDict):
    type: Literal["worker"]
    index: int


class _TfConfig(TypedDict):
    cluster: _Workers
    task: _Worker


def require_tensorflow_backend(user: str) -> None:
    """Raise if Keras computes with another library, whose models TensorFlow cannot trace."""
    if (backend := keras.backend.backend()) != "tensorflow":
        raise UserError(
            f"{user} needs Keras's TensorFlow backend, and this process uses {backend}; set the environment variable "
            "KERAS_BACKEND=tensorflow before Python starts, or leave it out"
        )


def dtype_policy(mixed_precision: str, *, use_tpu: bool = False) -> str:
    """Return Keras's dtype policy; "auto" depends only on the machine and initializes no device."""
    if mixed_precision not in (*_POLICIES, AUTO):
        raise UserError(f"mixed_precision={mixed_precision!r}: choose one of {', '.join((*_POLICIES, AUTO))}")
    if use_tpu and mixed_precision == FLOAT16:
        raise UserError("mixed_precision=float16: a TPU computes in bfloat16; use that, or auto")
    if mixed_precision == AUTO:
        gpus = tf.config.list_physical_devices("GPU")
        if use_tpu:
            mixed_precision, reason = BFLOAT16, "the native format of TPUs"
        elif gpus:
            mixed_precision, reason = _of_gpus([tf.config.experimental.get_device_details(gpu) for gpu in gpus])
        else:
            mixed_precision, reason = _of_cpu(_CPU_INFO, os.environ.get("TF_ENABLE_ONEDNN_OPTS"))
        logging.info("mixed_precision=auto: %s (%s)", mixed_precision, reason)
    return _POLICIES[mixed_precision]


def _of_gpus(details: list[dict]) -> tuple[str, str]:
    """Return the choice for GPUs; the oldest one decides."""
    oldest = min(details, key=lambda gpu: gpu.get("compute_capability", (0, 0)))
    capability = oldest.get("compute_capability", (0, 0))
    reason = f"{oldest.get('device_name', 'a GPU')} has compute capability {capability[0]}.{capability[1]}"
    if capability >= _BFLOAT16_TENSOR_CORES:
        return BFLOAT16, reason
    return (FLOAT16 if capability >= _TENSOR_CORES else NONE), reason


def _of_cpu(cpu_info: pathlib.Path, onednn: str | None) -> tuple[str, str]:
    """Return the choice for a CPU, from Linux's CPU flags and TF_ENABLE_ONEDNN_OPTS."""
    if onednn == "0":
        return NONE, "TF_ENABLE_ONEDNN_OPTS=0 disables bfloat16 multiplication"
    words = set(cpu_info.read_text().split()) if cpu_info.exists() else set()
    found = [instruction for instruction in _BFLOAT16_INSTRUCTIONS if instruction in words]
    if found:
        return BFLOAT16, f"this CPU supports {found[0]}"
    return NONE, f"this CPU supports neither {' nor '.join(_BFLOAT16_INSTRUCTIONS)}"


def encoder_options(config: TrainingOptions) -> EncoderOptions:
    """Return the encoder options that the flags of a training or evaluation run select."""
    return EncoderOptions(
        use_one_hot_embeddings=config.use_tpu,
        dtype=dtype_policy(config.mixed_precision, use_tpu=config.use_tpu),
        layout=UnpaddedLayout if config.unpad else FlatLayout,
        recompute_layers=config.gradient_checkpointing,
        lora=LoraSettings(*config.lora) if config.lora and config.do_train else None,  # otherwise merged when read
    )


def create_strategy(devices: DeviceOptions, *, allows_workers: bool = True) -> tf.distribute.Strategy:
    """Create the distribution strategy; call it before any other access to a device."""
    distribution = _chosen(devices)
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
        if devices.num_replicas != 1:
            raise UserError(
                f"num_replicas={devices.num_replicas}: each worker uses all GPUs it sees, or its CPU; leave "
                "num_replicas out, and choose GPUs with CUDA_VISIBLE_DEVICES"
            )
        return _multi_worker_strategy()
    if distribution == "one_device":
        return tf.distribute.get_strategy()
    if not gpus:
        return _logical_cpu_strategy(devices.num_replicas)
    if devices.num_replicas > len(gpus):
        raise UserError(f"num_replicas={devices.num_replicas}: this machine has {len(gpus)} GPUs")
    return mirrored_strategy("GPU", devices.num_replicas if devices.num_replicas > 1 else len(gpus))


def _chosen(devices: DeviceOptions) -> str:
    """Resolve `distribution`, if the flag leaves the choice to other flags and the machine."""
    if devices.distribution == "auto":
        if devices.use_tpu:
            return "tpu"
        if _num_configured_workers() > 1:
            return "multi_worker"
        return "one_device" if devices.num_replicas == 1 else "mirrored"
    if devices.use_tpu != (devices.distribution == "tpu"):
        raise UserError(
            f"distribution={devices.distribution} and use_tpu={devices.use_tpu} contradict each other; use_tpu, which "
            "also chooses how a TPU reads its inputs, is enough for a TPU"
        )
    if devices.distribution == "one_device" and devices.num_replicas != 1:
        raise UserError(f"distribution=one_device and num_replicas={devices.num_replicas} contradict each other")
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
        with _ended_by_ctrl_c():
            return tf.distribute.MultiWorkerMirroredStrategy(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise UserError(
            f"worker {resolver.task_id} of {len(workers)} cannot join the others ({_first_line(error)}); check that "
            f"all are started, that their machines reach each other, and that nothing else listens at "
            f"{workers[resolver.task_id]} here"
        ) from error


@contextlib.contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Make Ctrl-C end the process immediately during the block.

    For native code that waits without a timeout: Python would handle the signal only afterwards. This does not work for
    SIGTERM: TensorFlow installs its own handler, which does nothing here. Without this, "ctrl_c_stops" of
    `training/test_multi_worker.py` hangs.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _cluster_resolver() -> tf.distribute.cluster_resolver.ClusterResolver:
    """Find the workers and this process's index, from TF_CONFIG or else SLURM's variables."""
    if "TF_CONFIG" in os.environ:
        _num_configured_workers()  # raises if it is invalid
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


def _num_configured_workers() -> int:
    """Return the number of workers in TF_CONFIG; 0 if it is not set."""
    text = os.environ.get("TF_CONFIG")
    if not text:
        return 0
    try:
        config = text_files.parse_json(text, "it")
        text_files.check_json(config, _TfConfig, "it")
        workers, index = config["cluster"]["worker"], config["task"]["index"]
        wrong = next((worker for worker in workers if not is_address(worker)), None)
        if wrong is not None:
            raise UserError(f"{wrong!r} is not host:port")
        if config["cluster"].keys() != {"worker"} or not 0 <= index < len(workers):
            raise UserError("this process must be one of its workers, and nothing else is known here")
    except UserError as error:
        raise UserError(f"the variable TF_CONFIG cannot be used: {error}; {_TF_CONFIG_ADVICE}") from error
    return len(workers)


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


class Cluster:
    """The workers of a strategy, which all compute the same in the same order; only the chief writes files."""

    def __init__(self, strategy: tf.distribute.Strategy):
        self.strategy = strategy  # distributes the computation
        self.num_workers, self.index = 1, _CHIEF
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            resolver = strategy.cluster_resolver
            self.num_workers = max(resolver.cluster_spec().num_tasks("worker"), 1)  # number of workers
            self.index = resolver.task_id or 0  # index of this process among the workers, from 0

    @property
    def is_chief(self) -> bool:
        """True if this process is the chief, which writes the files."""
        return self.index == _CHIEF

    def sums(self, *numbers: int) -> list[int]:
        """Sum numbers over all workers; blocks until every worker has called it."""
        if self.num_workers == 1:
            return list(numbers)
        num_local = self.strategy.num_replicas_in_sync // self.num_workers

        def of_replica(context):  # only the first replica of each worker contributes a nonzero value
            return tf.constant(numbers, tf.int64) * int(context.replica_id_in_sync_group % num_local == 0)

        values = self.strategy.experimental_distribute_values_from_function(of_replica)
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None).numpy().tolist()

    def from_chief(self, number: int) -> int:
        """Return the chief's number on every worker."""
        return self.sums(number if self.is_chief else 0)[0]

    def any_worker(self, condition: bool) -> bool:
        return self.sums(int(condition))[0] > 0

    def wait(self) -> None:
        """Wait for all workers, so that they can read what the chief has written."""
        self.sums(0)

    @tf.autograph.experimental.do_not_convert
    def distribute(self, batches: tf.data.Dataset) -> tf.distribute.DistributedDataset:
        """Give each replica of each worker its part of every batch; B is a multiple of the number of replicas."""
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
        """Raise unless all workers see the files that the chief writes to a folder, which must exist on the chief."""
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
        """Raise unless all workers have equal values, compared as strings."""
        own = int(hashlib.sha256(repr(values).encode()).hexdigest()[:12], 16)
        if self.any_worker(own != self.from_chief(own)):
            raise UserError(f"the {self.num_workers} workers differ in their {what}; start the same command on all")

    @contextlib.contextmanager
    def reporting_lost_workers(self) -> Iterator[None]:
        """Run the block as one of the workers; report the loss of another worker as a user error."""
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
