"""Exports of models: numbered versions that appear only when complete, their checks, and how they are written.

An export is a SavedModel with warm-up requests, or a model for LiteRT or ONNX.
"""

import contextlib
import dataclasses
import importlib
import json
import logging as standard_logging
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.modeling.encoder_options import PLAIN, UNPADDED
from official_bert.options.command import run_on_tensorflow
from official_bert.options.groups import BatchingSettings, VersionOptions
from official_bert.serving.engine_model import reader_module
from official_bert.serving.saved_model import READS_SPLIT_TEXTS, WARMUP_FILE, write_warmup
from official_bert.serving.servable import Servable
from official_bert.serving.signatures import METHODS, ArraySpec
from official_bert.serving.text_model import IDS_SCHEMA, TrainedModel
from official_bert.serving.versions import (
    ASSETS_FOLDER,
    CHECKSUMS_FILE,
    DESCRIPTION_FILE,
    LITE_FILE,
    MOST_ONNX_BYTES,
    ONNX_FILE,
    OUTPUTS,
    check_export_dir,
    export_parts,
    versions,
)
from official_bert.support import files, writing
from official_bert.support.console import filtered_stderr
from official_bert.support.errors import UserError, plain_message, require
from official_bert.support.files import fault_point
from official_bert.tokenization.tokenizer_files import content_of_copy

if TYPE_CHECKING:
    import onnx

MODELS_FILE, BATCHING_FILE = "models.config", "batching_parameters.txt"

_BATCHING = """\
max_batch_size { value: %(max_batch_size)d }
max_execution_batch_size { value: %(max_execution_batch_size)d }
enable_large_batch_splitting { value: true }
batch_timeout_micros { value: %(batch_timeout_micros)d }
max_enqueued_batches { value: %(max_enqueued_batches)d }
num_batch_threads { value: %(num_batch_threads)d }
pad_variable_length_inputs: true
"""
_MODELS = """\
model_config_list {
  config {
    name: "%(name)s"
    base_path: "%(path)s"
    model_platform: "tensorflow"
  }
}
"""
_OPSET = 17  # the first with LayerNormalization; both programs have read it for years
_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def _write_version(
    export_dir: str,
    servable: Servable,
    *,
    save: Callable[[str], None],
    add: Callable[[str], None] = lambda folder: None,
    **details: Any,
) -> str:
    check_export_dir(export_dir)
    vocabulary = servable.vocabulary
    files.check_regular(vocabulary.source)
    writing.make_folders(export_dir)
    try:
        with writing.new_folder(os.path.join(export_dir, "version")) as partial:
            save(partial)
            fault_point("describe")
            write_description(partial, servable, **details)
            with files.open_file(_path_with_parents(partial, ASSETS_FOLDER, vocabulary.file_name), "wb") as sink:
                sink.write(content_of_copy(vocabulary.source))
            for name, array in servable.arrays.items():
                with files.open_file(os.path.join(partial, ASSETS_FOLDER, name), "wb") as sink:
                    np.save(sink, array)
            _write_checksums(partial)
            fault_point("complete")
            add(partial)
            return _publish(partial, export_dir)
    except tf.errors.OpError as error:
        raise UserError(f"cannot write to export_dir={export_dir}: {plain_message(error)}") from error


def _write_model_file(export_dir: str, servable: Servable, function: Any, name: str, content: bytes) -> str:
    """Write the next version of a model that is one file, made from a function of ids; see `_write_version`.

    Beside it are the tokenizer's files and all else that its reader needs; see `EngineModel`.
    """
    numbers = {
        output: ArraySpec(np.dtype(spec.dtype.as_numpy_dtype), (None, *spec.shape[1:]))
        for output, spec in function.structured_outputs.items()
    }
    reader = reader_module(servable.task).READER(servable.described, servable.tokenizer)
    outputs = {
        key: {output: [spec.dtype.name, spec.shape] for output, spec in specs.items()}
        for key, specs in reader.specs(numbers).items()
    }

    def save(folder: str) -> None:
        with files.open_file(os.path.join(folder, name), "wb") as sink:
            sink.write(content)

    path = _write_version(export_dir, servable, save=save, **{OUTPUTS: outputs})
    logging.info("exported %s, %.1f MB", os.path.join(path, name), len(content) / 1e6)
    return path


def write_description(folder: str, servable: Servable, **details: Any) -> None:
    _write_json(os.path.join(folder, DESCRIPTION_FILE), {**servable.described, **details})


def _write_checksums(folder: str) -> None:
    """Write the SHA-256 of every file in the folder, by relative path."""
    checksums = {os.path.relpath(path, folder): files.sha256(path) for path in files.files_below(folder)}
    _write_json(os.path.join(folder, CHECKSUMS_FILE), checksums)


def _write_json(path: str, content: dict[str, Any]) -> None:
    with files.open_file(path, "w") as sink:
        sink.write(json.dumps(content, indent=2) + "\n")


def _path_with_parents(folder: str, *names: str) -> str:
    """Return a path below a folder, creating parent folders."""
    path = os.path.join(folder, *names)
    writing.make_folders(os.path.dirname(path))
    return path


