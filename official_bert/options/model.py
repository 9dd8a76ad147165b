"""The flags that name a model, and what stands on it."""

from typing import Any, ClassVar

from official_bert.options.option import MAX_AXIS, Options, option, options
from official_bert.options.text import TokenizerOptions


@options(group="model")
class ArchitectureOptions(Options):
    """Flags of every command that creates a model."""

    bert_config_file: str | None = option(
        None,
        "Model configuration, a bert_config.json.",
        required=True,
        from_checkpoint=True,
        is_path=True,
        affects="data",
    )


@options(group="model")
class ModelOptions(TokenizerOptions, ArchitectureOptions):
    """The flags that name a model."""

    max_seq_length: ClassVar[int | None] = None  # a flag of the commands whose texts do not decide on the length
    init_checkpoint: str | None = option(None, "Checkpoint with the weights of the model.", required=True, is_path=True)


@options(group="model")
class HeadOptions(Options):
    """Flags that say what stands on the encoder, where there is a choice."""

    head: str = option(
        "linear",
        "What stands on the encoder. linear: one layer; bilstm: two layers of bidirectional LSTM before it.",
        choices=("linear", "bilstm"),
        affects="head",
    )
    lstm_units: int | None = option(
        None,
        "With --head=bilstm: number of units per direction; by default the hidden size of the encoder.",
        minimum=1,
        maximum=MAX_AXIS,
        only_with={"head": ("bilstm",)},
        affects="head",
    )

    @property
    def model_options(self) -> dict[str, Any]:
        """The flags that are arguments of the model on the encoder."""
        return {"head": self.head, "lstm_units": self.lstm_units}
