"""Flags for the optimizer and the learning rate."""

import dataclasses
from typing import Any

from official_bert.options.option import Options, option, options
from official_bert.support.errors import UserError

# Flags of an optimizer, with the names of its arguments.
_ARGUMENTS = {
    "layer_wise_lr_decay": "layer_wise_lr_decay",
    "adam_bias_correction": "bias_correction",
    "adam_beta_1": "beta_1",
    "adam_beta_2": "beta_2",
    "adam_epsilon": "epsilon",
    "weight_decay_rate": "weight_decay_rate",
}


@options(group="training")
class OptimizerOptions(Options):
    """Flags for the optimizer and the learning rate."""

    learning_rate: float = option(5e-5, "Peak learning rate.", minimum=0, affects="learning")
    optimizer: str = option(
        "adam",
        "adam: Google's BERT optimizer, Adam with weight decay; lamb: for batches of thousands of examples.",
        choices=("adam", "lamb"),
        affects="learning",
    )
    lr_schedule: str = option(
        "linear",
        "Learning rate after warm-up: linear and cosine fall to --end_learning_rate, constant stays at the peak, "
        "budget falls linearly with the time used of --max_train_seconds, which then ends training.",
        choices=("linear", "cosine", "constant", "budget"),
        affects="learning",
    )
    end_learning_rate: float = option(
        0.0,
        "Learning rate of the last step, at most --learning_rate.",
        minimum=0,
        only_with={"lr_schedule": ("linear", "cosine", "budget")},
        affects="learning",
    )
    layer_wise_lr_decay: float = option(
        1.0,
        "Ratio of each encoder layer's learning rate to that of the layer above it; 1 for the same rate in all layers.",
        minimum=0,
        maximum=1,
        affects="learning",
    )
    adam_bias_correction: bool = option(
        False,
        "Apply Adam's bias correction, as PyTorch does and Google's BERT does not; use a higher learning rate with it. "
        "As in Keras, epsilon acts as sqrt(1 / (1 - beta_2)) times PyTorch's in the first step, by default 32 times.",
        only_with={"optimizer": ("adam",)},
        affects="learning",
    )

    adam_beta_1: float = option(
        0.9, "Decay of the moving average of the gradients.", minimum=0, maximum=0.999999, affects="learning"
    )
    adam_beta_2: float = option(
        0.999, "Decay of the moving average of the squared gradients.", minimum=0, maximum=0.999999, affects="learning"
    )
    adam_epsilon: float = option(
        1e-6, "Number added to the root of the averaged squares.", minimum=1e-20, maximum=1, affects="learning"
    )
    weight_decay_rate: float = option(
        0.01,
        "Fraction of each weight, except biases and layer normalization, that a step subtracts, times the learning "
        "rate.",
        minimum=0,
        affects="learning",
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.layer_wise_lr_decay:
            raise UserError("--layer_wise_lr_decay=0: must be above 0; 1 gives all layers the same learning rate")
        if self.end_learning_rate > self.learning_rate:
            raise UserError(
                f"--end_learning_rate={self.end_learning_rate:g} is above --learning_rate={self.learning_rate:g}, the "
                "peak; give a lower one"
            )

    @property
    def optimizer_options(self) -> dict[str, Any]:
        """Keyword arguments of the optimizer; those with default values are left out."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        given = {argument: (getattr(self, flag), defaults[flag]) for flag, argument in _ARGUMENTS.items()}
        return {argument: value for argument, (value, default) in given.items() if value != default}