def _publish(partial: str, export_dir: str) -> str:
    """Rename a complete version to the next free number."""
    while True:
        path = os.path.join(export_dir, str(max(versions(export_dir), default=0) + 1))
        try:
            writing.rename_folder(partial, path)
        except FileExistsError:  # another process took this number
            continue
        return path


@contextlib.contextmanager
def _logging_errors_only() -> Iterator[None]:
    """Suppress the log lines of TensorFlow and converters while saving a model."""
    standard_logging.disable(standard_logging.WARNING)
    try:
        yield
    finally:
        standard_logging.disable(standard_logging.NOTSET)


def write_export(export_dir: str, servable: Servable) -> str:
    """Write the next version of a model, with the server's settings."""
    name = os.path.basename(os.path.realpath(export_dir))
    if morphemes := servable.text_settings.morphemes:
        servable.use_tokenizer(servable.tokenizer.of_split_text())
        logging.warning(READS_SPLIT_TEXTS, export_dir, morphemes)
    signatures = servable.signatures()
    if not servable.reads_texts:
        logging.warning(
            "%s: the export reads ids and no texts, since its byte-level BPE has no TensorFlow operations", export_dir
        )

    def save(folder: str) -> None:
        with _logging_errors_only():  # harmless warnings about lookup tables and captured inputs
            tf.saved_model.save(servable, folder, signatures)
            updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(folder)
            for name in METHODS.keys() & signatures.keys():
                updater.replace_method_name(name, METHODS[name])
            updater.save()

    def add_warmup(folder: str) -> None:
        write_warmup(_path_with_parents(folder, *WARMUP_FILE), name, servable)

    split = {"reads": "texts that are split into words"} if morphemes else {}
    path = _write_version(export_dir, servable, save=save, add=add_warmup, **split)
    _write_settings(export_dir, name)
    logging.info("exported %s, with the signatures %s", path, ", ".join(signatures))
    return path


def _write_settings(export_dir: str, name: str) -> None:
    """Write the server's settings, unless they exist: the user may have changed them."""
    path = export_dir if files.is_remote(export_dir) else os.path.realpath(export_dir)
    settings = {
        MODELS_FILE: _MODELS % {"name": _quoted(name), "path": _quoted(path)},
        BATCHING_FILE: _BATCHING % dataclasses.asdict(BatchingSettings(num_batch_threads=os.cpu_count() or 1)),
    }
    for file_name, content in settings.items():
        path = os.path.join(export_dir, file_name)
        if not files.exists(path):
            writing.write_file(path, content)


def _quoted(text: str) -> str:
    return text.translate({ord(char): f"\\{escape}" for char, escape in zip('\\"\n\r', '\\"nr', strict=True)})


def write_lite(export_dir: str, servable: Servable, precision: str = "float32") -> str:
    """Write the next version of a model as `model.tflite`, which reads ids and returns no strings.

    Its signature `serving_default` takes input_ids, input_mask and segment_ids, int32 [1, S] for any S up to the
    model's maximum. The encoder must compute padding, because shapes must not depend on ids. With the precision
    "int8", the largest products are also computed in integers.
    """
    function, weights = servable.numeric_signature()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], weights)
    if precision != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    with _logging_errors_only(), filtered_stderr(lambda line: line.startswith(("I0000 ", "W0000 "))):
        model = converter.convert()
    return _write_model_file(export_dir, servable, function, LITE_FILE, model)


def write_onnx(export_dir: str, servable: Servable, precision: str = "float32") -> str:
    """Write the next version of a model as `model.onnx`, like `write_lite`, but for ids of any shape [B, S]."""
    require("tf2onnx", "onnx")
    function, weights = servable.function_of_weights()
    read = {tensor.op.name for tensor in function.inputs if tensor.consumers()}
    used = {name: variable for name, variable in weights.items() if name in read}
    if sum(4 * math.prod(variable.shape) for variable in used.values()) >= MOST_ONNX_BYTES:
        raise UserError(f"an ONNX file holds at most 2 GB, and {export_dir} would be larger; export a saved_model")
    with _logging_errors_only(), filtered_stderr(lambda line: line.startswith(("I0000 ", "W0000 ", "E0000 "))):
        model = _converted(function, used)
        if precision == "int8":
            model = _quantized(model)
    return _write_model_file(export_dir, servable, function, ONNX_FILE, model.SerializeToString())


