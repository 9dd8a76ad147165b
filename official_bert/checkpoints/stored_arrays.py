"""Arrays in files of other programs. All weights, of every format, pass here.

A reader lists what its file declares: `check_declared` compares it with the file's size, and a `StoredArray` accepts
only floating-point numbers. Then names and shapes are compared with the model. Only after that, and only for the arrays
that the model needs, is data read, cast to float32 and required to be finite.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.support import files
from official_bert.support.errors import UserError

MAX_DECLARED_BYTES = 2 << 20  # of all names and shapes together; 50 KiB are usual
MAX_ARRAYS = 1 << 14
_MAX_NAME, _MAX_RANK, _MAX_SIZE = 1000, 8, 1 << 31
_STORED_TWICE = 2  # variables that are one, such as word embeddings and output weights, may share their bytes
# In the order of every family's table, each with its two variables.
_PARTS = ("query", "key", "value", "attention_output", "attention_norm", "intermediate", "output", "output_norm")


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """An array in a file: float32 when NumPy reads it, from any floating-point type; `read` returns it as stored."""

    path: str
    name: str
    dtype: Any
    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    def __post_init__(self):
        if getattr(self.dtype, "kind", "") != "f" and self.dtype != tf.bfloat16.as_numpy_dtype:
            raise UserError(
                f"{self.path}: {self.name} contains {self.dtype}, not floating-point numbers; is it quantized?"
            )

    @property
    def T(self) -> "StoredArray":  # noqa: N802 (as of NumPy's arrays)
        return self.changed(np.transpose)

    def changed(self, change: Callable[[np.ndarray], np.ndarray]) -> "StoredArray":
        """Return the array in another layout."""
        shape = change(np.broadcast_to(np.float32(0), self.shape)).shape
        return dataclasses.replace(self, shape=shape, read=lambda: change(self.read()))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return as_float32(self.read(), self.name, self.path)


def as_float32(array: np.ndarray, name: str, path: str) -> np.ndarray:
    """Return an array as float32, in C order; raise UserError if a number is not finite then."""
    with np.errstate(over="ignore"):
        array = np.asarray(array).astype(np.float32, order="C", copy=False)
    if not np.isfinite(array).all():
        raise UserError(
            f"{path}: {name} contains NaN or infinity, or numbers beyond float32; did the training diverge, or is the "
            "file damaged?"
        )
    return array


def check_declared(path: str, arrays: Mapping[str, tuple[tuple[int, ...], int]], num_bytes: int) -> None:
    """Raise UserError if a file of `num_bytes` cannot hold the arrays that it declares: shape and bytes a number."""
    if len(arrays) > MAX_ARRAYS:
        raise UserError(f"{path} declares {len(arrays):,} arrays; the limit is {MAX_ARRAYS:,}: it contains no BERT")
    for name, (shape, _) in arrays.items():
        if len(name) > _MAX_NAME or len(shape) > _MAX_RANK or not all(0 <= size < _MAX_SIZE for size in shape):
            raise UserError(f"{path} declares {name!r:.80} of the shape {list(shape)!s:.80}, which no BERT has")
    declared = sum(math.prod(shape) * itemsize for shape, itemsize in arrays.values())
    if declared > _STORED_TWICE * num_bytes:
        raise UserError(
            f"{path} declares arrays of {declared:,} bytes, but has {num_bytes:,}; it is damaged or truncated; get "
            "it again"
        )


def read_part(path: str, start: int, num_bytes: int) -> bytes:
    """Read some bytes of a file."""
    if start + num_bytes > files.size(path):
        raise UserError(f"{path} ends before byte {start + num_bytes:,}, which it declares; is it truncated?")
    with files.open_file(path, "rb") as source:
        source.seek(start)
        return source.read(num_bytes)


class LayerVariable(NamedTuple):
    """A variable of a layer: the layer's number (None if the name has none), its part, and 1 for a bias or beta."""

    number: int | None
    part: str
    index: int


def find_layer_variable(name: str, pattern: re.Pattern, parts: Mapping[str, str]) -> LayerVariable | None:
    """Return the variable of a layer that a name denotes; None for another name."""
    match = pattern.fullmatch(name)
    if match is None or match[2] not in parts:
        return None
    return LayerVariable(match[1] and int(match[1]), parts[match[2]], int(match[3] in ("1", "bias", "beta")))


def to_ours(variable: str | LayerVariable, array: StoredArray, config: BertConfig) -> tuple[str, StoredArray] | None:
    """Return a variable under our name and in our layout; None if the model has no such layer.

    Args:
      array: its value. Attention projections have axes for the heads, [width, heads, size], and the projection after
        attention [heads, size, width]; classes are the last axis.
    """
    if isinstance(variable, str):
        return variable, array.T if variable.endswith("output_weights") else array
    number, part, index = variable
    names = [rule.source for rule in config.family.hugging_face.parts["encoder"] if "{}" in rule.source]
    layers = config.layer_numbers[number or 0 :]
    if not layers:
        return None
    shape = array.shape
    if part in ("query", "key", "value") and len(shape) > 1:
        array = array.changed(lambda numbers: numbers.reshape(*shape[:-2], shape[-2] * shape[-1]))
    elif part == "attention_output" and len(shape) == 3:
        array = array.changed(lambda numbers: numbers.reshape(shape[0] * shape[1], shape[2]))
    return dict(zip(itertools.product(_PARTS, (0, 1)), names, strict=True))[part, index].format(*layers[0]), array
