"""Signatures of a loaded export, whatever computes it: named arrays to named arrays."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Arrays = Mapping[str, np.ndarray]

MOST_CELLS = 1 << 21  # maximum size of an output table, unless that of one text of the longest length is larger

SIGNATURES = ("serving_default", "serving_int64", "examples", "text", "tokenize")
SERVING_DEFAULT, SERVING_INT64, EXAMPLES, TEXT, TOKENIZE = SIGNATURES
# Signatures of some models: for the methods of TensorFlow Serving with tf.Examples, by name, and for tokens.
METHODS = {"classify": "tensorflow/serving/classify", "regress": "tensorflow/serving/regress"}
CLASSIFY, REGRESS = METHODS
TOKEN_VECTORS = "token_vectors"


class RequestError(ValueError):
    """A client error; the message describes it."""


class ArraySpec(NamedTuple):
    """An input or output of a signature."""

    dtype: np.dtype  # object for strings
    shape: tuple[int | None, ...]  # None for sizes that differ

    @property
    def rank(self) -> int:
        return len(self.shape)


Specs = Mapping[str, ArraySpec]


class Signature(NamedTuple):
    name: str
    inputs: Specs
    outputs: Specs
    compute: Callable[[Arrays], Arrays]  # raises RequestError for inputs that do not fit

    @property
    def is_joining(self) -> bool:
        """True if an output's shape does not depend on the other rows of a batch."""
        return all(None not in spec.shape[1:] for spec in self.outputs.values())

    @property
    def most_rows(self) -> int:
        """Maximum number of examples in a response; of tables whose shape depends on texts, the model takes care."""
        widths = (1 if None in spec.shape[1:] else math.prod(spec.shape[1:]) for spec in self.outputs.values())
        return max(MOST_CELLS // max(*widths, 1), 1)


class LoadedExport(NamedTuple):
    signatures: dict[str, Signature]
    definitions: dict[str, Any]  # the signatures in TensorFlow Serving's metadata format
    source: Any  # what must live as long: the weights
    first_requests: Mapping[str, Arrays] = {}  # to warm up the signatures that are asked first, by name
    later_requests: Mapping[str, Arrays] = {}  # and the others
    tokenizer: Any = None  # if it is not in the model


_TYPES = {"int32": "DT_INT32", "int64": "DT_INT64", "float32": "DT_FLOAT", "bool": "DT_BOOL", "object": "DT_STRING"}
_TYPES |= {"int8": "DT_INT8", "uint8": "DT_UINT8"}
PREDICT = "tensorflow/serving/predict"  # the method of signatures without another one


def definitions_of(signatures: Mapping[str, Signature]) -> dict[str, Any]:
    """Describe signatures as TensorFlow Serving's metadata does."""

    def described(name: str, spec: ArraySpec) -> dict[str, Any]:
        sizes = [{"size": str(-1 if size is None else size), "name": ""} for size in spec.shape]
        return {"name": name, "dtype": _TYPES[spec.dtype.name], "tensor_shape": {"dim": sizes, "unknown_rank": False}}

    return {
        name: {
            "inputs": {key: described(key, spec) for key, spec in signature.inputs.items()},
            "outputs": {key: described(key, spec) for key, spec in signature.outputs.items()},
            "method_name": PREDICT,
        }
        for name, signature in signatures.items()
    }
