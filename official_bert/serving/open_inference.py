"""The Open Inference Protocol (V2): convert REST requests to those of KServe, and their tensors to arrays.

KServe's own parser blocks the event loop, and trusts the lengths and shapes that clients claim.
"""

import math
import struct
from collections.abc import Mapping
from typing import Any

import kserve
import numpy as np
from kserve.protocol.infer_type import RequestedOutput
from kserve.utils.numpy_codec import from_np_dtype

from official_bert.serving.rest_format import (
    InputType,
    RequestError,
    as_bytes,
    as_integers,
    check_names,
    check_size,
    integer_array,
    quoted,
    read_object,
)

LENGTH_HEADER = "inference-header-content-length"  # length of the JSON, which binary values follow


def read_open_request(body: bytes, json_length: str | None, model_name: str, most_values: int) -> kserve.InferRequest:
    """Parse a REST request."""
    length = len(body)
    if json_length is not None:
        is_number = json_length.isascii() and json_length.isdecimal() and len(json_length) < 20
        if not is_number or int(json_length) > len(body):
            raise RequestError(f"Inference-Header-Content-Length must be a number of at most {len(body)}")
        length = int(json_length)
    content = read_object(body[:length], most_values)
    tensors, end = [], length
    for entry in _objects(content, "inputs"):
        tensor = kserve.InferInput(
            _string(entry, "name"), _shape(entry), _string(entry, "datatype"), parameters=_parameters(entry)
        )
        if "data" in entry:
            if not isinstance(entry["data"], list):
                raise RequestError(f"the data of {quoted(tensor.name)} must be a list")
            tensor.data = entry["data"]
        else:
            size = tensor.parameters.get("binary_data_size")
            if type(size) is not int or not 0 <= size <= len(body) - end:
                raise RequestError(f"{quoted(tensor.name)} has no data, neither as JSON nor as binary data")
            tensor._raw_data = body[end : end + size]
            end += size
        tensors.append(tensor)
    if not tensors:
        raise RequestError('the request must have "inputs"')
    outputs = [RequestedOutput(_string(entry, "name"), _parameters(entry)) for entry in _objects(content, "outputs")]
    request_id = content.get("id")
    if not isinstance(request_id, str | None):
        raise RequestError("the id must be a string")
    return kserve.InferRequest(
        model_name, tensors, request_id, parameters=_parameters(content), request_outputs=outputs or None
    )


def open_arrays(
    request: kserve.InferRequest, types: Mapping[str, InputType], most_examples: int
) -> dict[str, np.ndarray]:
    """Convert a REST or gRPC request to arrays."""
    tensors = {tensor.name: tensor for tensor in request.inputs}
    check_names(tensors, types)
    return {name: _array(tensors[name], input_type, most_examples) for name, input_type in types.items()}


def _array(tensor: kserve.InferInput, input_type: InputType, most_examples: int) -> np.ndarray:
    name, shape, dtype = tensor.name, tensor.shape, input_type.dtype
    if tensor.datatype != from_np_dtype(dtype):
        raise RequestError(f"{name} must have the datatype {from_np_dtype(dtype)}, not {quoted(tensor.datatype)}")
    if any(size < 0 for size in shape):
        raise RequestError(f"{name} must have a shape of numbers from 0")
    check_size(name, len(shape), input_type.rank, shape[0] if shape else 0, most_examples)
    number = math.prod(shape)
    raw = tensor._raw_data
    if raw is None:
        values = _flat(tensor.data, len(shape))
        _check_number(name, len(values), shape)
        if dtype != np.dtype(object):
            return integer_array(name, values, 1, dtype).reshape(shape)
        strings = [text if isinstance(text, bytes) else as_bytes(name, text) for text in values]
    elif dtype != np.dtype(object):
        if len(raw) % dtype.itemsize:
            raise RequestError(f"{name} has {len(raw)} bytes, which is not a whole number of values")
        _check_number(name, len(raw) // dtype.itemsize, shape)
        return as_integers(name, np.frombuffer(raw, dtype), dtype).reshape(shape)
    else:
        strings = _raw_strings(name, raw, number)
    array = np.empty(number, object)
    array[:] = strings
    return array.reshape(shape)


def _check_number(name: str, number: int, shape: list[int]) -> None:
    if number != math.prod(shape):
        raise RequestError(f"{name} has {number} values, but says that its shape is {shape}")


def _flat(values: Any, rank: int) -> list[Any]:
    """Return values from JSON, which may be nested according to the shape."""
    for _ in range(rank - 1):
        if not (values and all(isinstance(part, list) for part in values)):
            break
        values = [value for part in values for value in part]
    return values


def _raw_strings(name: str, raw: bytes, number: int) -> list[bytes]:
    """Parse length-prefixed strings."""
    strings, position = [], 0
    while position < len(raw) and len(strings) < number:
        if position + 4 > len(raw):
            break
        (length,) = struct.unpack_from("<I", raw, position)
        position += 4
        strings.append(raw[position : position + length])
        position += length
    if position != len(raw) or len(strings) != number:
        raise RequestError(f"{name} does not have {number} strings, each after its length in 4 bytes")
    return strings


def _objects(content: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    values = content.get(key) or []
    if not (isinstance(values, list) and all(isinstance(value, dict) for value in values)):
        raise RequestError(f'"{key}" must be a list of objects')
    return values


def _string(entry: Mapping[str, Any], key: str) -> str:
    if not isinstance(entry.get(key), str):
        raise RequestError(f'each of "inputs" and "outputs" must have a string "{key}"')
    return entry[key]


def _shape(entry: Mapping[str, Any]) -> list[int]:
    shape = entry.get("shape")
    if not (isinstance(shape, list) and all(type(size) is int for size in shape)):
        raise RequestError('each of "inputs" must have a "shape", a list of numbers')
    return shape


def _parameters(entry: Mapping[str, Any]) -> dict[str, Any]:
    parameters = entry.get("parameters") or {}
    if not (
        isinstance(parameters, dict) and all(isinstance(value, str | int | float) for value in parameters.values())
    ):
        raise RequestError('"parameters" must be an object of strings and numbers')
    return parameters
