"""Loads SavedModels, the exports that TensorFlow computes, with their signatures."""

import importlib
import os
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2

from official_bert.serving.rest_format import MessageError, RequestError, read_message
from official_bert.serving.signatures import EXAMPLES, METHODS, Arrays, ArraySpec, LoadedExport, Signature
from official_bert.serving.versions import ASSETS_FOLDER, SAVED_MODEL_FILE, check_whole, description, model_file
from official_bert.serving.warmup import WARMUP_FILE, least_requests
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

    def compute(inputs: Arrays) -> Arrays:
        if name in (EXAMPLES, *METHODS):
            for number, value in enumerate(*inputs.values()):
                _check_example(number, value)
        try:
            outputs = function(**{key: tf.constant(values) for key, values in inputs.items()})
        except tf.errors.InvalidArgumentError as error:  # without the graph: "ids must be from 0 to 9, but is 12"
            raise RequestError(plain_message(error) or "the request does not fit the model") from error
        return {key: outputs[key].numpy() for key in sorted(outputs)}  # a SavedModel does not preserve order

    inputs, outputs = (
        {key: ArraySpec(np.dtype(spec.dtype.as_numpy_dtype), tuple(spec.shape)) for key, spec in specs.items()}
        for specs in (function.structured_input_signature[1], function.structured_outputs)
    )
    return Signature(name, inputs, outputs, compute)


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
