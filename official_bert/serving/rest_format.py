"""TensorFlow Serving's REST format: JSON requests to arrays, and arrays to JSON answers.

The format is that of https://www.tensorflow.org/tfx/serving/api_rest: rows (`instances`, answered by `predictions`) or
columns (`inputs`, answered by `outputs`), and `{"b64": "..."}` for bytes.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from official_bert.serving.servable import SERVING_DEFAULT
from official_bert.support.errors import listed

_ROWS, _COLUMNS = "instances", "inputs"
_KEYS = {"signature_name", _ROWS, _COLUMNS}


class RequestError(ValueError):
    """A mistake of the client; the message says what is wrong."""


class JsonRequest(NamedTuple):
    """A request of which the values are not yet arrays.

    Attributes:
      signature_name: the signature to call.
      values: for rows a list of examples, otherwise the inputs.
      is_in_rows: whether `values` are rows.
    """

    signature_name: str
    values: Any
    is_in_rows: bool


def read_request(body: bytes) -> JsonRequest:
    """Reads a request.

    Raises:
      RequestError: it is not JSON, or not such a request.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the request is not JSON: {error}") from error
    if not isinstance(request, dict):
        raise RequestError('the request must be a JSON object with "inputs" or "instances"')
    if unknown := set(request) - _KEYS:
        raise RequestError(f"the request has an unknown key: {listed(sorted(unknown))}")
    if (_ROWS in request) == (_COLUMNS in request):
        raise RequestError('the request must have either "inputs" or "instances"')
    name = request.get("signature_name", SERVING_DEFAULT)
    if not isinstance(name, str):
        raise RequestError("signature_name must be a string")
    is_in_rows = _ROWS in request
    values = request[_ROWS if is_in_rows else _COLUMNS]
    if is_in_rows and not (isinstance(values, list) and values):
        raise RequestError('"instances" must be a list with at least one example')
    return JsonRequest(name, values, is_in_rows)


def request_arrays(request: JsonRequest, dtypes: Mapping[str, np.dtype]) -> dict[str, np.ndarray]:
    """Makes arrays of a request.

    Args:
      request: the request.
      dtypes: the type of each input of its signature; strings have the type object.

    Returns:
      The values by input; strings as bytes.

    Raises:
      RequestError: they are not what the signature reads.
    """
    columns = _columns(request, list(dtypes))
    check_names(columns, dtypes)
    return {name: _array(name, columns[name], dtype) for name, dtype in dtypes.items()}


def check_names(inputs: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raises a RequestError unless the inputs have the names that a signature has."""
    if set(inputs) != set(expected):
        raise RequestError(
            f"the signature reads {listed(sorted(expected))}, but the request has {listed(sorted(inputs))}"
        )


def answer_body(outputs: Mapping[str, np.ndarray], is_in_rows: bool) -> bytes:
    """The JSON of an answer, in the form of its request."""
    columns = {name: _plain(values) for name, values in outputs.items()}
    (first, *others) = columns.values()
    if not is_in_rows:
        answer = {"outputs": columns if others else first}
    elif others:
        answer = {"predictions": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]}
    else:
        answer = {"predictions": first}
    return json.dumps(answer, ensure_ascii=False).encode()


def as_integers(name: str, values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Changes the type of whole numbers.

    Raises:
      RequestError: they are none, or too large for the type.
    """
    if values.size and values.dtype.kind not in "iu":
        raise RequestError(f"{name} must have whole numbers of at most 64 bits")
    limits = np.iinfo(dtype)
    if values.size and not (limits.min <= values.min() and values.max() <= limits.max):
        raise RequestError(f"{name} must be from {limits.min} to {limits.max}")
    return values.astype(dtype)


def _columns(request: JsonRequest, names: list[str]) -> dict[str, Any]:
    values = request.values
    if not request.is_in_rows:
        if _is_named(values):
            return values
    elif all(map(_is_named, values)):
        if any(row.keys() != values[0].keys() for row in values):
            raise RequestError('all of "instances" must have the same inputs')
        return {name: [row[name] for row in values] for name in values[0]}
    if len(names) != 1:
        raise RequestError(f"the signature reads {listed(sorted(names))}, so the values need these names")
    return {names[0]: values}


def _is_named(value: Any) -> bool:
    """Whether it is an object with names of inputs, and not bytes."""
    return isinstance(value, dict) and not _is_bytes(value)


def _is_bytes(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"}


def _array(name: str, value: Any, dtype: np.dtype) -> np.ndarray:
    if dtype != np.dtype(object):
        try:
            return as_integers(name, np.array(value), dtype)
        except ValueError as error:
            raise error if isinstance(error, RequestError) else _ragged(name) from error
    array = np.array(_encoded(name, value), dtype=object)
    if not all(isinstance(text, bytes) for text in array.flat):
        raise _ragged(name)
    return array


def _ragged(name: str) -> RequestError:
    return RequestError(f"{name} has rows of different lengths")


def _encoded(name: str, value: Any) -> Any:
    """The same with bytes for strings; as in the reference, what cannot be encoded (a lone surrogate) is dropped."""
    if isinstance(value, list):
        return [_encoded(name, part) for part in value]
    if isinstance(value, str):
        return value.encode("utf-8", "ignore")
    if _is_bytes(value) and isinstance(value["b64"], str):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except binascii.Error as error:
            raise RequestError(f"{name}: {error}, in the value of b64") from error
    raise RequestError(f"{name} must have strings, not {json.dumps(value):.40}")


def _plain(values: np.ndarray) -> Any:
    if values.dtype.kind != "O":
        return values.tolist()
    return np.vectorize(lambda text: text.decode("utf-8", "replace"), otypes=[object])(values).tolist()
