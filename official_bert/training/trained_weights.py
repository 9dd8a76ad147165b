"""Selects the weights that a run trains, and freezes the others."""

import re

import keras

from official_bert.families.family_registry import all_families
from official_bert.modeling.encoder import ENCODER_SCOPE
from official_bert.optimization.layer_rates import layer_number
from official_bert.support.errors import UserError

_POOLER = f"{ENCODER_SCOPE}/pooler/"
_BIAS = re.compile(r"/(bias|beta)$")


def freeze(model: keras.Model, *, num_trained_layers: int | None, train_only: str | None) -> None:
    """Freeze the weights of an encoder that are not selected: they get no gradients and no optimizer state.

    Args:
      model: a model with an encoder; its other weights stay as they are.
      num_trained_layers: number of layers to train, counted from the last, with the pooler; None for all weights.
      train_only: "bias" for only the biases among them, including those of layer normalization; None for all.

    Raises:
      UserError: the encoder has fewer layers, or its layers share their weights.

    Source: for biases Ben Zaken et al., "BitFit: Simple Parameter-efficient Fine-tuning for Transformer-based Masked
      Language-models", 2022.
    """
    weights = [weight for weight in model.trainable_weights if weight.path.startswith(f"{ENCODER_SCOPE}/")]
    first = 0
    if num_trained_layers is not None:
        first = _num_layers(weights, num_trained_layers) - num_trained_layers
    for weight in weights:
        number = layer_number(weight.path)
        is_in_layers = num_trained_layers is None or weight.path.startswith(_POOLER)
        is_in_layers |= number is not None and number >= first
        weight.trainable = is_in_layers and (train_only is None or _BIAS.search(weight.path) is not None)


def _num_layers(weights: list[keras.Variable], num_trained_layers: int) -> int:
    given = f"train_layers=last:{num_trained_layers}"
    for family in all_families():
        if family.shares_layers and any(family.layer_scope in weight.path for weight in weights):
            raise UserError(f"{given}: the layers of {family.title} share their weights; leave it out")
    num_layers = max(number for weight in weights if (number := layer_number(weight.path)) is not None) + 1
    if num_trained_layers > num_layers:
        raise UserError(f"{given}: the model has only {num_layers} layers")
    return num_layers
