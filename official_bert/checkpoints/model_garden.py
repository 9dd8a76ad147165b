"""Object checkpoints of TensorFlow 2's Model Garden, alone or in a SavedModel of TensorFlow Hub: BERT and ALBERT.

Arrays are keyed by object paths of the program that wrote them, `encoder/layer_with_weights-0/embeddings/...`. The
object graph in the checkpoint also records each variable's original name, which is the same in all programs:
`word_embeddings/embeddings`. A SavedModel, none of whose code is run, also has the casing among its variables, and the
vocabulary as an asset.
"""

import collections
import functools
import os
import re
from collections.abc import Mapping
from typing import Any

from absl import logging
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2, trackable_object_graph_pb2

from official_bert.checkpoints.bundle import (
    OBJECT_GRAPH,
    CheckpointReader,
    LayerVariable,
    StoredArray,
    Weights,
    find_layer_variable,
    to_ours,
)
from official_bert.config.bert_config import BertConfig
from official_bert.config.model_formats import SAVED_MODEL
from official_bert.families.family import FAMILY_KEY, all_families
from official_bert.support import files
from official_bert.support.errors import UserError, format_arrays

_KIND = "object checkpoint"
_LOWER_CASE = "do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"
_TABLES = [f"bert/embeddings/{name}_embeddings" for name in ("word", "position", "token_type")]
_POOLER = "bert/pooler/dense/"
# Suffixes of variable names, and our names.
_NAMES = {
    r"word_embeddings/embeddings": _TABLES[0],
    r"position_embeddings?(?:/embeddings)?": _TABLES[1],
    r"type_embeddings(?:/embeddings)?": _TABLES[2],
    r"(?:embeddings|embedding_postprocessor)/layer_norm/(gamma|beta)": r"bert/embeddings/LayerNorm/\1",
    r"embedding_projection/(kernel|bias)": r"bert/encoder/embedding_hidden_mapping_in/\1",
    r"pooler_transform/(kernel|bias)": rf"{_POOLER}\1",
    r"cls/predictions/(transform/(?:dense|LayerNorm)/\w+)": r"cls/predictions/\1",
    r"cls/predictions/output_bias(?:/bias)?": "cls/predictions/output_bias",
    r"next_sentence/logits/kernel": "cls/seq_relationship/output_weights",
    r"next_sentence/logits/bias": "cls/seq_relationship/output_bias",
    r"sentence_prediction/logits/kernel": "output_weights",
    r"sentence_prediction/logits/bias": "output_bias",
    # Such a head contains the pooler that was trained with it.
    r"(?:next_sentence|sentence_prediction)/pooler_dense/(kernel|bias)": rf"head/{_POOLER}\1",
    # Several kinds of models use this name for their output.
    r"predictions/transform/logits/(kernel|bias)": r"nameless/\1",
}
# The attribute that holds an output layer, whether it does so through an enclosing network, and our name of the head.
_OUTPUTS = {
    ("classifier", False): "tagging/",
    ("span_labeling", True): "cls/squad/",
    ("classifier", True): "",  # a sequence classifier of 2019
}
_LAYER = re.compile(r"(?:.*/)?(?:transformer|encoder)/(?:layer_(\d+)/)?([a-z_]+(?:/[a-z_]+)?)/(kernel|gamma|bias|beta)")
_PARTS = {
    "self_attention/query": "query",
    "self_attention/key": "key",
    "self_attention/value": "value",
    "self_attention/attention_output": "attention_output",
    "self_attention_output": "attention_output",  # in releases of 2019 and 2020
    "self_attention_layer_norm": "attention_norm",
    "intermediate": "intermediate",
    "output": "output",
    "output_layer_norm": "output_norm",
}
# The arrays of a model, by our names.
_Found = dict[str | LayerVariable, StoredArray]
_ADVICE = "give the original release of the model (bert_model.ckpt) or its Hugging Face folder"


