"""TensorFlow Serving's REST format: JSON requests to arrays, and arrays to JSON responses; and protocol buffers.

The format is documented at https://www.tensorflow.org/tfx/serving/api_rest: rows (`instances`, answered by
`predictions`) or columns (`inputs`, answered by `outputs`), and `{"b64": "..."}` for bytes, which outputs are whose
names end in `_bytes`.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from official_bert.serving.signatures import ArraySpec, RequestError
from official_bert.support.errors import format_names
from official_bert.support.wire import read_varint

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message
    from tensorflow.core.example.feature_pb2 import Feature

_ROWS, _COLUMNS = "instances", "inputs"
_MOST_SHOWN = 200  # maximum length of client data in messages
_BYTES_AT_ONCE = 1 << 20
_SMALL_MESSAGE = 1 << 16  # bytes of a protocol buffer that is parsed at once
# Number of values that take as much memory as any field of a parsed protocol buffer, and as a message in it.
_FIELD_COST, _MESSAGE_COST = 8, 64

AnyMessage = TypeVar("AnyMessage", bound="Message")


class MessageError(RequestError):
    """The request is not a serialized protocol buffer."""


class NamesError(RequestError):
    """The request's inputs differ from those of the signature."""


class JsonRequest(NamedTuple):
    """A parsed request, not yet converted to arrays."""

    signature_name: str  # the signature to call; empty for the one that reads the inputs
    values: Any  # a list of examples for rows, otherwise the inputs
    is_in_rows: bool  # whether `values` is a list of rows

    @property
    def input_names(self) -> set[str]:
        """The names of the inputs, if they are named."""
        first = self.values[0] if self.is_in_rows else self.values
        return set(first) if _is_named(first) else set()


def read_request(body: bytes, most_values: int) -> JsonRequest:
    request = read_object(body, most_values)
    if (_ROWS in request) == (_COLUMNS in request):
        raise RequestError('the request must have either "inputs" or "instances"')
    is_in_rows = _ROWS in request
    values = _examples(request, _ROWS) if is_in_rows else request[_COLUMNS]
    return JsonRequest(_signature_name(request), values, is_in_rows)


def _signature_name(request: Mapping[str, Any]) -> str:
    name = request.get("signature_name", "")
    if not isinstance(name, str):
        raise RequestError("signature_name must be a string")
    return name


def _examples(request: Mapping[str, Any], key: str) -> list[Any]:
    examples = request.get(key)
    if not (isinstance(examples, list) and examples):
        raise RequestError(f'the request must have "{key}", a list with at least one example')
    return examples


