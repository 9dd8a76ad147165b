"""Export a model for ONNX Runtime and OpenVINO: ids in, predictions out."""

import importlib
import os
import tempfile
from types import ModuleType
from typing import TYPE_CHECKING, Any

from official_bert.serving.servable import IDS_SCHEMA, Servable
from official_bert.serving.versions import ONNX_FILE, logging_errors_only, write_model_file
from official_bert.support.errors import UserError
from official_bert.support.extras import require
from official_bert.support.stderr_filter import filtered_stderr

if TYPE_CHECKING:
    import onnx

_OPSET = 17  # the first with LayerNormalization; both programs have read it for years
_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_MOST_BYTES = 1 << 31  # of weights, the limit of protocol buffers


def write_onnx(export_dir: str, servable: Servable, precision: str = "float32") -> str:
    """Write the next version of a model as `model.onnx`.

    It takes input_ids, input_mask and segment_ids, int32 [B, S] for any B and any S up to the model's maximum, and
    returns the numeric outputs of `Servable.numbers`; ONNX has no tokenizer.

    Args:
      export_dir: folder of the versions.
      servable: the model to convert; see `lite.write_lite`.
      precision: "float32"; or "int8", a quarter of the size: ONNX Runtime's dynamic quantization.

    Returns:
      The folder of the version. It gets this name only when complete and flushed to disk.

    Raises:
      UserError: the extra is not installed, the model is too large, the folder is not writable, or the vocabulary is a
        pipe, which can be read only once.
    """
    require("tf2onnx", "onnx")
    function, weights = servable.numeric_signature(None)
    if sum(4 * variable.shape.num_elements() for variable in weights.variables_in_use) >= _MOST_BYTES:
        raise UserError(f"an ONNX file holds at most 2 GB, and {export_dir} would be larger; export a saved_model")
    with logging_errors_only(), filtered_stderr(lambda line: line.startswith(("I0000 ", "W0000 ", "E0000 "))):
        model = _converted(function)
        if precision == "int8":
            model = _quantized(model)
    return write_model_file(export_dir, servable, ONNX_FILE, model.SerializeToString())


def _converted(function: Any) -> "onnx.ModelProto":
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    convert = _tf2onnx_convert()
    frozen = convert_variables_to_constants_v2(function, lower_control_flow=False)
    outputs = [tensor.name for tensor in frozen.outputs]
    inputs = [f"{name}:0" for name in IDS_SCHEMA.names]
    names = [*IDS_SCHEMA.names, *sorted(function.structured_outputs)]
    model, _ = convert.from_graph_def(
        frozen.graph.as_graph_def(add_shapes=True),
        name="model",
        input_names=inputs,
        output_names=outputs,
        tensors_to_rename=dict(zip(inputs + outputs, names, strict=True)),
        opset=_OPSET,
    )
    _name_dimensions(model.graph)
    _separate_loop_values(model.graph)
    return model


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
