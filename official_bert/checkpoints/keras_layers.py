"""Maps variables of transformers built from Keras layers to our names and layout."""

import itertools

import numpy as np

from official_bert.families.family import Family

# In the order of every family's table, each with its two variables.
_PARTS = ("query", "key", "value", "attention_output", "attention_norm", "intermediate", "output", "output_norm")


def layer_variables(family: Family) -> dict[tuple[str, int], str]:
    """Return our names of a layer's variables, keyed by part and 0 for kernel or gamma, 1 for bias or beta."""
    names = [rule.source for rule in family.hugging_face.parts["encoder"] if "{}" in rule.source]
    return dict(zip(itertools.product(_PARTS, (0, 1)), names, strict=True))


def without_heads(array: np.ndarray, part: str) -> np.ndarray:
    """Merge the head axes of an attention variable: [width, heads, size] becomes [width, width].

    Args:
      array: a variable of a layer.
      part: the part of the layer; the projection after attention is [heads, size, width].
    """
    if part == "attention_output":
        return array.reshape(-1, array.shape[-1]) if array.ndim == 3 else array
    if part in ("query", "key", "value"):
        return array.reshape(*array.shape[:-2], -1)
    return array
