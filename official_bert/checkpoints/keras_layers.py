"""Translates variables of transformers built from Keras layers to our names and layout."""

import itertools
import re
from collections.abc import Mapping
from typing import NamedTuple

from official_bert.checkpoints.stored_arrays import StoredArray
from official_bert.config.bert_config import BertConfig

# In the order of every family's table, each with its two variables.
_PARTS = ("query", "key", "value", "attention_output", "attention_norm", "intermediate", "output", "output_norm")


class LayerVariable(NamedTuple):
    """A variable of a layer: the layer's number (None if the name has none), its part, and 1 for a bias or beta."""

    number: int | None
    part: str
    index: int


def find_layer_variable(name: str, pattern: re.Pattern, parts: Mapping[str, str]) -> LayerVariable | None:
    """Return the variable of a layer that a name denotes; None for another name.

    Args:
      name: a name in a file.
      pattern: matches layer number, part and variable.
      parts: the names of the parts in the file, with ours.
    """
    match = pattern.fullmatch(name)
    if match is None or match[2] not in parts:
        return None
    return LayerVariable(match[1] and int(match[1]), parts[match[2]], int(match[3] in ("1", "bias", "beta")))


def to_ours(variable: str | LayerVariable, array: StoredArray, config: BertConfig) -> tuple[str, StoredArray] | None:
    """Return a variable under our name and in our layout; None if the model has no such layer.

    Args:
      variable: a variable of a layer, or our name.
      array: its value. Attention projections have axes for the heads, [width, heads, size], and the projection after
        attention [heads, size, width]; classes are the last axis.
      config: the architecture.
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