def config_values(path: str) -> dict[str, Any]:
    """Derive the architecture from the shapes of the variables, and the number of shared layers from the outputs."""
    is_saved_model = os.path.basename(path) == SAVED_MODEL.sign
    found = _find_variables(_variables(os.path.dirname(path)) if is_saved_model else path.removesuffix(".index"))
    num_hidden_layers = _num_outputs(path) - 1 if is_saved_model else 0  # the last one is there twice
    numbers = {slot.number for slot in found if isinstance(slot, LayerVariable)}
    number = next(iter(numbers))
    wanted = [*_TABLES, *(LayerVariable(number, part, 0) for part in ("query", "intermediate"))]
    if missing := [slot if isinstance(slot, str) else slot.part for slot in wanted if slot not in found]:
        raise UserError(f"it lacks {format_arrays(missing)}, so the sizes are unknown; {_ADVICE}")
    words, positions, segments, query, inner = (found[slot].shape for slot in wanted)
    if len(query) != 3:
        raise UserError("the shapes do not give the number of heads; give the model config as bert_config_file")
    values = {
        "vocab_size": words[0],
        "max_position_embeddings": positions[0],
        "type_vocab_size": segments[0],
        "hidden_size": inner[0],
        "intermediate_size": inner[1],
        "num_attention_heads": query[1],
        "hidden_act": "gelu",
        "num_hidden_layers": len(numbers),
    }
    if number is None:
        if num_hidden_layers < 1:
            raise UserError(
                "its layers share their weights, so their number cannot be derived; put the model's "
                "albert_config.json beside it, or give it as bert_config_file"
            )
        shared = next(family for family in all_families().values() if family.shares_layers)
        values |= {FAMILY_KEY: shared.name, "num_hidden_layers": num_hidden_layers, "embedding_size": words[1]}
    _log_once(logging.INFO, f"{path}: sizes derived from the variables; hidden_act=gelu, as in released models")
    return values


def _num_outputs(path: str) -> int:
    """Return the number of sequences that a SavedModel returns; models of the first years return only the last one."""
    outputs = signatures(path)["serving_default"].outputs if "serving_default" in signatures(path) else {}
    return sum(len(output.tensor_shape.dim) == 3 for output in outputs.values())


def signatures(path: str) -> Mapping[str, Any]:
    """Return the signatures of a SavedModel by name, given its `saved_model.pb`; without loading it."""
    try:
        with files.open_file(path, "rb") as source:
            return saved_model_pb2.SavedModel.FromString(source.read()).meta_graphs[0].signature_def
    except (OSError, DecodeError, IndexError) as error:
        raise UserError(f"{path} cannot be read as a SavedModel; download the file again") from error


def text_settings(folder: str) -> tuple[dict[str, bool], str]:
    """Return the casing recorded in a model, and the file that records it."""
    path = _variables(folder)
    reader = CheckpointReader(path, _KIND, of_objects=True)
    if _LOWER_CASE not in reader.shapes:
        return {}, ""
    return {"do_lower_case": bool(reader.read_stored(_LOWER_CASE))}, os.path.relpath(path + ".index", folder)


def _variables(folder: str) -> str:
    prefix = os.path.join(folder, "variables", "variables")
    if not files.exists(prefix + ".index"):
        raise UserError(f"{folder} has a {SAVED_MODEL.sign}, but no {prefix}.index; download the whole folder again")
    return prefix


@functools.cache
def _log_once(level: int, text: str) -> None:
    logging.log(level, "%s", text)


def read_model(place: str, config: BertConfig) -> Weights:
    """List the weights of a checkpoint or SavedModel under our names."""
    prefix = _variables(place) if files.is_folder(place) else place
    found = _find_variables(prefix)
    numbers = config.layer_numbers
    layers = {slot.number for slot in found if isinstance(slot, LayerVariable)}
    if layers != ({None} if config.family.shares_layers else set(range(len(numbers)))):
        what = "layers that share their weights" if None in layers else f"{len(layers)} layers"
        raise UserError(f"{prefix} has {what}, but the model config is {config.family.title} with {len(numbers)}")
    return Weights(dict(to_ours(slot, array, config) for slot, array in found.items()))


