"""Hyperparameters in the format of TensorBoard's HPARAMS page, without the tensorboard package."""

import struct
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from google.protobuf.struct_pb2 import Value

from official_bert.data.protobuf_wire import delimited

# From tensorboard/plugins/hparams/plugin_data.proto and metadata.py: field numbers combined with wire types.
_PLUGIN = "hparams"
_TAG = "_hparams_/session_start_info"
_SESSION_START_INFO, _HPARAMS, _KEY, _VALUE = b"\x1a", b"\x0a", b"\x0a", b"\x12"
_START_TIME_SECONDS = b"\x29"


def hyperparameters_summary(settings: Mapping[str, Any]) -> bytes:
    """Build the summary that shows a run's hyperparameters in TensorBoard.

    Args:
      settings: name to bool, number or string; None values are skipped.

    Returns:
      A serialized `Summary`, for `tf.summary.experimental.write_raw_pb`.
    """
    entries = [
        delimited(_KEY, name.encode()) + delimited(_VALUE, _value(setting).SerializeToString())
        for name, setting in settings.items()
        if setting is not None
    ]
    session = b"".join(delimited(_HPARAMS, entry) for entry in entries)
    session += _START_TIME_SECONDS + struct.pack("<d", time.time())
    summary = tf.compat.v1.Summary()
    value = summary.value.add(tag=_TAG, tensor=tf.make_tensor_proto([], tf.float32, shape=[0]))
    value.metadata.plugin_data.plugin_name = _PLUGIN
    value.metadata.plugin_data.content = delimited(_SESSION_START_INFO, session)
    return summary.SerializeToString()


def _value(setting: bool | float | str) -> Value:
    if isinstance(setting, bool):
        return Value(bool_value=setting)
    return Value(string_value=setting) if isinstance(setting, str) else Value(number_value=setting)