def read_object(body: bytes, most_values: int) -> dict[str, Any]:
    """Parse a JSON object; reject too many values before parsing, because Python's parser blocks all threads."""
    if len(body) > most_values and _has_more_values(body, most_values):
        raise RequestError(f"the request has more than {most_values} values")
    try:
        content = json.loads(body)
    except RecursionError as error:
        raise RequestError("the request is not JSON that can be read: it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise RequestError("the request is not JSON: it is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise RequestError(f"the request is not JSON: {error}") from error
    except ValueError as error:
        raise RequestError("the request is not JSON that can be read: a number has too many digits") from error
    if not isinstance(content, dict):
        raise RequestError("the request must be a JSON object")
    return content


def _has_more_values(body: bytes, most_values: int) -> bool:
    """Estimate whether JSON has more values than this: count commas and opening brackets outside strings."""
    if b"\\" in body:
        body = body.replace(rb"\\", b"__").replace(rb"\"", b"__")
    number, is_inside = 1, False
    for start in range(0, len(body), _BYTES_AT_ONCE):
        part = np.frombuffer(body, np.uint8, min(_BYTES_AT_ONCE, len(body) - start), start)
        is_string = np.logical_xor.accumulate(part == ord('"')) ^ is_inside
        number += np.count_nonzero(((part == ord(",")) | (part == ord("[")) | (part == ord("{"))) & ~is_string)
        if number > most_values:
            return True
        is_inside = is_string[-1]
    return False


def read_message(kind: type[AnyMessage], content: bytes, most_values: int) -> AnyMessage:
    """Parse a protocol buffer; reject too many values before parsing: two bytes can become a message of 200."""
    from google.protobuf.message import DecodeError

    try:
        if len(content) > _SMALL_MESSAGE and _cost(kind.DESCRIPTOR, content, most_values) > most_values:
            raise RequestError(f"the request has more than {most_values} values")
        return kind.FromString(content)
    except (DecodeError, IndexError) as error:
        raise MessageError(f"the request is not a serialized {kind.DESCRIPTOR.full_name}") from error


def _cost(kind: "Descriptor", content: bytes, most: int) -> int:
    """Estimate the memory of a parsed message in values; stop above `most`."""
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import DecodeError

    cost, pending = 0, [(kind, 0, len(content))]
    while pending:
        kind, position, end = pending.pop()
        while position < end and cost <= most:
            tag, position = read_varint(content, position)
            cost += _FIELD_COST
            if tag & 7 == 2:  # bytes, a message or packed numbers, after the size
                size, position = read_varint(content, position)
                field = kind.fields_by_number.get(tag >> 3)
                if position + size > end:
                    raise DecodeError("a field is longer than its message")
                if field is not None and field.message_type is not None:
                    cost += _MESSAGE_COST
                    pending.append((field.message_type, position, position + size))
                elif field is not None and field.cpp_type != FieldDescriptor.CPPTYPE_STRING:
                    cost += np.count_nonzero(np.frombuffer(content, np.uint8, size, position) < 0x80)
                position += size
            elif tag & 7:
                position += {1: 8, 5: 4}.get(tag & 7, len(content))
            else:
                _, position = read_varint(content, position)
        if position > end:
            raise DecodeError("a field is cut off")
    return cost


def read_examples(body: bytes, most_values: int) -> tuple[str, list[bytes]]:
    """Parse a request with `examples`; return the name of its signature, "" by default, and serialized tf.Examples."""
    request = read_object(body, most_values)
    examples, context = _examples(request, "examples"), _serialized("context", request.get("context", {}))
    return _signature_name(request), [context + _serialized('each of "examples"', features) for features in examples]


def _serialized(name: str, features: Any) -> bytes:
    """Return an object of features as a serialized tf.Example; two of them, one after the other, are one Example."""
    if not isinstance(features, dict):
        raise RequestError(f"{name} must be an object of features")
    from tensorflow.core.example.example_pb2 import Example

    example = Example()
    for key, value in features.items():
        example.features.feature[key.encode("utf-8", "ignore")].CopyFrom(_feature(key, value))
    return example.SerializeToString()


def _feature(name: str, value: Any) -> "Feature":
    from tensorflow.core.example.feature_pb2 import Feature

    values = value if isinstance(value, list) else [value]
    feature, kinds = Feature(), set(map(type, values))
    try:
        if kinds <= {int, bool}:
            feature.int64_list.value.extend(map(int, values))
        elif kinds == {float}:
            feature.float_list.value.extend(values)
        else:
            feature.bytes_list.value.extend(_as_bytes(f"the feature {quoted(name)}", item) for item in values)
    except ValueError as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"the feature {quoted(name)} must have whole numbers of at most 64 bits") from error
    return feature


def request_arrays(request: JsonRequest, types: Mapping[str, ArraySpec], most_examples: int) -> dict[str, np.ndarray]:
    columns = _columns(request, list(types), most_examples)
    check_names(columns, types)
    return {name: _array(name, columns[name], input_type, most_examples) for name, input_type in types.items()}


def quoted(value: str) -> str:
    """Format client data for a message: on one line, truncated."""
    return repr(value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}...")


def quoted_names(names: Iterable[str]) -> str:
    return format_names(name if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]}..." for name in sorted(names))


def check_size(name: str, rank: int, expected_rank: int, num_examples: int, most_examples: int) -> None:
    """Raise a RequestError unless values have the right rank and not too many examples."""
    if rank != expected_rank:
        raise RequestError(f"{name} must have {expected_rank} dimension(s), but has {rank}")
    check_number(num_examples, most_examples)


def check_number(num_examples: int, most: int) -> None:
    if num_examples > most:
        raise RequestError(f"the request has {num_examples} examples; at most {most} are allowed")


