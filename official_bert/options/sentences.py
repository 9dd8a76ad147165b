"""The flags of commands that compute vectors of texts."""

from typing import Protocol

from official_bert.options.devices import DeviceOptions
from official_bert.options.model import ModelOptions
from official_bert.options.option import MAX_AXIS, MAX_BATCH_SIZE, layer_numbers, option, options


class ExtractionOptions(Protocol):
    """The flags by which an encoder is loaded and computes vectors."""

    init_checkpoint: str
    max_seq_length: int
    batch_size: int
    use_tpu: bool
    mixed_precision: str


@options(group="model")
class SentenceOptions(DeviceOptions, ModelOptions):
    """The flags that both tools have."""

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
        "Number of sentences of 64 wordpieces per batch and device; more if they are shorter.",
        group="devices",
        minimum=1,
        maximum=MAX_BATCH_SIZE,
        sizes_run_with="always",
    )
    layers: str = option(
        "-1", "Layer whose vectors are compared: 0 is the first, -1 the last; of several, as in -1,-2, the mean."
    )

    @property
    def layer_indices(self) -> list[int]:
        """The numbers that --layers lists."""
        return layer_numbers(self.layers)
