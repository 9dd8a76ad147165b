"""Flags for the optimizer and the learning rate."""

from typing import Any

from official_bert.options.option import Options, option, options
from official_bert.support.errors import UserError


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
        "Learning rate after warm-up: linear and cosine fall to --end_learning_rate, constant stays at the peak.",
        choices=("linear", "cosine", "constant"),
        affects="learning",
    )
    end_learning_rate: float = option(
        0.0,
        "Learning rate of the last step, at most --learning_rate.",
        minimum=0,
        only_with={"lr_schedule": ("linear", "cosine")},
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
        "Apply Adam's bias correction, as PyTorch does and Google's BERT does not; use a higher learning rate with it.",
        only_with={"optimizer": ("adam",)},
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
        of_layers = {"layer_wise_lr_decay": self.layer_wise_lr_decay} if self.layer_wise_lr_decay < 1 else {}
        return {**of_layers, **({"bias_correction": True} if self.adam_bias_correction else {})}
