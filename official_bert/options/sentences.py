"""Flags of commands that compute sentence vectors."""

from typing import Protocol

from official_bert.options.devices import DeviceOptions
from official_bert.options.model import ModelOptions
from official_bert.options.option import MAX_AXIS, MAX_BATCH_SIZE, layer_numbers, option, options


class ExtractionOptions(Protocol):
    """The flags needed to load an encoder and compute vectors."""

    init_checkpoint: str
    max_seq_length: int
    batch_size: int
    use_tpu: bool
    mixed_precision: str


@options(group="model")
class SentenceBatchOptions(DeviceOptions, ModelOptions):
    """Flags of the commands that run a model on sentences."""

    max_seq_length: int = option(
        128,
        "Maximum number of wordpieces per sentence, including [CLS] and [SEP]; longer ones are truncated.",
        group="text",
        from_checkpoint=True,
        minimum=4,
        maximum=MAX_AXIS,
        sizes_run_with="always",
    )
    batch_size: int = option(
        32,
        "Number of sentences of 64 wordpieces per batch and device; shorter sentences make larger batches.",
        group="devices",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
        sizes_run_with="always",
    )


@options(group="model")
class SentenceOptions(SentenceBatchOptions):
    """Flags of the commands that compare sentences."""

    layers: str = option(
        "-1",
        "Layer whose vectors are compared: 0 is the first, -1 the last. Several, as in -1,-2, are averaged.",
    )

    @property
    def layer_indices(self) -> list[int]:
        """The layer numbers in --layers."""
        return layer_numbers(self.layers)
