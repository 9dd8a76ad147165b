"""Where a run computes: one device, several GPUs, several logical CPUs, or a TPU."""

import functools
import socket

import tensorflow as tf
from absl import logging

from official_bert.config.run_configs.training import DeviceOptions
from official_bert.support.errors import UserError

_SECONDS_TO_ANSWER = 10


def create_strategy(devices: DeviceOptions) -> tf.distribute.Strategy:
    """Builds the distribution strategy; call it before anything else touches a device.

    Args:
      devices: the flags that say where to compute.

    Returns:
      TensorFlow's default strategy for one device, otherwise a MirroredStrategy or a TPUStrategy.

    Raises:
      UserError: the devices asked for are not there.
    """
    if devices.use_tpu:
        return _tpu_strategy(devices)
    if devices.master:
        raise UserError(
            f"master={devices.master}: TensorFlow 2 has no session masters; it is the TPU's address with "
            "use_tpu; otherwise leave it out"
        )
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return _gpu_strategy(len(gpus), devices.num_replicas)
    if devices.num_replicas > 1:
        return _logical_cpu_strategy(devices.num_replicas)
    return tf.distribute.get_strategy()


@functools.cache
def mirrored_strategy(kind: str, num_replicas: int) -> tf.distribute.MirroredStrategy:
    """The strategy of the first devices of a kind, "CPU" or "GPU".

    There is one in a process: each numbers its collective operations from the same start, and TensorFlow takes two
    operations of one number for one, whose shapes then do not match.
    """
    return tf.distribute.MirroredStrategy([f"{kind}:{index}" for index in range(num_replicas)])


def _gpu_strategy(num_gpus: int, num_replicas: int) -> tf.distribute.Strategy:
    if num_replicas > num_gpus:
        raise UserError(f"num_replicas={num_replicas}: this machine has {num_gpus} GPUs")
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    num_replicas = num_replicas or num_gpus
    if num_replicas == 1:
        return tf.distribute.get_strategy()
    return mirrored_strategy("GPU", num_replicas)


def _logical_cpu_strategy(num_replicas: int) -> tf.distribute.Strategy:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * num_replicas)
    return mirrored_strategy("CPU", num_replicas)


def _tpu_strategy(devices: DeviceOptions) -> tf.distribute.Strategy:
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
    """Raises OSError unless something listens at `grpc://host:port`; TensorFlow itself would wait for minutes."""
    host, _, port = master.removeprefix("grpc://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", maxsplit=1)[0][:200] or type(error).__name__
