"""Object checkpoints of the Model Garden of TensorFlow 2: encoder, pretrainer or classifier of BERT and ALBERT.

Their arrays are named after the objects of the program that wrote them, `encoder/layer_with_weights-0/embeddings/...`,
but the graph of these objects, which is in the checkpoint, too, has the name that each variable was made with. That is
the same in all programs: `word_embeddings/embeddings`.
"""

import functools
import re
from typing import Any, NamedTuple

import numpy as np
from absl import logging
from tensorflow.core.protobuf import trackable_object_graph_pb2

from official_bert.checkpoints.bundle import OBJECT_GRAPH, CheckpointReader
from official_bert.checkpoints.keras_layers import layer_variables, without_heads
from official_bert.config.bert_config import BertConfig
from official_bert.families.family_registry import FAMILY_KEY, all_families
from official_bert.support.errors import UserError

KIND = "object checkpoint"
_TABLES = [f"bert/embeddings/{name}_embeddings" for name in ("word", "position", "token_type")]
_POOLER = "bert/pooler/dense/"
# The ends of the names of variables, and the names here.
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
    # The pooler of such a head is the one that was trained with it.
    r"(?:next_sentence|sentence_prediction)/pooler_dense/(kernel|bias)": rf"head/{_POOLER}\1",
    # Several kinds of models call their output this.
    r"predictions/transform/logits/(kernel|bias)": r"nameless/\1",
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
_ADVICE = "give the same model as it was first released (bert_model.ckpt) or its Hugging Face folder"


class _Array(NamedTuple):
    """An array of a checkpoint, by the name there."""

    key: str
    shape: tuple[int, ...]


class _Layer(NamedTuple):
    """A variable of a layer: the number, None for layers that share their weights; and as in `layer_variables`."""

    number: int | None
    part: str
    index: int


def config_values(path: str, num_hidden_layers: int | None = None) -> dict[str, Any]:
    """Derive an architecture from the shapes of the variables.

    Args:
      path: the index of a checkpoint.
      num_hidden_layers: the number of layers, if something else says it; those that share their weights do not.

    Returns:
      The keys of our config file.

    Raises:
      UserError: the checkpoint is damaged, holds no such model, or does not say how deep it is.
    """
    found = _find_variables(path.removesuffix(".index"))
    numbers = {slot.number for slot in found if isinstance(slot, _Layer)}
    number = next(iter(numbers))
    wanted = [*_TABLES, *(_Layer(number, part, 0) for part in ("query", "intermediate"))]
    if missing := [slot for slot in wanted if slot not in found]:
        raise UserError(f"it lacks {missing[0]}, so that the sizes are not known; {_ADVICE}")
    words, positions, segments, query, inner = (found[slot].shape for slot in wanted)
    if len(query) != 3:
        raise UserError("its attention heads are not told apart by shapes; give the model's config as bert_config_file")
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
        if num_hidden_layers is None:
            raise UserError(
                "its layers share their weights, so that these do not say how many layers there are; put the model's "
                "albert_config.json beside it, or give it as bert_config_file"
            )
        shared = next(family for family in all_families() if family.shares_layers)
        values |= {FAMILY_KEY: shared.name, "num_hidden_layers": num_hidden_layers, "embedding_size": words[1]}
    _log_once(logging.INFO, f"{path}: sizes according to the variables; hidden_act=gelu, as in released models")
    return values


@functools.cache
def _log_once(level: int, text: str) -> None:
    logging.log(level, "%s", text)


def read_model(prefix: str, config: BertConfig) -> dict[str, np.ndarray]:
    """Read the weights under our names.

    Raises:
      UserError: the checkpoint is damaged, or is not of such a model; the message names an array.
    """
    found, reader = _find_variables(prefix), CheckpointReader(prefix, KIND, of_objects=True)
    names, numbers = layer_variables(config.family), config.layer_numbers
    layers = {slot.number for slot in found if isinstance(slot, _Layer)}
    if layers != ({None} if config.family.shares_layers else set(range(len(numbers)))):
        what = "layers that share their weights" if None in layers else f"{len(layers)} layers"
        raise UserError(f"{prefix} has {what}, the model config is of {config.family.title} with {len(numbers)}")
    arrays = {}
    for slot, (key, _) in found.items():
        array = reader.read(key)
        if not np.isfinite(array).all():
            raise UserError(f"{prefix}: {key} holds NaN or infinity; did the training diverge?")
        if isinstance(slot, _Layer):
            name = names[slot.part, slot.index].format(*numbers[slot.number or 0])
            arrays[name] = without_heads(array, slot.part)
        else:
            arrays[slot] = array.T if slot.endswith("output_weights") else array
    return arrays


def _find_variables(prefix: str) -> dict[str | _Layer, _Array]:
    """Find the variables of a model in a checkpoint, by their names here.

    Raises:
      UserError: the checkpoint is damaged, or has others; the message names one.
    """
    reader = CheckpointReader(prefix, KIND, of_objects=True)
    if OBJECT_GRAPH not in reader.shapes:
        raise UserError(f"{prefix} has no object graph, so it is not of TensorFlow 2; {_ADVICE}")
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(reader.read(OBJECT_GRAPH))
    slots = {variable.slot_variable_node_id for node in graph.nodes for variable in node.slot_variables}
    attributes = [item for index, node in enumerate(graph.nodes) if index not in slots for item in node.attributes]
    found, unknown = {}, []
    for item in attributes:
        key, shape = item.checkpoint_key, reader.shapes.get(item.checkpoint_key, ())
        if not shape or "optimizer" in key.split("/"):  # counters and the like have no dimensions
            continue
        slot = _slot_of(item.full_name)
        if slot is None:
            unknown.append(f"{item.full_name} ({key})")
        elif found.setdefault(slot, _Array(key, shape)).key != key:
            raise UserError(f"{prefix} has {item.full_name} twice: {found[slot].key} and {key}; is it of two models?")
    if not any(isinstance(slot, _Layer) for slot in found):
        raise UserError(f"{prefix} has no transformer layers with the Model Garden's names; {_ADVICE}")
    if unknown:
        raise UserError(f"{prefix} has {unknown[0]}, which is no part of an encoder or of a known head; {_ADVICE}")
    return _settled(found, prefix)


def _slot_of(name: str) -> str | _Layer | None:
    for pattern, ours in _NAMES.items():
        if match := re.fullmatch(f"(?:.*/)?{pattern}", name):
            return match.expand(ours)
    match = _LAYER.fullmatch(name)
    if match is None or match[2] not in _PARTS:
        return None
    return _Layer(match[1] and int(match[1]), _PARTS[match[2]], int(match[3] in ("bias", "beta")))


def _settled(found: dict[str | _Layer, _Array], prefix: str) -> dict[str | _Layer, _Array]:
    """Give variables the place that the others beside them tell."""
    head = {slot: found.pop(slot) for slot in list(found) if str(slot).startswith(("head/", "nameless/"))}
    for slot, array in head.items():
        if slot.startswith("head/"):
            found[slot.removeprefix("head/")] = array
        elif any(str(other).startswith("cls/predictions/") for other in found):  # of the first pretrainers
            found["cls/seq_relationship/output_" + ("weights" if slot.endswith("kernel") else "bias")] = array
        elif slot.endswith("kernel"):
            text = f"{prefix}: the head {array.key} is left out: it may be of any task, and nothing says of which"
            _log_once(logging.WARNING, text)
    if any(slot.startswith("head/") for slot in head):
        _log_once(logging.INFO, f"{prefix}: the pooler is that of the head, with which it was trained")
    return found
