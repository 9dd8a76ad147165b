"""Flags for the model and its head."""

from typing import Any, ClassVar

from official_bert.options.option import MAX_AXIS, Options, option, options
from official_bert.options.text import TokenizerOptions


@options(group="model")
class ArchitectureOptions(Options):
    """Flags of every command that creates a model."""

    bert_config_file: str | None = option(
        None,
        "Model configuration (bert_config.json).",
        required=True,
        from_checkpoint=True,
        is_path=True,
        affects="data",
    )


@options(group="model")
class ModelOptions(TokenizerOptions, ArchitectureOptions):
    """Flags of commands that load a trained model."""

    max_seq_length: ClassVar[int | None] = None  # a flag in commands that do not derive the length from the texts
    init_checkpoint: str | None = option(None, "Checkpoint with the weights of the model.", required=True, is_path=True)


@options(group="model")
class HeadOptions(Options):
    """Flags of commands with a choice of heads."""

    head: str = option(
        "linear",
        "Head on the encoder. linear: one linear layer; bilstm: two bidirectional LSTM layers, then a linear layer.",
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
        """Keyword arguments of the model, from these flags."""
        return {"head": self.head, "lstm_units": self.lstm_units}
