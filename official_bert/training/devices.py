"""Devices of a run on TensorFlow (`tensorflow_devices`) or JAX (`jax_devices`), and their precision."""

import contextlib
import os
import pathlib
import sys
from typing import TYPE_CHECKING

import keras
from absl import logging

from official_bert.modeling.encoder_options import EncoderOptions, FlatLayout, LoraSettings, UnpaddedLayout
from official_bert.options.groups import DeviceOptions
from official_bert.options.training import JAX, TENSORFLOW, TrainingOptions
from official_bert.support.errors import UserError
from official_bert.training.cluster import Cluster

if TYPE_CHECKING:
    import tensorflow as tf

_TITLES = {TENSORFLOW: "TensorFlow", JAX: "JAX"}
NONE, BFLOAT16, FLOAT16, AUTO = "none", "bfloat16", "float16", "auto"
_POLICIES = {NONE: "float32", BFLOAT16: "mixed_bfloat16", FLOAT16: "mixed_float16"}  # Keras's

_CPU_INFO = pathlib.Path("/proc/cpuinfo")
_BFLOAT16_INSTRUCTIONS = ("amx_bf16", "avx512_bf16")  # names in Linux; used by TensorFlow's oneDNN
_TENSOR_CORES, _BFLOAT16_TENSOR_CORES = (7, 0), (8, 0)  # NVIDIA compute capabilities


def require_backend(user: str, backend: str = TENSORFLOW) -> None:
    """Raise if Keras computes with another library; TensorFlow cannot trace its models, for example."""
    if (used := keras.backend.backend()) != backend:
        advice = ", or leave it out" if backend == TENSORFLOW else ""
        raise UserError(
            f"{user} needs Keras's {_TITLES[backend]} backend, and this process uses {used}; set the environment "
            f"variable KERAS_BACKEND={backend} before Python starts{advice}"
        )


def open_cluster(
    strategy: "tf.distribute.Strategy | None" = None, *, use_xla: bool = False, backend: str = TENSORFLOW
) -> Cluster:
    """Return the devices of a strategy, by default one device; with JAX, which has no strategies, all devices."""
    if backend not in _TITLES:
        raise UserError(f"backend={backend!r}: choose one of {', '.join(_TITLES)}")
    require_backend("Trainer", backend)
    if backend == JAX:
        if strategy is not None or use_xla:
            raise UserError("backend='jax' takes no strategy and no use_xla: it compiles with XLA for all its devices")
        from official_bert.training.jax_devices import JaxCluster  # imports JAX

        if tensorflow := sys.modules.get("tensorflow"):
            with contextlib.suppress(RuntimeError):  # if TensorFlow has begun to compute
                tensorflow.config.set_visible_devices([], "GPU")  # it would take memory from JAX
        return JaxCluster()
    from official_bert.training.tensorflow_devices import TensorFlowCluster

    return TensorFlowCluster(strategy, use_xla=use_xla)


def create_cluster(config: TrainingOptions) -> Cluster:
    """Return the devices that the flags of a run select; call it before any other access to a device."""
    require_backend(f"backend={config.backend}", config.backend)
    if config.distribution == "one_device" and config.num_replicas not in (None, 1):
        raise UserError(f"distribution=one_device and num_replicas={config.num_replicas} contradict each other")
    if config.backend == JAX:
        from official_bert.training import jax_devices  # imports JAX

        jax_devices.keep_compiled(os.path.join(config.output_dir, "jax_cache"))
        return jax_devices.create_cluster(config.distribution, config.num_replicas)
    from official_bert.training import tensorflow_devices

    strategy = tensorflow_devices.create_strategy(config)
    return tensorflow_devices.TensorFlowCluster(strategy, use_xla=config.use_xla)


def dtype_policy(mixed_precision: str, *, use_tpu: bool = False) -> str:
    """Return Keras's dtype policy; "auto" depends only on the machine and initializes no device."""
    if mixed_precision not in (*_POLICIES, AUTO):
        raise UserError(f"mixed_precision={mixed_precision!r}: choose one of {', '.join((*_POLICIES, AUTO))}")
    if use_tpu and mixed_precision == FLOAT16:
        raise UserError("mixed_precision=float16: a TPU computes in bfloat16; use that, or auto")
    if mixed_precision == AUTO:
        is_jax = keras.backend.backend() == JAX
        if is_jax:
            from official_bert.training import jax_devices  # imports JAX

            use_tpu, gpus = jax_devices.has_tpu(), jax_devices.gpu_details()
        else:
            import tensorflow as tf

            gpus = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")]
        if use_tpu:
            mixed_precision, reason = BFLOAT16, "the native format of TPUs"
        elif gpus:
            mixed_precision, reason = _of_gpus(gpus)
        elif is_jax:
            mixed_precision, reason = NONE, "JAX gains no speed from narrow formats on CPUs"
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
    layout = UnpaddedLayout if config.unpad else FlatLayout
    if keras.backend.backend() == JAX:
        from official_bert.training import jax_attention  # imports JAX

        layout = jax_attention.LAYOUTS[config.attention]
    return EncoderOptions(
        use_one_hot_embeddings=config.use_tpu,
        dtype=dtype_policy(config.mixed_precision, use_tpu=config.use_tpu),
        layout=layout,
        recompute_layers=config.gradient_checkpointing,
        lora=LoraSettings(*config.lora) if config.lora and config.do_train else None,  # otherwise merged when read
    )


def inference_options(options: DeviceOptions, *, use_one_hot_embeddings: bool = False) -> EncoderOptions:
    """Return the fastest way to compute an encoder on the devices of the flags."""
    return EncoderOptions(
        use_one_hot_embeddings=use_one_hot_embeddings,
        # TPUs need fixed shapes, and the number of unpadded tokens varies.
        layout=FlatLayout if options.use_tpu else UnpaddedLayout,
        dtype=dtype_policy(options.mixed_precision, use_tpu=options.use_tpu),
    )
