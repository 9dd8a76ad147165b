"""Requests that TensorFlow Serving replays when it loads a version, so that the first request is fast.

The file holds one `tensorflow.serving.PredictionLog` per record. It is serialized here, so exporting does not need the
package with the server's messages.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import tensorflow as tf
from google.protobuf import message
from tensorflow.core.framework import tensor_pb2

from official_bert.data.protobuf_wire import delimited, fields
from official_bert.data.tfrecord import read_records
from official_bert.support.errors import UserError

# PredictionLog{6: PredictLog{1: PredictRequest}}; PredictRequest: {1: ModelSpec, 2: map<string, TensorProto>}; map
# entry: {1: key, 2: value}; ModelSpec: {1: name, 3: signature name}.
_FIRST, _SECOND, _THIRD, _SIXTH = (bytes([8 * number + 2]) for number in (1, 2, 3, 6))


def prediction_log(model_name: str, signature_name: str, inputs: Mapping[str, tf.Tensor]) -> bytes:
    """Serialize a request.

    Args:
      model_name: the server's name for the model.
      signature_name: the signature to call.
      inputs: its inputs.

    Returns:
      A serialized PredictionLog.
    """
    specification = delimited(_FIRST, model_name.encode()) + delimited(_THIRD, signature_name.encode())
    entries = [
        delimited(_FIRST, name.encode()) + delimited(_SECOND, tf.make_tensor_proto(values.numpy()).SerializeToString())
        for name, values in inputs.items()
    ]
    request = delimited(_FIRST, specification) + b"".join(delimited(_SECOND, entry) for entry in entries)
    return delimited(_SIXTH, delimited(_FIRST, request))


def write_warmup(path: str, records: Iterable[bytes]) -> None:
    """Write `tf_serving_warmup_requests`, a TFRecord file."""
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)


def read_warmup(path: str) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Read the requests in a warm-up file: each signature and its inputs.

    Raises:
      UserError: the file is corrupt.
    """
    for record in read_records(path):
        try:
            request = _only(_only(record, _SIXTH), _FIRST)
            name = _only(_only(request, _FIRST), _THIRD).decode()
            entries = [payload for tag, payload in fields(request) if tag == _SECOND]
            inputs = {
                _only(entry, _FIRST).decode(): tf.make_ndarray(tensor_pb2.TensorProto.FromString(_only(entry, _SECOND)))
                for entry in entries
            }
        except (ValueError, TypeError, message.DecodeError) as error:
            raise UserError(f"{path} does not hold warm-up requests; export the model again") from error
        yield name, inputs


def _only(serialized: bytes, tag: bytes) -> bytes:
    """Return the payload of the only field with a tag."""
    (payload,) = [payload for found, payload in fields(serialized) if found == tag]
    return payload
