"""Flags that select the weights to train."""

import re

from official_bert.options.option import GIVEN, MAX_AXIS, Options, option, options
from official_bert.support.errors import UserError

_LORA = {"lora_rank": GIVEN}
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

    lora_rank: int = option(
        0,
        "Rank of low-rank updates of the encoder's kernels (LoRA), which are trained with the pooler and the head "
        "instead of the encoder's weights; use a higher learning rate. 0 for none.",
        minimum=0,
        maximum=MAX_AXIS,
        not_with={
            "train_layers": "--train_layers cannot be used with --lora_rank; leave one of them out",
            "train_only": "--train_only cannot be used with --lora_rank; leave one of them out",
            "teacher": "--teacher cannot be used with --lora_rank; leave one of them out",
        },
        affects="learning",
    )
    lora_alpha: float | None = option(
        None,
        "Factor of the updates, divided by --lora_rank; by default --lora_rank, a factor of 1.",
        minimum=0.001,
        only_with=_LORA,
        affects="learning",
    )
    lora_layers: str = option(
        "query,value",
        "Comma-separated list of the dense layers with updates: query, key, value; dense for all others of a layer.",
        only_with=_LORA,
        affects="learning",
    )

    def __post_init__(self):
        super().__post_init__()
        known = ("query", "key", "value", "dense")
        unknown = next((name for name in self.lora_layers.split(",") if name not in known), None)
        if unknown is not None:
            raise UserError(f"--lora_layers={self.lora_layers:.80}: {unknown!r:.80} is not one of {', '.join(known)}")
        if self.train_layers is not None and not _LAST.fullmatch(self.train_layers):
            raise UserError(f"--train_layers={self.train_layers:.80}: write last:N, as in last:4")
        if self.do_train and not self.trains_all_weights and not self.init_checkpoint:
            given = next(name for name in ("train_layers", "train_only", "lora_rank") if getattr(self, name))
            raise UserError(f"--{given} needs --init_checkpoint: the frozen weights would stay random")

    @property
    def num_trained_layers(self) -> int | None:
        """The number of layers to train, counted from the last; None for all."""
        return None if self.train_layers is None else int(_LAST.fullmatch(self.train_layers)[1])

    @property
    def trains_all_weights(self) -> bool:
        """True if nothing is frozen."""
        return self.train_layers is None and self.train_only is None and not self.lora_rank

    @property
    def lora(self) -> tuple[int, float, list[str]] | None:
        """The rank, the alpha and the layers of low-rank updates; None for none."""
        alpha = self.lora_rank if self.lora_alpha is None else self.lora_alpha
        return (self.lora_rank, alpha, self.lora_layers.split(",")) if self.lora_rank else None
