"""Loads SavedModels, the exports that TensorFlow computes, with their signatures; and their warm-up requests.

TensorFlow optimizes the graph of a signature in its first call, which takes seconds. So each export holds requests to
all of its signatures, which TensorFlow Serving and `serve` replay before they answer.
"""

import functools
import importlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from google.protobuf import json_format, message
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import saved_model_pb2

from official_bert.data.record_files import read_records
from official_bert.data.schema import delimited, fields
from official_bert.serving.batching import estimated_lengths, work
from official_bert.serving.rest_format import MessageError, RequestError, read_message
from official_bert.serving.servable import Servable, Tensors
from official_bert.serving.signatures import (
    EXAMPLES,
    METHODS,
    SERVING_DEFAULT,
    SERVING_INT64,
    TEXT,
    TOKENIZE,
    Arrays,
    ArraySpec,
    LoadedExport,
    Signature,
)
from official_bert.serving.versions import ASSETS_FOLDER, SAVED_MODEL_FILE, check_whole, description, model_file
from official_bert.support import files
from official_bert.support.errors import UserError, folder_of_tensorflow_text, plain_message
from official_bert.tokenization.tokenizer_files import tokenizer_kinds

READS_SPLIT_TEXTS = "%s reads texts that are split already, by morphemes=%s: send tokenizer.split_text(text)"

_MOST_IN_AN_EXAMPLE = 1 << 17  # values of a tf.Example

# Exceptions of `tf.saved_model.load` for corrupt exports without checksums.
_LOADING_ERRORS = (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, tf.errors.OpError)


def load_version(folder: str) -> Any:
    if (name := model_file(folder)) not in (None, SAVED_MODEL_FILE):
        raise UserError(f"{folder} has {name}, not a SavedModel; official_bert.Predictor and `serve` read it")
    check_whole(folder)
    if morphemes := description(folder).get("morphemes"):
        logging.warning(READS_SPLIT_TEXTS, folder, morphemes)
    kinds = (kind.vocabulary_class for kind in tokenizer_kinds().values())
    models = [kind.file_name for kind in kinds if kind.flag == "spm_model_file"]
    if any(files.exists(os.path.join(folder, ASSETS_FOLDER, name)) for name in models):
        folder_of_tensorflow_text("a SentencePiece model in a SavedModel")
        importlib.import_module("tensorflow_text")  # registers the tokenization operation
    try:
        return tf.saved_model.load(folder)
    except tf.errors.ResourceExhaustedError:
        raise
    except _LOADING_ERRORS as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UserError(f"{folder} cannot be loaded ({reason}); is it damaged? Export the model again") from error


def load_export(folder: str) -> LoadedExport:
    """Load a version for the server."""
    export = load_version(folder)
    signatures = {name: signature_of(name, function) for name, function in export.signatures.items()}
    warmup_file = os.path.join(folder, *WARMUP_FILE)
    requests = least_requests(warmup_file) if files.exists(warmup_file) else ()
    return LoadedExport(signatures, _definitions(folder, signatures), export, *requests)


def signature_of(name: str, function: Any) -> Signature:
    """Return a signature that computes a function of named tensors."""
    inputs, outputs = (
        {key: ArraySpec(np.dtype(spec.dtype.as_numpy_dtype), tuple(spec.shape)) for key, spec in specs.items()}
        for specs in (function.structured_input_signature[1], function.structured_outputs)
    )
    return Signature(name, inputs, outputs, functools.partial(call_signature, name, function))


def call_signature(name: str, function: Any, inputs: Mapping[str, Any]) -> Arrays:
    """Compute the function of a signature for arrays, or lists, by name; raises RequestError if they do not fit."""
    if name in (EXAMPLES, *METHODS):
        for number, value in enumerate(*inputs.values()):
            _check_example(number, value)
    try:
        outputs = function(**{key: tf.constant(values) for key, values in inputs.items()})
    except tf.errors.InvalidArgumentError as error:  # without the graph: "ids must be from 0 to 9, but is 12"
        raise RequestError(plain_message(error) or "the request does not fit the model") from error
    return {key: outputs[key].numpy() for key in sorted(outputs)}  # a SavedModel does not preserve order


