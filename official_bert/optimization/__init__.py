"""Optimizers, schedules and gradient clipping; the classes also work with Keras's `compile`."""

from official_bert.optimization.optimizers import AdamWeightDecay, Lamb
from official_bert.optimization.schedules import LinearWarmupThenConstant, LinearWarmupThenCosine, LinearWarmupThenDecay

__all__ = ["AdamWeightDecay", "Lamb", "LinearWarmupThenConstant", "LinearWarmupThenCosine", "LinearWarmupThenDecay"]