def check_names(inputs: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    if set(inputs) != set(expected):
        raise NamesError(
            f"the signature reads {format_names(sorted(expected))}, but the request has {quoted_names(inputs)}"
        )


def answer_body(outputs: Mapping[str, np.ndarray], is_in_rows: bool) -> bytes:
    """Return the JSON response, in the form of its request."""
    columns = {name: _plain(values, is_text=not name.endswith("_bytes")) for name, values in outputs.items()}
    (first, *others) = columns.values()
    if not is_in_rows:
        answer = {"outputs": columns if others else first}
    elif others:
        answer = {"predictions": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]}
    else:
        answer = {"predictions": first}
    return json.dumps(answer, ensure_ascii=False).encode()


def _columns(request: JsonRequest, names: list[str], most_examples: int) -> dict[str, Any]:
    values = request.values
    if request.is_in_rows:
        check_number(len(values), most_examples)
        if all(map(_is_named, values)):
            if any(row.keys() != values[0].keys() for row in values):
                raise RequestError('all of "instances" must have the same inputs')
            return {name: [row[name] for row in values] for name in values[0]}
    elif _is_named(values):
        return values
    if len(names) != 1:
        raise NamesError(f"the signature reads {format_names(sorted(names))}, so the values need these names")
    return {names[0]: values}


def _is_named(value: Any) -> bool:
    """Return True if the value is an object of named inputs, not bytes."""
    return isinstance(value, dict) and not _is_bytes(value)


def _is_bytes(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"}


def _array(name: str, value: Any, input_type: ArraySpec, most_examples: int) -> np.ndarray:
    rank, first = 0, value
    while isinstance(first, list):
        rank, first = rank + 1, first[0] if first else None
    check_size(name, rank, input_type.rank, len(value) if rank else 0, most_examples)
    if input_type.dtype != np.dtype(object):
        return _integer_array(name, value, rank, input_type.dtype)
    array = np.array(_encoded(name, value, rank), dtype=object)
    if array.ndim != input_type.rank or not all(isinstance(text, bytes) for text in array.flat):
        raise _ragged(name)
    return array


def _integer_array(name: str, values: Any, rank: int, dtype: np.dtype) -> np.ndarray:
    if not _are_whole(values, rank):  # NumPy would pad all strings to the longest
        raise RequestError(f"{name} must have whole numbers")
    try:
        array = np.array(values)
    except ValueError as error:
        raise _ragged(name) from error
    limits = np.iinfo(dtype)
    is_of_64_bits = array.dtype.kind in "iu"
    if array.size and not (is_of_64_bits and limits.min <= array.min() and array.max() <= limits.max):
        raise RequestError(f"{name} must be from {limits.min} to {limits.max}")
    return array.astype(dtype)


def _ragged(name: str) -> RequestError:
    return RequestError(f"{name} has rows of different lengths")


def _are_whole(values: Any, rank: int) -> bool:
    if rank == 0 or not isinstance(values, list):
        return type(values) is int
    return set(map(type, values)) <= {int} if rank == 1 else all(_are_whole(part, rank - 1) for part in values)


def _encoded(name: str, value: Any, rank: int) -> Any:
    if rank and isinstance(value, list):
        return [_encoded(name, part, rank - 1) for part in value]
    return _as_bytes(name, value)


def _as_bytes(name: str, value: Any) -> bytes:
    """Return a JSON string as bytes; as in the reference, unencodable characters (lone surrogates) are dropped."""
    if isinstance(value, str):
        return value.encode("utf-8", "ignore")
    if _is_bytes(value) and isinstance(value["b64"], str):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except ValueError as error:
            raise RequestError(f"{name} has a value of b64 that is not base64") from error
    kind = {list: "a list", dict: "an object"}.get(type(value)) or quoted(json.dumps(value))[1:-1]
    raise RequestError(f"{name} must have strings, not {kind}")


def _plain(values: np.ndarray, *, is_text: bool) -> Any:
    if values.dtype.kind != "O":
        return values.tolist()
    texts = np.empty(values.size, object)
    texts[:] = [
        text.decode("utf-8", "replace") if is_text else {"b64": base64.b64encode(text).decode()} for text in values.flat
    ]
    return texts.reshape(values.shape).tolist()