def _definitions(folder: str, names: Any) -> dict[str, Any]:
    with files.open_file(os.path.join(folder, SAVED_MODEL_FILE), "rb") as source:
        definitions = saved_model_pb2.SavedModel.FromString(source.read()).meta_graphs[0].signature_def
    return {
        name: json_format.MessageToDict(
            definitions[name], preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        for name in names
    }


def _check_example(number: int, value: bytes) -> None:
    try:
        read_message(tf.train.Example, value, _MOST_IN_AN_EXAMPLE)
    except MessageError as error:
        raise RequestError(f"item {number} of {EXAMPLES} is not a serialized tf.train.Example") from error


# PredictionLog{6: PredictLog{1: PredictRequest}}; PredictRequest: {1: ModelSpec, 2: map<string, TensorProto>}; map
# entry: {1: key, 2: value}; ModelSpec: {1: name, 3: signature name}.
_FIRST, _SECOND, _THIRD, _SIXTH = (bytes([8 * number + 2]) for number in (1, 2, 3, 6))
WARMUP_FILE = ("assets.extra", "tf_serving_warmup_requests")  # in the folder of a version

_LENGTHS, _BATCHES = (16, 64, 256), (1, 2, 8)  # positions, also the model's maximum; examples per request
_MOST_WORK = 1024  # of a request, in positions: more take time, and only the first call of a signature is slow
_ASKED_FIRST = (SERVING_DEFAULT, TEXT, TOKENIZE)  # the signatures that all endpoints and most clients call


def warmup_requests(servable: Servable) -> Iterator[tuple[str, Tensors]]:
    """Return requests of several lengths and batch sizes for every signature: name and inputs."""
    lengths = [length for length in _LENGTHS if length < servable.max_seq_length] + [servable.max_seq_length]
    for length in lengths:
        for num_examples in _BATCHES:
            if work(num_examples, length) > _MOST_WORK and length > _LENGTHS[0]:
                continue
            sample = [tf.constant([text] * num_examples) for text in servable.sample_texts(length)]
            texts = dict(zip(servable.text_names, sample, strict=True))
            if servable.reads_texts:
                ids = servable.flat_ids(servable.tokenize(**texts))
                yield TEXT, texts
                yield TOKENIZE, texts
                yield from servable.more_warmup_requests(texts)
            else:
                words = [" ".join(servable.sample_texts(length))] * num_examples
                ids = servable.tokenizer(words, max_seq_length=servable.max_seq_length)
                ids = {name: tf.constant(values) for name, values in ids.items()}
            yield SERVING_DEFAULT, ids
            yield SERVING_INT64, {name: tf.cast(values, tf.int64) for name, values in ids.items()}
            rows = zip(*(values.numpy().tolist() for values in ids.values()), strict=True)
            examples = [servable.example_schema.encode(dict(zip(ids, row, strict=True))) for row in rows]
            yield EXAMPLES, {"examples": tf.constant(examples)}


def write_warmup(path: str, model_name: str, servable: Servable) -> None:
    """Write the requests to a model as TensorFlow Serving reads them, a TFRecord file."""
    with tf.io.TFRecordWriter(path) as writer:
        for name, inputs in warmup_requests(servable):
            writer.write(_prediction_log(model_name, name, inputs))


def _prediction_log(model_name: str, signature_name: str, inputs: Mapping[str, tf.Tensor]) -> bytes:
    specification = delimited(_FIRST, model_name.encode()) + delimited(_THIRD, signature_name.encode())
    entries = [
        delimited(_FIRST, name.encode()) + delimited(_SECOND, tf.make_tensor_proto(values.numpy()).SerializeToString())
        for name, values in inputs.items()
    ]
    request = delimited(_FIRST, specification) + b"".join(delimited(_SECOND, entry) for entry in entries)
    return delimited(_SIXTH, delimited(_FIRST, request))


def read_warmup(path: str) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Read the requests in a warm-up file: each signature and its inputs."""
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


def least_requests(path: str) -> tuple[dict[str, Arrays], dict[str, Arrays]]:
    """Return the smallest request in a warm-up file to each signature: those that are asked first, and the others."""
    least: dict[str, Arrays] = {}
    for name, inputs in read_warmup(path):
        if name not in least or _size(inputs) < _size(least[name]):
            least[name] = inputs
    first = {name: inputs for name, inputs in least.items() if name in _ASKED_FIRST}
    return first, {name: inputs for name, inputs in least.items() if name not in first}


def _size(inputs: Arrays) -> int:
    return sum(estimated_lengths(inputs))
