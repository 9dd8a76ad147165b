"""`RecordSchema`: the fields of a record, declared once for writing, reading and checking.

A record is a serialized `tf.train.Example`. Writing builds its bytes directly: a few joins per record instead of the
reference's slow seven Python lists and protocol buffer. Reading uses TensorFlow's own parser in the graph, and NumPy
without TensorFlow.
"""

import dataclasses
import functools
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from official_bert.support.errors import UserError


class _VarintTable(dict):
    """Cache of varints; wordpiece ids repeat often."""

    def __missing__(self, number: int) -> bytes:
        rest = number + (1 << 64) if number < 0 else number  # two's complement, as in protocol buffers
        parts = []  # seven bits each; the eighth marks continuation
        while rest > 0x7F:
            parts.append(rest & 0x7F | 0x80)
            rest >>= 7
        encoded = self[number] = bytes([*parts, rest])
        return encoded


VARINTS = _VarintTable()


def delimited(tag: bytes, payload: bytes) -> bytes:
    return tag + VARINTS[len(payload)] + payload


def fields(message: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Parse a message whose fields are all bytes, strings and messages, numbered below 16."""
    position = 0
    while position < len(message):
        tag, size, shift = message[position], 0, 0
        if tag & 7 != 2 or tag > 0x7F:
            raise ValueError(f"a field with the tag {tag}")
        while True:
            position += 1
            if position >= len(message):
                raise ValueError("a field is cut off")
            size |= (message[position] & 0x7F) << shift
            shift += 7
            if message[position] < 0x80:
                break
        start, position = position + 1, position + 1 + size
        if position > len(message):
            raise ValueError("a field is cut off")
        yield bytes([tag]), message[start:position]


@dataclasses.dataclass(frozen=True)
class Field:
    name: str  # the feature's name on disk, in the model and in serving
    # lengths, or letters that `RecordSchema.sized` replaces; () is a single number, [1] on disk. A second
    # dimension is for a vector per position
    shape: tuple[int | str, ...]
    dtype: Literal["int32", "float32"]  # "int32" (int64 on disk) or "float32"
    # exclusive upper limit of integers, which are at least 0; a number or a letter; None for no limits
    below: int | str | None = None
    # whether its values belong to sequence positions, so that they are truncated with a batch padded to a shorter
    # length
    is_per_position: bool = False
    is_trimmed: bool = False  # whether only the values of real positions are on disk; reading pads with 0
    hint_if_absent: str = ""  # advice for records without this feature, for the message

    @property
    def length(self) -> int:
        """Maximum number of values on disk; the exact number without `is_trimmed`."""
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        return math.prod(self.shape[1:])

    def expected_size(self, num_values: int) -> str | None:
        """Return the expected number of values on disk, for a message; None if the number is valid."""
        if not self.is_trimmed:
            return None if num_values == self.length else str(self.length)
        if num_values > self.length:
            return f"at most {self.length}"
        return f"a multiple of {self.width}" if num_values % self.width else None


# Inputs of every model. S: positions per record, V: vocabulary size, T: number of segment types.
ENCODER_FIELDS = (
    Field("input_ids", ("S",), "int32", below="V", is_per_position=True),
    Field("input_mask", ("S",), "int32", below=2, is_per_position=True),
    Field("segment_ids", ("S",), "int32", below="T", is_per_position=True),
)


class RecordSchema:
    """The fields of a type of record.

    Examples:
      >>> schema = RecordSchema(Field("input_ids", ("S",), "int32", below="V")).sized(S=4, V=100)
      >>> record = schema.encode({"input_ids": [7, 8]})   # padded with 0 to four values
      >>> schema.decode([record])["input_ids"]            # [[7, 8, 0, 0]]
    """

    def __init__(self, *fields: Field, unwanted: Mapping[str, str] | None = None):
        self.fields = fields
        self._unwanted = unwanted or {}

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    @property
    def num_bytes(self) -> int:
        return sum(4 * field.length for field in self.fields)

    def sized(self, **lengths: int) -> "RecordSchema":
        """Replace letters in shapes and limits by numbers."""
        return RecordSchema(
            *(
                dataclasses.replace(
                    field,
                    shape=tuple(lengths.get(dim, dim) for dim in field.shape),
                    below=lengths.get(field.below, field.below),
                )
                for field in self.fields
            ),
            unwanted=self._unwanted,
        )

    def with_fields(self, *fields: Field) -> "RecordSchema":
        return RecordSchema(*self.fields, *fields, unwanted=self._unwanted)

    def encode(self, values: Mapping[str, Sequence]) -> bytes:
        """Serialize a record, padded with 0; integers below 128 may be `bytes`, and floats a float32 array."""
        parts = []
        for name, length, is_trimmed, serialize, prefixes in self._encoders:
            numbers = values[name]
            padding = length - len(numbers)
            if padding < 0:
                raise ValueError(f"{name} has {len(numbers)} values for a field of {length}")
            values_on_disk = serialize(numbers, 0 if is_trimmed else padding)
            parts += prefixes[len(values_on_disk)], values_on_disk
        return delimited(b"\x0a", b"".join(parts))  # Example.features

    @functools.cached_property
    def _encoders(self) -> list[tuple]:
        """Facts about each field for `encode`, which would otherwise spend most of its time in calls."""
        return [
            (
                field.name,
                field.length,
                field.is_trimmed,
                _serialize_floats if field.dtype == "float32" else _serialize_integers,
                _EntryPrefixes(field.name, field.dtype),
            )
            for field in self.fields
        ]

    def decode(self, serialized: Any) -> dict[str, Any]:
        """Parse a batch of records, string [B], in the graph to tensors [B, *shape]; integers as int32."""
        import tensorflow as tf  # writing does not need TensorFlow

        features = tf.io.parse_example(serialized, {field.name: _specification(field) for field in self.fields})
        limits = []
        for field in self.fields:
            if field.is_trimmed:
                num_values = features[field.name].row_lengths()
                is_fit = tf.reduce_all((num_values <= field.length) & (num_values % field.width == 0))
                message = f"{field.name} must have {field.width} values at each of up to {field.shape[0]} positions"
                limits.append(tf.debugging.Assert(is_fit, [message]))
                flat = features[field.name].to_tensor(shape=[None, field.length])
                features[field.name] = tf.reshape(flat, [-1, *field.shape])
            if field.below is not None:
                numbers, message = features[field.name], f"{field.name} must be from 0 to {field.below - 1}"
                limits.append(tf.debugging.Assert(tf.reduce_all((numbers >= 0) & (numbers < field.below)), [message]))
        with tf.control_dependencies(limits):
            return {field.name: tf.cast(features[field.name], field.dtype) for field in self.fields}

    def decode_numpy(self, records: Sequence[bytes]) -> dict[str, np.ndarray]:
        """Parse a batch of records without TensorFlow, to arrays like the tensors of `decode`."""
        features = [_features(record) for record in records]
        for found in features:
            for name, message in self._unwanted.items():
                if name in found:
                    raise UserError(message)
            for field in self.fields:
                if field.name not in found:
                    lacking = f"it lacks the feature {field.name!r} (it has: {', '.join(sorted(found)) or 'none'})"
                    raise UserError(f"{lacking}; {field.hint_if_absent}" if field.hint_if_absent else lacking)
        return {field.name: _decoded(field, [found[field.name] for found in features]) for field in self.fields}

    def check(self, serialized: bytes) -> None:
        self.decode_numpy([serialized])


# The wire format of tf.train.Example: Example{1: Features{1: map<string, Feature>}}, where a map entry is {1: key,
# 2: Feature}, a Feature is {2: FloatList} or {3: Int64List}, and a list is {1: packed values}.
_KEY, _VALUE = b"\x0a", b"\x12"
_LISTS, _BYTES_LIST = {"float32": b"\x12", "int32": b"\x1a"}, b"\x0a"
_LONGEST_VARINT = 10  # bytes
_DAMAGED = "it is not a serialized tf.train.Example"
_VARINT_OF = VARINTS.__getitem__


def _serialize_integers(numbers: Sequence[int], padding: int) -> bytes:
    serialized = numbers if isinstance(numbers, bytes) else b"".join(map(_VARINT_OF, numbers))
    return serialized + bytes(padding)


def _features(record: bytes) -> dict[str, tuple[bytes, bytes]]:
    """Parse a record: for each feature the tag of its list, and the bytes of its values."""
    features = {}
    try:
        for _, message in fields(record):
            for _, entry in fields(message):
                parts = dict(fields(entry))
                for tag, values in fields(parts.get(_VALUE, b"")):
                    features[parts[_KEY].decode()] = tag, b"".join(packed for _, packed in fields(values))
    except (KeyError, ValueError) as error:
        raise UserError(_DAMAGED) from error
    return features


def example_of(values: Mapping[str, Any]) -> bytes:
    """Serialize a record without a schema: float32 arrays, bytes, and lists of integers, by name in order."""
    entries = []
    for name, value in sorted(values.items()):
        if isinstance(value, bytes):
            tag, content = _BYTES_LIST, value
        elif isinstance(value, np.ndarray):
            tag, content = _LISTS["float32"], value.astype("<f4").tobytes()
        else:
            tag, content = _LISTS["int32"], _serialize_integers(value, 0)
        feature = delimited(tag, delimited(b"\x0a", content))
        entries.append(delimited(b"\x0a", delimited(_KEY, name.encode()) + delimited(_VALUE, feature)))
    return delimited(b"\x0a", b"".join(entries))


def values_of(record: bytes) -> dict[str, Any]:
    """Parse such a record: float32 and int64 arrays, and bytes, by name."""
    kinds = {tag: dtype for dtype, tag in _LISTS.items()}
    return {
        name: content if tag == _BYTES_LIST else _numbers(kinds[tag], [content])[0]
        for name, (tag, content) in _features(record).items()
    }


def _decoded(field: Field, values: Sequence[tuple[bytes, bytes]]) -> np.ndarray:
    """Return a field of a batch, [B, *shape]."""
    if any(tag != _LISTS[field.dtype] for tag, _ in values):
        raise UserError(f"{field.name} has values of another type, expected {field.dtype}")
    numbers, counts = _numbers(field.dtype, [packed for _, packed in values])
    for count in np.unique(counts):
        if expected := field.expected_size(count):
            raise UserError(f"{field.name} has {count} values, expected {expected}")
    if field.below is not None and (wrong := numbers[(numbers < 0) | (numbers >= field.below)]).size:
        raise UserError(f"{field.name} contains {wrong[0]}, which is not in the range from 0 to {field.below - 1}")
    if field.is_trimmed:
        rows = np.zeros([len(values), field.length], field.dtype)
        rows[np.arange(field.length) < counts[:, np.newaxis]] = numbers
        numbers = rows
    return numbers.reshape(len(values), *field.shape).astype(field.dtype)


def _numbers(dtype: str, values: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Decode the values of a field in all records together; return them, and their number in each record."""
    octets, sizes = np.frombuffer(b"".join(values), np.uint8), np.array([*map(len, values)], np.int64)
    if dtype == "float32":
        if (sizes % 4).any():
            raise UserError(_DAMAGED)
        return octets.view("<f4"), sizes // 4
    is_last = octets < 0x80  # of a varint
    totals = np.concatenate([[0], np.cumsum(is_last)])
    ends, (last,) = np.cumsum(sizes), np.nonzero(is_last)
    starts = np.concatenate([[0], last + 1])[:-1]
    lengths = last + 1 - starts
    if not is_last[ends[sizes > 0] - 1].all() or lengths.max(initial=0) > _LONGEST_VARINT:
        raise UserError(_DAMAGED)
    numbers = np.zeros(len(last), np.uint64)
    for place in range(lengths.max(initial=0)):
        has_more = lengths > place
        sevens = (octets[starts[has_more] + place] & 0x7F).astype(np.uint64)
        numbers[has_more] |= sevens << np.uint64(7 * place)
    return numbers.view(np.int64), totals[ends] - totals[ends - sizes]


def _specification(field: Field) -> Any:
    import tensorflow as tf

    dtype = tf.float32 if field.dtype == "float32" else tf.int64
    return tf.io.RaggedFeature(dtype) if field.is_trimmed else tf.io.FixedLenFeature(field.shape, dtype)


def _serialize_floats(numbers: Sequence[float], padding: int) -> bytes:
    if isinstance(numbers, np.ndarray):
        return numbers.astype("<f4").tobytes() + bytes(4 * padding)
    return struct.pack(f"<{len(numbers)}f", *numbers) + bytes(4 * padding)


class _EntryPrefixes(dict):
    """Cache of the bytes before a feature's values, by number of bytes."""

    def __init__(self, name: str, dtype: str):
        super().__init__()
        self._name, self._dtype = name, dtype

    def __missing__(self, num_bytes: int) -> bytes:
        feature = delimited(b"\x12" if self._dtype == "float32" else b"\x1a", delimited(b"\x0a", bytes(num_bytes)))
        entry = delimited(b"\x0a", delimited(b"\x0a", self._name.encode()) + delimited(b"\x12", feature))
        prefix = self[num_bytes] = entry[: len(entry) - num_bytes]
        return prefix

    def __reduce__(self) -> tuple:
        return _EntryPrefixes, (self._name, self._dtype)