def _converted(function: Any, weights: Mapping[str, keras.Variable]) -> "onnx.ModelProto":
    """Convert a function whose weights are inputs, since tf2onnx holds dozens of copies of constants."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    convert = _tf2onnx_convert()
    frozen = convert_variables_to_constants_v2(function, lower_control_flow=False)
    outputs = [tensor.name for tensor in frozen.outputs]
    inputs = [f"{name}:0" for name in (*IDS_SCHEMA.names, *weights)]
    names = [*IDS_SCHEMA.names, *weights, *sorted(function.structured_outputs)]
    model, _ = convert.from_graph_def(
        frozen.graph.as_graph_def(add_shapes=True),
        name="model",
        input_names=inputs,
        output_names=outputs,
        tensors_to_rename=dict(zip(inputs + outputs, names, strict=True)),
        opset=_OPSET,
        custom_op_handlers={"Log1p": (_replace_log1p, [])},
    )
    _add_weights(model.graph, {name: variable.numpy() for name, variable in weights.items()})
    _name_dimensions(model.graph)
    _separate_loop_values(model.graph)
    return model


def _replace_log1p(graph: Any, node: Any, name: str, arguments: Any) -> None:
    """Compute log(1 + x), which ONNX lacks, as 2 atanh(x / (2 + x)), which is exact for small numbers."""
    del arguments
    (x,), two = node.input, graph.make_const(f"{name}_two", np.float32(2)).output[0]
    quotient = graph.make_node("Div", [x, graph.make_node("Add", [x, two]).output[0]]).output[0]
    half = graph.make_node("Atanh", [quotient]).output[0]
    graph.remove_node(node.name)
    graph.make_node("Mul", [half, two], outputs=node.output, name=name)


def _add_weights(graph: "onnx.GraphProto", weights: dict[str, np.ndarray]) -> None:
    """Make inputs constants, and compute what depends on constants only; quantization finds no others."""
    from onnx import numpy_helper
    from onnx.reference import ReferenceEvaluator

    inputs = [value for value in graph.input if value.name not in weights]
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer} | weights
    nodes = []
    for node in graph.node:
        if node.input and constants.keys() >= set(node.input):
            evaluator = ReferenceEvaluator(node, opsets={"": _OPSET})  # operations differ between versions
            values = evaluator.run(None, {name: constants[name] for name in node.input})
            constants.update(zip(node.output, values, strict=True))
        else:
            nodes.append(node)
    for field, content in ((graph.input, inputs), (graph.node, nodes)):
        del field[:]
        field.extend(content)
    del graph.initializer[:]
    graph.initializer.extend(
        numpy_helper.from_array(constants[name], name) for name in sorted(constants.keys() & _names_read(graph))
    )


def _names_read(graph: "onnx.GraphProto") -> set[str]:
    bodies = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    own = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    return own.union(*map(_names_read, bodies))


def _tf2onnx_convert() -> ModuleType:
    """Import `tf2onnx.convert`, which would silence TensorFlow in this process and in those that it starts."""
    level = os.environ.get(_LOG_LEVEL)
    try:
        return importlib.import_module("tf2onnx.convert")
    finally:
        os.environ.pop(_LOG_LEVEL, None)
        if level is not None:
            os.environ[_LOG_LEVEL] = level


def _name_dimensions(graph: "onnx.GraphProto") -> None:
    for values, names in ((graph.input, ("batch", "length")), (graph.output, ("batch", "", ""))):
        for value in values:
            for name, dimension in zip(names, value.type.tensor_type.shape.dim, strict=False):
                if dimension.dim_param:
                    dimension.dim_param = name


def _separate_loop_values(graph: "onnx.GraphProto") -> None:
    """Copy the values that loops return unchanged; OpenVINO 2026 counts one that is input and output twice."""
    from onnx import helper

    for loop in (node for node in graph.node if node.op_type == "Loop"):
        (body,) = (attribute.g for attribute in loop.attribute if attribute.name == "body")
        inputs = {value.name for value in body.input}
        for value in (value for value in body.output if value.name in inputs):
            copy = f"{value.name}_unchanged"
            body.node.append(helper.make_node("Identity", [value.name], [copy]))
            value.name = copy


def _quantized(model: "onnx.ModelProto") -> "onnx.ModelProto":
    import onnx
    from onnxruntime.quantization import quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, ONNX_FILE)
        quantize_dynamic(model, path, per_channel=True)  # as fast, and the outputs differ by less than half as much
        return onnx.load(path)


# Functions that write models for engines, by `export_format`.
_WRITERS = {"tflite": write_lite, "onnx": write_onnx}


def export_run(servable_of_run: Callable[[TrainedModel], Servable], run: TrainedModel) -> str:
    """Write a model as the next version in `export_dir`; return the version's folder.

    A bfloat16 SavedModel stores bfloat16 weights; LiteRT and ONNX models are converted afterwards. If Keras computes
    with another library than TensorFlow, this happens in another process.
    """
    config: VersionOptions = run.config
    if keras.backend.backend() != "tensorflow":
        return run_on_tensorflow(type(config), export_run, servable_of_run, run)
    if write := _WRITERS.get(config.export_format):
        servable = servable_of_run(run._replace(encoder_options=dataclasses.replace(PLAIN, dtype="float32")))
        return write(config.export_dir, servable, config.export_precision)
    options = dataclasses.replace(UNPADDED, dtype=config.export_precision)
    servable = servable_of_run(run._replace(encoder_options=options))
    servable.use_export_stack(export_parts(servable.bert_config, config.export_parallelism))
    return write_export(config.export_dir, servable)
