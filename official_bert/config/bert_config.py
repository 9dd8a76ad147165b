"""`BertConfig`: the architecture, read from and written to the `bert_config.json` that lies beside a checkpoint."""

import dataclasses
import json
from collections.abc import Sequence

from absl import logging

from official_bert.config.hf_keys import from_hf, is_hf
from official_bert.support import text_files
from official_bert.support.errors import UserError

BIDIRECTIONAL, LEFT_TO_RIGHT = ATTENTION_DIRECTIONS = ("bidirectional", "left_to_right")
ACTIVATION_NAMES = ("gelu", "gelu_erf", "relu", "tanh", "linear")

# The sizes of a model, with those of BERT-base.
USUAL_SIZES = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
# Keys of the `albert_config.json` files of google-research/albert: what a missing one means there, where that differs
# from BERT; and those that nothing computes with, with the one value that released files have.
_ALBERT_DEFAULTS = {
    "embedding_size": 128,
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "type_vocab_size": 2,
}
_ALBERT_CONSTANTS = {
    "down_scale_factor": 1,
    "gap_size": 0,
    "layers_to_keep": [],
    "net_structure_type": 0,
    "num_memory_blocks": 0,
}
ALBERT_KEYS = ("embedding_size", "num_hidden_groups", "inner_group_num")
_LARGEST_SIZE = 2**31 - 1  # of an int32, with which TensorFlow counts
_MOST_SPARE_ROWS = 1024  # of the embeddings: the largest number to multiples of which sizes are rounded up
_MOST_LAYERS = 10_000  # to build that many takes minutes, however small they are


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """The shape of a BERT or ALBERT model.

    All but the last four are keys of the reference. `attention_direction` is what a position attends to,
    "bidirectional" for all positions or "left_to_right" for itself and those before it (BERT paper, section 5.1). Left
    to right, `[CLS]` sees nothing, so the pooler reads the last real position.

    With `num_hidden_groups` the model is an ALBERT: its layers are divided into so many groups, and those of a group
    share their weights; each of the `num_hidden_layers` is itself `inner_group_num` layers in a row, and the embeddings
    have a width of their own, `embedding_size`, from which they are projected to `hidden_size`.

    Raises:
      UserError: a value has the wrong type or range, or two values do not fit together.
    Source: the reference's BertConfig; the second block holds keys of published files that nothing computes with. Of
      ALBERT: Lan et al., 2020, section 3.1, and google-research/albert's AlbertConfig.
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

    attention_direction: str = BIDIRECTIONAL

    embedding_size: int | None = None
    num_hidden_groups: int | None = None
    inner_group_num: int = 1

    def __post_init__(self):
        for name in (*USUAL_SIZES, *(ALBERT_KEYS if self.is_albert else ())):
            value = getattr(self, name)
            largest = _MOST_LAYERS if name in ("num_hidden_layers", "inner_group_num") else _LARGEST_SIZE
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
                raise UserError(f"{name} is {_shown(value)}; it must be a whole number from 1 to {largest}")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 <= value < 1:
                raise UserError(f"{name} is {_shown(value)}; it must be a number of at least 0 and below 1")
        if not _is_number(self.initializer_range) or not 0 < self.initializer_range < 10:
            raise UserError(
                f"initializer_range is {_shown(self.initializer_range)}; it must be a standard deviation above 0"
            )
        if self.hidden_act not in ACTIVATION_NAMES:
            raise UserError(f"hidden_act is {_shown(self.hidden_act)}; it must be one of {', '.join(ACTIVATION_NAMES)}")
        if self.attention_direction not in ATTENTION_DIRECTIONS:
            raise UserError(
                f"attention_direction is {_shown(self.attention_direction)}; it must be one of "
                f"{', '.join(ATTENTION_DIRECTIONS)}"
            )
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )
        self._check_groups()

    def _check_groups(self) -> None:
        if self.is_albert:
            if self.num_hidden_layers % self.num_hidden_groups:
                raise UserError(
                    f"num_hidden_layers {self.num_hidden_layers} is not a multiple of num_hidden_groups "
                    f"{self.num_hidden_groups}"
                )
        elif self.embedding_size is not None or self.inner_group_num != 1:
            name = "inner_group_num" if self.embedding_size is None else "embedding_size"
            raise UserError(f"{name} is a key of ALBERT, which needs num_hidden_groups, too; a BERT has neither")

    @classmethod
    def from_dict(cls, values: dict) -> "BertConfig":
        """Builds a config from the keys of a `bert_config.json` or `albert_config.json`.

        Raises:
          UserError: a key is unknown or `vocab_size` is missing, beside the checks of the class.
        """
        if "num_hidden_groups" in values:
            values = _ALBERT_DEFAULTS | _without_constants(values)
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise UserError(f"unknown key {unknown[0]!r} ({len(unknown)} in all); known keys: {', '.join(known)}")
        if "vocab_size" not in values:
            raise UserError("the key 'vocab_size' is missing")
        activation = values.get("hidden_act", "gelu")
        if activation is None or isinstance(activation, str):
            activation = (activation or "linear").lower()  # null and "" mean linear, as in the reference
        return cls(**{**values, "hidden_act": activation})

    @classmethod
    def from_json_file(cls, path: str, *, attention_direction: str | None = None) -> "BertConfig":
        """Reads a `bert_config.json`.

        Args:
          path: the file; an `albert_config.json` or the `config.json` of a Hugging Face folder is read as well.
          attention_direction: what takes the place of the file's, if given.

        Raises:
          UserError: the file is missing, not JSON, or holds a wrong value; the message names the file.
        """
        values = text_files.read_json(path, "model config")
        is_theirs = is_hf(values, path)
        try:
            if is_theirs:
                values = from_hf(values, [field.name for field in dataclasses.fields(cls)])
            config = cls.from_dict(values)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        return dataclasses.replace(config, attention_direction=attention_direction or config.attention_direction)

    @property
    def num_parameters(self) -> int:
        """The number of parameters of the encoder, pooler included; heads have few more."""
        width, inner, embedding_width = self.hidden_size, self.intermediate_size, self.embedding_width
        rows = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        dense = width * width + width
        feed_forward = width * inner + inner + inner * width + width
        layer = 4 * dense + feed_forward + 2 * (2 * width)
        projection = embedding_width * width + width if embedding_width != width else 0
        return (rows + 2) * embedding_width + projection + self.num_distinct_layers * layer + dense

    @property
    def is_albert(self) -> bool:
        """True if layers share their weights, as in ALBERT."""
        return self.num_hidden_groups is not None

    @property
    def embedding_width(self) -> int:
        """The width of the embeddings, which is that of the layers but for ALBERT."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def num_layers(self) -> int:
        """The number of layers that are computed one after the other, L; of ALBERT, those within the groups count."""
        return self.num_hidden_layers * self.inner_group_num

    @property
    def num_distinct_layers(self) -> int:
        """The number of layers with weights of their own."""
        return self.num_hidden_groups * self.inner_group_num if self.is_albert else self.num_hidden_layers

    @property
    def is_left_to_right(self) -> bool:
        """True if a position attends only to itself and those before it."""
        return self.attention_direction == LEFT_TO_RIGHT

    def to_dict(self) -> dict:
        """The keys of `bert_config.json`; those that the reference has no need of appear only where they differ."""
        values = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        if not self.is_left_to_right:
            del values["attention_direction"]
        if not self.is_albert:
            del values["inner_group_num"]
        return values

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
                f"max_seq_length={max_seq_length} exceeds max_position_embeddings={self.max_position_embeddings} of "
                f"{config_file}; lower max_seq_length or use another checkpoint"
            )

    def check_layers(self, layers: Sequence[int], config_file: str) -> None:
        """Raises unless the model has these layers.

        Args:
          layers: indices, 0 for the first layer, or -1 for the last.
          config_file: this config, for messages.

        Raises:
          UserError: one is out of range; the message says what the range is.
        """
        count = self.num_layers
        wrong = [layer for layer in layers if not -count <= layer < count]
        if wrong:
            given = ",".join(map(str, layers))
            raise UserError(f"layers={given}: {_no_such('layer', wrong[0], count, config_file)}")

    def check_has_own_layers(self, config_file: str) -> None:
        """Raises if layers cannot be taken out of the model.

        Raises:
          UserError: the model is an ALBERT; the message says what to do instead.
        """
        if self.is_albert:
            raise UserError(
                f"{config_file} is of an ALBERT, whose layers share their weights; for another number of layers change "
                "num_hidden_layers there, and use the same checkpoint"
            )

    def check_head(self, layer: int, head: int, config_file: str) -> None:
        """Checks that there is an attention head.

        Args:
          layer: index of its layer, 0 for the first, or -1 for the last.
          head: its index in the layer, likewise.
          config_file: this config, for messages.

        Raises:
          UserError: one is out of range; the message says what the range is.
        """
        counts = {"layer": (layer, self.num_layers), "head": (head, self.num_attention_heads)}
        for name, (index, count) in counts.items():
            if not -count <= index < count:
                raise UserError(f"{name}={index}: {_no_such(name, index, count, config_file)}")

    def check_vocab_size(self, num_tokens: int, vocab_file: str, config_file: str, *, is_of_model: bool = True) -> None:
        """Raises unless the model has an embedding for each wordpiece and few that no wordpiece has.

        Rows to spare are common: sizes are rounded up, and places kept for later.

        Args:
          num_tokens: ids of the vocabulary.
          vocab_file: the vocabulary, for messages.
          config_file: this config or its model, for messages.
          is_of_model: whether it is known that weights were trained with this vocabulary, or will be; then many rows to
            spare only give a warning.

        Raises:
          UserError: the vocabulary is empty or larger than `vocab_size`, or far smaller; the message holds both.
        """
        sizes = f"{vocab_file} has {num_tokens} wordpieces, {config_file} a vocab_size of {self.vocab_size}"
        if not 0 < num_tokens <= self.vocab_size:
            raise UserError(f"{sizes}; use a vocabulary and a model that belong together")
        has_few = 2 * num_tokens < self.vocab_size
        if not is_of_model and (has_few or self.vocab_size - num_tokens > _MOST_SPARE_ROWS):
            raise UserError(
                f"{sizes}; use a vocabulary and a model that belong together (if these do, put the vocabulary beside "
                "the checkpoint)"
            )
        if has_few:
            logging.warning("%s; is this the vocabulary of the checkpoint?", sizes)


def _without_constants(values: dict) -> dict:
    """The keys of an `albert_config.json` without those that have one value in all released files."""
    for name, constant in _ALBERT_CONSTANTS.items():
        if values.get(name, constant) != constant:
            raise UserError(f"{name} is {_shown(values[name])}; only {constant!r} is supported")
    return {name: value for name, value in values.items() if name not in _ALBERT_CONSTANTS}


def _no_such(name: str, index: int, count: int, config_file: str) -> str:
    return (
        f"there is no {name} {index} in a model of {count} {name}s ({config_file}); give indices from 0 (the first) to "
        f"{count - 1}, or from -1 (the last) to -{count}"
    )


def _shown(value: object) -> str:
    """A value as a message shows it: as Python writes it, cut off where it is very long."""
    return f"{value!r:.80}"


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
