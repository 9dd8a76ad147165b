"""Signatures of a loaded export, from named arrays to named arrays; and `Reader`, from texts to arrays and back."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from official_bert.config.bert_config import ENCODER_INPUTS
from official_bert.serving.batching import Arrays, work
from official_bert.tokenization import Tokenizer

_CHARACTERS_PER_PIECE = 16  # few texts have more on average
_BLANKS = " \t\n\r\u3000"  # at which every tokenizer splits
_MOST_WORK = 1 << 11  # positions computed together
MOST_LOGITS = 1 << 24  # computed together
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


class Reading(NamedTuple):
    """An example as the sequences that the model reads, and what its answer needs of it."""

    sequences: list[Mapping[str, Any]]  # input_ids, input_mask and segment_ids of each, without padding at the end
    parts: Any = None


class Reader:
    """Python form of a `Servable`'s operations in a SavedModel, and of what a command does to the texts of a file.

    Each task has one, in its module `reader`.
    """

    has_windows = False  # whether an example may have several sequences

    def __init__(self, said: Mapping[str, Any], tokenizer: Tokenizer):
        """Create a reader from the description of an export."""
        self.said, self.tokenizer, self.specials = said, tokenizer, tokenizer.specials
        self.max_seq_length = said["max_seq_length"]
        self.num_read: int | None = None  # wordpieces of a text after which nothing is read
        self.num_logits = 1  # per position, if it has many

    def beginning(self, text: str, *, is_cut: bool = False) -> str | None:
        """Cut off the end of a long text, at a blank, if enough wordpieces are left: to tokenize all takes longer.

        None if the text `is_cut` already, maybe within a word, and has too few.
        """
        sizes = [] if self.num_read is None else [self.num_read * _CHARACTERS_PER_PIECE, *[len(text)] * is_cut]
        for size in sizes:
            beginning = text[: max(0, *(text.rfind(blank, 0, size) for blank in _BLANKS))] if size <= len(text) else ""
            if beginning and len(self.tokenizer.encode(beginning)) > self.num_read:
                return beginning
        return None if is_cut else text

    def encode(self, *texts: str) -> Reading:
        """Convert the texts of an example, one for each of the description's `text_names`."""
        raise NotImplementedError

    def further_signatures(self, model: Any) -> list["Signature"]:
        """Return the signatures that only an `EngineModel` of this task has."""
        del model
        return []

    def most_rows(self, length: int) -> int:
        """Return the number of sequences of a length that are computed together."""
        return max(min(_MOST_WORK // work(1, length), MOST_LOGITS // (length * self.num_logits)), 1)

    def named(self, outputs: Arrays) -> Arrays:
        """Add the names of labels to outputs of sequences, [B, ...]: the outputs of the signature for ids."""
        return outputs

    def stacked(self, rows: Sequence[Arrays]) -> Arrays:
        """Convert the outputs of each sequence to those of the signature for ids, [B, ...]."""
        tables = {name: padded_table([row[name] for row in rows], rows[0][name].dtype.type()) for name in rows[0]}
        return self.named(tables)

    def decode(self, readings: Sequence[Reading], outputs: Sequence[Sequence[Arrays]]) -> Arrays:
        """Convert the outputs of each example's sequences to the outputs of the signature `text`, [B, ...]."""
        del readings
        return self.stacked([row for (row,) in outputs])

    def specs(self, numbers: Specs) -> dict[str, Specs]:
        """Return the outputs of the signatures, given those of an engine: of `named`, `decode` and `tokenize`."""
        ids = ArraySpec(np.dtype(np.int32), (None,) * (2 + self.has_windows))
        return {SERVING_DEFAULT: numbers, TEXT: numbers, TOKENIZE: dict.fromkeys(ENCODER_INPUTS, ids)}


def padded_table(rows: Iterable[Any], empty: Any, width: int = 0) -> np.ndarray:
    """Stack arrays or lists of different shapes: [B, ...], filled up with a value whose type the table has."""
    rows = [np.array(row, dtype_of(empty)) for row in rows]
    sizes = [max(sizes) for sizes in zip(*(row.shape for row in rows), strict=True)]
    if width:
        sizes[0] = width
    check_table_size(len(rows), math.prod(sizes))
    table = np.full([len(rows), *sizes], empty, rows[0].dtype)
    for number, row in enumerate(rows):
        table[(number, *map(slice, row.shape))] = row
    return table


def dtype_of(value: Any) -> np.dtype:
    return np.dtype(object) if isinstance(value, bytes) else np.asarray(value).dtype


def check_table_size(num_rows: int, width: int) -> None:
    """Raise RequestError if padding rows to a width would take much memory; one row always fits."""
    if num_rows > 1 and num_rows * width > MOST_CELLS:
        raise RequestError(
            f"each table of the response is limited to {MOST_CELLS} cells (examples times the length of the longest); "
            f"send fewer examples per request; the number of cells would be {num_rows * width}"
        )


def softmax(scores: np.ndarray) -> np.ndarray:
    """Return probabilities over the last axis."""
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)
