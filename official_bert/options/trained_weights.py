"""Flags that select the weights to train."""

import re

from official_bert.options.option import Options, option, options
from official_bert.support.errors import UserError

_LAST = re.compile(r"last:([1-9][0-9]{0,3})")


@options(group="training")
class TrainedWeightOptions(Options):
    """Flags that freeze a part of the encoder; the weights of the head are always trained."""

    train_layers: str | None = option(
        None,
        "last:N: train only the last N layers of the encoder, its pooler and the head; the embeddings and the other "
        "layers are frozen. By default everything is trained.",
        affects="learning",
    )
    train_only: str | None = option(
        None,
        "bias: train only the biases of the encoder, including those of layer normalization, and the head (BitFit); "
        "use a higher learning rate. By default everything is trained.",
        choices=("bias",),
        affects="learning",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.train_layers is not None and not _LAST.fullmatch(self.train_layers):
            raise UserError(f"--train_layers={self.train_layers:.80}: write last:N, as in last:4")
        if self.do_train and not self.trains_all_weights and not self.init_checkpoint:
            given = next(name for name in ("train_layers", "train_only") if getattr(self, name))
            raise UserError(f"--{given} needs --init_checkpoint: the frozen weights would stay random")

    @property
    def num_trained_layers(self) -> int | None:
        """The number of layers to train, counted from the last; None for all."""
        return None if self.train_layers is None else int(_LAST.fullmatch(self.train_layers)[1])

    @property
    def trains_all_weights(self) -> bool:
        """True if nothing is frozen."""
        return self.train_layers is None and self.train_only is None
