"""Optimizers, schedules and gradient clipping; the classes also work with Keras's `compile`."""

from official_bert.optimization.adam_weight_decay import AdamWeightDecay
from official_bert.optimization.lamb import Lamb
from official_bert.optimization.schedules import (
    LinearWarmupThenConstant,
    LinearWarmupThenCosine,
    LinearWarmupThenDecay,
)

__all__ = [
    "AdamWeightDecay",
    "Lamb",
    "LinearWarmupThenConstant",
    "LinearWarmupThenCosine",
    "LinearWarmupThenDecay",
]
