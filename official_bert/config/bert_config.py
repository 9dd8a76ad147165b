"""`BertConfig`: the architecture, read from and written to the `bert_config.json` that lies beside a checkpoint."""

import dataclasses
import json

from absl import logging

from official_bert import files
from official_bert.errors import UserError

ACTIVATION_NAMES = ("gelu", "gelu_erf", "relu", "tanh", "linear")


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """The shape of a BERT model.

    Raises:
      UserError: a value has the wrong type or range, or two values do not fit together.
    Source: the reference's BertConfig; the last block holds keys of published files that nothing computes with.
    """

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 16
    initializer_range: float = 0.02

    directionality: str | None = None
    pooler_fc_size: int | None = None
    pooler_num_attention_heads: int | None = None
    pooler_num_fc_layers: int | None = None
    pooler_size_per_head: int | None = None
    pooler_type: str | None = None

    def __post_init__(self):
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "type_vocab_size",
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(f"{name} is {value!r}; it must be a whole number above 0")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 <= value < 1:
                raise UserError(f"{name} is {value!r}; it must be a number from 0 to below 1")
        if not _is_number(self.initializer_range) or not 0 < self.initializer_range < 10:
            raise UserError(f"initializer_range is {self.initializer_range!r}; it must be a standard deviation above 0")
        if self.hidden_act not in ACTIVATION_NAMES:
            raise UserError(f"hidden_act is {self.hidden_act!r}; it must be one of {', '.join(ACTIVATION_NAMES)}")
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )

    @classmethod
    def from_dict(cls, values: dict) -> "BertConfig":
        """Builds a config from the keys of a `bert_config.json`.

        Raises:
          UserError: a key is unknown or `vocab_size` is missing, beside the checks of the class.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise UserError(f"unknown key {unknown[0]!r} ({len(unknown)} in all); known keys: {', '.join(known)}")
        if "vocab_size" not in values:
            raise UserError("the key 'vocab_size' is missing")
        activation = values.get("hidden_act", "gelu") or "linear"  # null and "" mean linear, as in the reference
        if isinstance(activation, str):
            activation = activation.lower()
        return cls(**{**values, "hidden_act": activation})

    @classmethod
    def from_json_file(cls, path: str) -> "BertConfig":
        """Reads a `bert_config.json`.

        Raises:
          UserError: the file is missing, not JSON, or holds a wrong value; the message names the file.
        """
        values = files.read_json(path, "model config")
        try:
            return cls.from_dict(values)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    def to_dict(self) -> dict:
        """The keys of `bert_config.json`; unused published keys appear only if the config came with them."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}

    def to_json_string(self) -> str:
        """The text of `bert_config.json`."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def check_length(self, max_seq_length: int, config_file: str) -> None:
        """Raises unless the position table is long enough.

        Raises:
          UserError: `max_seq_length` exceeds `max_position_embeddings`; the message holds both.
        """
        if max_seq_length > self.max_position_embeddings:
            raise UserError(
                f"--max_seq_length={max_seq_length} exceeds max_position_embeddings={self.max_position_embeddings} of "
                f"{config_file}; lower the flag or use another checkpoint"
            )

    def check_vocab_size(self, num_pieces: int, vocab_file: str, config_file: str) -> None:
        """Raises unless the model has a row for each wordpiece; warns if most rows have none.

        Raises:
          UserError: the vocabulary is larger than `vocab_size`; the message holds both.
        """
        if num_pieces > self.vocab_size:
            raise UserError(
                f"{vocab_file} has {num_pieces} wordpieces, {config_file} a vocab_size of {self.vocab_size}; use the "
                "two that belong together"
            )
        if 2 * num_pieces < self.vocab_size:  # a few spare rows are common, as many as that are not
            logging.warning(
                "%s has only %d wordpieces, %s a vocab_size of %d; is this the vocabulary of the checkpoint?",
                vocab_file,
                num_pieces,
                config_file,
                self.vocab_size,
            )


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