def _find_variables(prefix: str) -> _Found:
    reader = CheckpointReader(prefix, _KIND, of_objects=True)
    if OBJECT_GRAPH not in reader.shapes:
        raise UserError(f"{prefix} has no object graph, so it is not a TensorFlow 2 checkpoint; {_ADVICE}")
    try:
        graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(reader.read_stored(OBJECT_GRAPH))
    except (DecodeError, TypeError) as error:
        raise UserError(f"{prefix} has a damaged object graph; download its files again") from error
    slots = {variable.slot_variable_node_id for node in graph.nodes for variable in node.slot_variables}
    owners = collections.defaultdict(list)
    for index, node in enumerate(graph.nodes):
        for child in node.children:
            owners[child.node_id].append((index, child.local_name))
    attributes = [
        (index, item) for index, node in enumerate(graph.nodes) if index not in slots for item in node.attributes
    ]
    found, unknown = {}, []
    for index, item in attributes:
        key = item.checkpoint_key
        if not reader.shapes.get(key) or "optimizer" in key.split("/"):  # counters and the like are scalars
            continue
        slot = _slot_of(item.full_name)
        if str(slot).startswith("nameless/") and (head := _head_of_output(index, owners)) is not None:
            slot = f"{head}output_{'weights' if slot.endswith('kernel') else 'bias'}"
        if slot is None:
            unknown.append(f"{item.full_name} ({key})")
        elif found.setdefault(slot, reader.stored_array(key)).name != key:
            raise UserError(f"{prefix} has {item.full_name} twice: {found[slot].name} and {key}; are there two models?")
    if not any(isinstance(slot, LayerVariable) for slot in found):
        raise UserError(f"{prefix} has no transformer layers with the Model Garden's names; {_ADVICE}")
    if unknown:
        raise UserError(
            f"{prefix} has {format_arrays(unknown)}, which neither an encoder nor a known head has; {_ADVICE}"
        )
    return _settled(found, prefix)


def _slot_of(name: str) -> str | LayerVariable | None:
    for pattern, ours in _NAMES.items():
        if match := re.fullmatch(f"(?:.*/)?{pattern}", name):
            return match.expand(ours)
    return find_layer_variable(name, _LAYER, _PARTS)


def _head_of_output(variable: int, owners: Mapping[int, list[tuple[int, str]]]) -> str | None:
    """Return the head of an output layer, determined by its owners and their attribute names; None if unknown."""
    layers = {layer for layer, _ in owners[variable]}
    direct = {name for layer in layers for _, name in owners[layer]}
    networks = {network for layer in layers for network, _ in owners[layer]}
    through_network = {name for network in networks for _, name in owners[network]}
    found = (head for (name, within), head in _OUTPUTS.items() if name in (through_network if within else direct))
    return next(found, None)


def _settled(found: _Found, prefix: str) -> _Found:
    """Resolve ambiguous variables by the other variables present."""
    head = {slot: found.pop(slot) for slot in list(found) if str(slot).startswith(("head/", "nameless/"))}
    for slot, array in head.items():
        if slot.startswith("head/"):
            found[slot.removeprefix("head/")] = array
        elif any(str(other).startswith("cls/predictions/") for other in found):  # pretraining in an early release
            found["cls/seq_relationship/output_" + ("weights" if slot.endswith("kernel") else "bias")] = array
        elif slot.endswith("kernel"):
            text = f"{prefix}: ignored the head {array.name}, since its task is unknown"
            _log_once(logging.WARNING, text)
    if any(slot.startswith("head/") for slot in head):
        _log_once(logging.INFO, f"{prefix}: using the pooler of the head, with which it was trained")
    return found
