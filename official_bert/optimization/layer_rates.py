"""Layer-wise learning rates."""

import re
from collections.abc import Sequence

from official_bert.families.family_registry import all_families

_EMBEDDINGS = re.compile(r"(^|/)embeddings/")
_LAYER = re.compile(r"(^|/)encoder/layer_(\d+)/")


def layer_number(path: str) -> int | None:
    """Return the number of the encoder layer that a variable belongs to, from 0; None if it belongs to none."""
    match = _LAYER.search(path)
    return int(match[2]) if match else None


def rate_multipliers(paths: Sequence[str], decay: float) -> list[float]:
    """Return the learning rate multiplier of each variable; lower layers have lower rates.

    Layer l of L, counted from 0, gets decay^(L - l), the embeddings get decay^(L + 1), and everything else, that is the
    pooler and the heads, gets 1. For example with a decay of 0.9 and two layers: embeddings 0.729, layer 0 0.81, layer
    1 0.9.

    Args:
      paths: paths of the trainable variables.
      decay: above 0, at most 1.

    Returns:
      A multiplier for each path.

    Raises:
      ValueError: the decay is out of range, no path belongs to a layer of an encoder, or the layers share their
        weights.

    Source: Clark et al., "ELECTRA", 2020, appendix B; Sun et al., "How to Fine-Tune BERT", 2019, section 5.4.3.
    ELECTRA's code multiplies all layers by one more power of decay.
    """
    if not 0 < decay <= 1:
        raise ValueError(f"layer_wise_lr_decay={decay}: must be above 0 and at most 1")
    if decay == 1:
        return [1.0] * len(paths)
    for family in all_families():
        if family.shares_layers and any(family.layer_scope in path for path in paths):
            raise ValueError(
                f"layer_wise_lr_decay={decay}: the layers of {family.title} share their weights, so that none can have "
                "a learning rate of its own; leave it out"
            )
    layers = list(map(layer_number, paths))
    num_layers = max((layer + 1 for layer in layers if layer is not None), default=0)
    if not num_layers:
        raise ValueError(
            f"layer_wise_lr_decay={decay}: no trainable variable belongs to an encoder layer (no path has "
            "encoder/layer_0/...); leave it out"
        )

    def multiplier(path, layer):
        if layer is not None:
            return decay ** (num_layers - layer)
        return decay ** (num_layers + 1) if _EMBEDDINGS.search(path) else 1.0

    return [multiplier(path, layer) for path, layer in zip(paths, layers, strict=True)]
