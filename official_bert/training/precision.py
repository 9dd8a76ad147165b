"""Numeric precision: from the flags, or the fastest for the available devices."""

import os
import pathlib

import tensorflow as tf
from absl import logging

from official_bert.support.errors import UserError

NONE, BFLOAT16, FLOAT16, AUTO = "none", "bfloat16", "float16", "auto"
_POLICIES = {NONE: "float32", BFLOAT16: "mixed_bfloat16", FLOAT16: "mixed_float16"}  # Keras's

_CPU_INFO = pathlib.Path("/proc/cpuinfo")
_BFLOAT16_INSTRUCTIONS = ("amx_bf16", "avx512_bf16")  # names in Linux; used by TensorFlow's oneDNN
_TENSOR_CORES, _BFLOAT16_TENSOR_CORES = (7, 0), (8, 0)  # NVIDIA compute capabilities


def dtype_policy(mixed_precision: str, *, use_tpu: bool = False) -> str:
    """Return the name of Keras's dtype policy; for "auto", log the choice and the reason.

    The choice depends only on the machine, so a resumed run makes the same one. No device is initialized.

    Args:
      mixed_precision: "none", "bfloat16", "float16" or "auto".
      use_tpu: whether a TPU is used.

    Raises:
      UserError: the TPU lacks the format, or the value is unknown.
    """
    if mixed_precision not in (*_POLICIES, AUTO):
        raise UserError(f"mixed_precision={mixed_precision!r}: choose one of {', '.join((*_POLICIES, AUTO))}")
    if use_tpu and mixed_precision == FLOAT16:
        raise UserError("mixed_precision=float16: a TPU computes in bfloat16; use that, or auto")
    if mixed_precision == AUTO:
        mixed_precision, reason = _chosen(use_tpu)
        logging.info("mixed_precision=auto: %s (%s)", mixed_precision, reason)
    return _POLICIES[mixed_precision]


def _chosen(use_tpu: bool) -> tuple[str, str]:
    """Return the fastest precision, and the reason."""
    if use_tpu:
        return BFLOAT16, "the native format of TPUs"
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return _of_gpus([tf.config.experimental.get_device_details(gpu) for gpu in gpus])
    return _of_cpu(_CPU_INFO, os.environ.get("TF_ENABLE_ONEDNN_OPTS"))


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
