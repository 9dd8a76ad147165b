"""SavedModels of BERT and ALBERT on TensorFlow Hub, with their vocabulary and casing; no code in them is run.

The variables, including `do_lower_case`, are an object checkpoint of the Model Garden. The vocabulary is an asset.
"""

import os
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from official_bert.checkpoints import model_garden
from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.stored_arrays import StoredArray
from official_bert.config.bert_config import BertConfig
from official_bert.support import files
from official_bert.support.errors import UserError

_SAVED_MODEL = "saved_model.pb"
_LOWER_CASE = "do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"


def config_values(path: str) -> dict[str, Any]:
    """Derive the architecture from the shapes of the variables, and the number of layers from the outputs."""
    outputs = signatures(path)["serving_default"].outputs if "serving_default" in signatures(path) else {}
    # One output per layer, plus the last one again; models of the first years have only the last one.
    outputs = [output for output in outputs.values() if len(output.tensor_shape.dim) == 3]
    return model_garden.config_values(_variables(os.path.dirname(path)), max(len(outputs) - 1, 0) or None)


def signatures(path: str) -> Mapping[str, Any]:
    """Return the signatures of a SavedModel by name, given its `saved_model.pb`; without loading it."""
    try:
        with files.open_file(path, "rb") as source:
            return saved_model_pb2.SavedModel.FromString(source.read()).meta_graphs[0].signature_def
    except (OSError, DecodeError, IndexError) as error:
        raise UserError(f"{path} cannot be read as a SavedModel; download the file again") from error


def read_model(folder: str, config: BertConfig) -> dict[str, StoredArray]:
    """List the weights under our names."""
    return model_garden.read_model(_variables(folder).removesuffix(".index"), config)


def text_settings(folder: str) -> tuple[dict[str, bool], str]:
    """Return the casing recorded in a model, and the file that records it."""
    path = _variables(folder)
    reader = CheckpointReader(path, model_garden.KIND, of_objects=True)
    if _LOWER_CASE not in reader.shapes:
        return {}, ""
    return {"do_lower_case": bool(reader.read_stored(_LOWER_CASE))}, os.path.relpath(path, folder)


def _variables(folder: str) -> str:
    path = os.path.join(folder, "variables", "variables.index")
    if not files.exists(path):
        raise UserError(f"{folder} has a {_SAVED_MODEL}, but no {path}; download the whole folder again")
    return path
