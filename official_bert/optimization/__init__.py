"""How weights move: optimizers, schedules and clipping; these two classes also for Keras's `compile`."""

from official_bert.optimization.adam_weight_decay import AdamWeightDecay
from official_bert.optimization.schedules import LinearWarmupThenDecay

__all__ = ["AdamWeightDecay", "LinearWarmupThenDecay"]
