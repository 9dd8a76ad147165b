"""The layers of transformers that are built of Keras' own: what their variables are called here, and their layout."""

import itertools

import numpy as np

from official_bert.families.family import Family

# In the order in which every family's table names them, each with its two variables.
_PARTS = ("query", "key", "value", "attention_output", "attention_norm", "intermediate", "output", "output_norm")


def layer_variables(family: Family) -> dict[tuple[str, int], str]:
    """Return our names of the variables of a layer: by its part, and 0 for kernel or gamma, 1 for bias or beta."""
    names = [rule.source for rule in family.hugging_face.parts["encoder"] if "{}" in rule.source]
    return dict(zip(itertools.product(_PARTS, (0, 1)), names, strict=True))


def without_heads(array: np.ndarray, part: str) -> np.ndarray:
    """Lay the heads of an attention layer side by side, as here: [width, heads, size] becomes [width, width].

    Args:
      array: a variable of a layer.
      part: the part of it; the projection after the attention is [heads, size, width].
    """
    if part == "attention_output":
        return array.reshape(-1, array.shape[-1]) if array.ndim == 3 else array
    if part in ("query", "key", "value"):
        return array.reshape(*array.shape[:-2], -1)
    return array
