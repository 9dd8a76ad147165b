"""`BertConfig`: the architecture of a model, read from and written to `bert_config.json`."""

import dataclasses
import itertools
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from absl import logging

from official_bert.config import model_formats
from official_bert.families.family import (
    BERT,
    FAMILY_KEY,
    MODEL_TYPE,
    Family,
    all_families,
    family_of_keys,
    is_config,
    label_keys,
    load_family,
)
from official_bert.support import files, text_files
from official_bert.support.errors import UserError

FIRST, LAST, MEAN = "first", "last", "mean"  # the vectors of a sequence that a pooler may read
BIDIRECTIONAL, LEFT_TO_RIGHT = ATTENTION_DIRECTIONS = ("bidirectional", "left_to_right")
ACTIVATION_NAMES = ("gelu", "gelu_erf", "relu", "tanh", "linear")

# The size keys, with the values of BERT-Base.
USUAL_SIZES = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
LARGEST_SIZE = 2**31 - 1  # TensorFlow counts in int32
MOST_LAYERS = 10_000  # building that many takes minutes, even if they are small
# Keys that do not change what the trained weights compute; the dropout rates are used in training.
DROPOUT_KEYS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_OUR_KEYS = ("attention_direction", "layer_norm_eps")  # unknown to the reference
_NOT_DECISIVE = (
    *(*DROPOUT_KEYS, "initializer_range", "directionality", "pooler_fc_size", "pooler_num_attention_heads"),
    *("pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"),
)
_MOST_SPARE_ROWS = 1024  # embedding tables are padded to multiples of at most this number
_BYTES_OF_NUMBER = 4  # float32
_ADAM_MULTIPLE = 3  # each parameter and Adam's two moments
# The inputs of every encoder, each int32 [B, S], in the order of its arguments.
ENCODER_INPUTS = ("input_ids", "input_mask", "segment_ids")

# The number of positions of each text of an example, in records whose texts follow one another.
TEXT_LENGTHS = "text_lengths"

_MOST_NUMBERS = 1 << 26  # 256 MB in float32; a layer has a few such tensors at a time

# The output of a frozen encoder, in records and as the input of a separate head.
FEATURES = "features"

# Low-rank updates of kernels: a part of the names of their two factors, Keras's, and the name of their scale.
LORA, LORA_SCALE = "/lora_kernel_", "lora_scale"


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """The architecture of a BERT; other families have subclasses in their modules.

    All but the last two fields are keys of the reference. `attention_direction` is the set of positions that each
    position attends to: "bidirectional" for all, "left_to_right" for itself and those before it (BERT paper, section
    5.1). Left to right, `[CLS]` sees only itself, so the pooler reads the last unpadded position. `layer_norm_eps` is
    added to the variance in layer normalization.

    Attributes:
      family_name: the family's key in `families.family`.
      largest: maximum of each count among the keys.
      smallest: minimum of each count whose minimum is not 1.
      first_position: the row of the position embeddings for the first position of a sequence.
      has_biases: whether linear layers of the encoder have biases, and normalizations shifts.

    Raises:
      UserError: a value has the wrong type or range, or two values do not fit together.
    Source: the reference's BertConfig; the fields of the second block occur in published files and are unused.
    """

    family_name: ClassVar[str] = BERT
    largest: ClassVar[Mapping[str, int]] = {
        **dict.fromkeys(USUAL_SIZES, LARGEST_SIZE),
        "num_hidden_layers": MOST_LAYERS,
    }
    smallest: ClassVar[Mapping[str, int]] = {}
    first_position: ClassVar[int] = 0
    has_biases: ClassVar[bool] = True

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
    layer_norm_eps: float = 1e-12

    def __post_init__(self):
        for name, largest in self.largest.items():
            value, smallest = getattr(self, name), self.smallest.get(name, 1)
            if not isinstance(value, int) or isinstance(value, bool) or not smallest <= value <= largest:
                raise UserError(f"{name} is {_shown(value)}; it must be a whole number from {smallest} to {largest}")
        for name, limit in (*((name, 1) for name in DROPOUT_KEYS), ("initializer_range", 10), ("layer_norm_eps", 1)):
            value, may_be_0 = getattr(self, name), name in DROPOUT_KEYS
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 <= value < limit or (value == 0 and not may_be_0):
                least = "of at least" if may_be_0 else "above"
                raise UserError(f"{name} is {_shown(value)}; it must be a number {least} 0 and below {limit}")
        for name, known in (("hidden_act", ACTIVATION_NAMES), ("attention_direction", ATTENTION_DIRECTIONS)):
            if getattr(self, name) not in known:
                raise UserError(f"{name} is {_shown(getattr(self, name))}; it must be one of {', '.join(known)}")
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {self.num_attention_heads}"
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "BertConfig":
        """Build a config from the content of a config file; its keys determine the family."""
        family = family_of_keys(values)
        return _made(family, {name: value for name, value in values.items() if name != FAMILY_KEY})

    @classmethod
    def from_json_file(cls, path: str, *, attention_direction: str | None = None) -> "BertConfig":
        """Read a config file.

        Args:
          path: a `bert_config.json`, or the config file of another family or model format.
          attention_direction: overrides the value in the file, if given.

        Raises:
          UserError: the file is missing, not JSON, or holds a wrong value; the message names the file.
        """
        row = model_formats.config_format(path)
        values = {} if row else text_files.read_json(path, "model config")
        is_theirs = row is None and is_config(values, path)
        if is_theirs and MODEL_TYPE not in values:
            logging.info("%s has no %s; reading it as %s", path, MODEL_TYPE, family_of_keys(values).title)
        try:
            if row is not None:
                values = model_formats.load_module(row).config_values(path)
            if is_theirs:
                name = values.get(MODEL_TYPE)  # early files have none
                family = family_of_keys(values) if name is None else load_family(name)
                config = _made(family, family.hugging_face.to_bert_config(values, _keys(family)))
            else:
                config = cls.from_dict(values)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        return dataclasses.replace(config, attention_direction=attention_direction or config.attention_direction)

    @property
    def family(self) -> Family:
        """The encoder family."""
        return load_family(self.family_name)

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the encoder, pooler included; heads add few."""
        width, inner, embedding_width = self.hidden_size, self.intermediate_size, self.embedding_width
        rows = self.vocab_size + self.type_vocab_size
        dense = width * width + width
        feed_forward = width * inner + inner + inner * width + width
        layer = 4 * dense + feed_forward + 2 * (2 * width)
        projection = embedding_width * width + width if embedding_width != width else 0
        num_own_layers = math.prod(getattr(self, key) for key in self.family.layer_keys)
        return (rows + 2) * embedding_width + projection + num_own_layers * layer + self.num_position_parameters + dense

    @property
    def num_position_parameters(self) -> int:
        """Number of parameters for positions, in the embeddings or in attention."""
        return self.max_position_embeddings * self.embedding_width

    @property
    def own_sizes(self) -> dict[str, int]:
        """Sizes of dimensions that only this family has, by their letters in `families.family.Rule`."""
        return {}

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings, E: `hidden_size`, except in families that project the embeddings."""
        return self.hidden_size

    @property
    def num_segments(self) -> int:
        """Number of valid segment ids; a model without segment embeddings accepts the two of a pair."""
        return self.type_vocab_size or 2

    @property
    def max_length(self) -> int:
        """Maximum sequence length."""
        return self.max_position_embeddings - self.first_position

    def most_sequences(self, length: int, num_outputs: int = 0) -> int:
        """Return the number of sequences of a length to compute together, at least 1.

        The largest tensor of a layer, attention scores or inner activations, has at most `_MOST_NUMBERS` numbers, and
        so have the outputs, `num_outputs` per sequence.
        """
        of_layer = length * max(self.num_attention_heads * length, self.intermediate_size)
        return max(_MOST_NUMBERS // max(of_layer, num_outputs, 1), 1)

    @property
    def num_layers(self) -> int:
        """Number of layers that are computed one after the other, L."""
        return self.num_hidden_layers

    @property
    def layer_numbers(self) -> list[tuple[int, ...]]:
        """Numbers in the variable names of each layer; layers that share weights occur once."""
        return list(itertools.product(*(range(getattr(self, key)) for key in self.family.layer_keys)))

    @property
    def is_left_to_right(self) -> bool:
        """True if a position attends only to itself and the positions before it."""
        return self.attention_direction == LEFT_TO_RIGHT

    @property
    def pooled(self) -> str:
        """The vector that the pooler reads: of the first or last position, which attends to all others, or a mean."""
        return LAST if self.is_left_to_right else FIRST

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `bert_config.json`; keys unknown to the reference are written only if not default."""
        values = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        for name in _OUR_KEYS:
            if values[name] == getattr(type(self), name):
                del values[name]
        if self.family_name != BERT and self.family.own_key is None:
            values[FAMILY_KEY] = self.family_name
        return values

    def identity_values(self) -> dict[str, Any]:
        """Return the values that determine what the weights compute, including the family."""
        values = {FAMILY_KEY: self.family_name, **dataclasses.asdict(self)}
        return {name: value for name, value in values.items() if name not in _NOT_DECISIVE}

    def to_json_string(self) -> str:
        """Return the text of `bert_config.json`."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def to_hugging_face(self, architecture: str, num_classes: int | None) -> dict[str, Any]:
        """Return a Hugging Face `config.json` for a class of `transformers`; `num_classes` are its classifier's."""
        values = {name: value for name, value in self.to_dict().items() if name != FAMILY_KEY}
        values["layer_norm_eps"] = self.layer_norm_eps
        made = {"architectures": [architecture], MODEL_TYPE: self.family_name}
        made |= self.family.hugging_face.from_bert_config(values)
        if num_classes is not None:
            made |= label_keys([f"LABEL_{index}" for index in range(num_classes)])
        return made

    def check_length(self, max_seq_length: int, config_file: str) -> None:
        """Raise if there are too few position embeddings; `config_file` is this config, for the message."""
        if max_seq_length > self.max_length:
            less = f", less {self.first_position}," if self.first_position else ""
            raise UserError(
                f"max_seq_length={max_seq_length} exceeds max_position_embeddings={self.max_position_embeddings}{less} "
                f"of {config_file}; lower max_seq_length or use another checkpoint"
            )

    def check_layers(self, layers: Sequence[int], config_file: str) -> None:
        """Raise unless the model has these layers: 0 is the first, -1 the last."""
        count = self.num_layers
        wrong = [layer for layer in layers if not -count <= layer < count]
        if wrong:
            given = ",".join(map(str, layers))
            raise UserError(f"layers={given}: {_no_such('layer', wrong[0], count, config_file)}")

    def check_head(self, layer: int, head: int, config_file: str) -> None:
        """Raise unless the model has this attention head, with the layer; 0 is the first, -1 the last."""
        counts = {"layer": (layer, self.num_layers), "head": (head, self.num_attention_heads)}
        for name, (index, count) in counts.items():
            if not -count <= index < count:
                raise UserError(f"{name}={index}: {_no_such(name, index, count, config_file)}")

    def check_vocabulary(self, vocabulary: Any, config_file: str, *, is_of_model: bool = True) -> None:
        """Check the size of a `Vocabulary`, some spare rows are normal, and the id of its padding."""
        num_tokens = vocabulary.size
        sizes = f"{vocabulary.source} has {num_tokens} wordpieces, {config_file} a vocab_size of {self.vocab_size}"
        if not 0 < num_tokens <= self.vocab_size:
            raise UserError(f"{sizes}; use a vocabulary and a model that belong together")
        pad_id = self.first_position - 1  # if positive, padding must have this id, since it determines positions
        if pad_id > 0 and vocabulary.pad_id not in (None, pad_id):
            raise UserError(
                f"{vocabulary.source} gives padding the id {vocabulary.pad_id}, but {self.family.title} needs {pad_id} "
                f"({config_file}); use a vocabulary and a model that belong together"
            )
        num_spare = self.vocab_size - num_tokens
        if num_spare <= min(_MOST_SPARE_ROWS, num_tokens):
            return
        if not is_of_model:
            raise UserError(
                f"{sizes}; use a vocabulary and a model that belong together (if these do, put the vocabulary beside "
                "the checkpoint)"
            )
        message = "%s: %d ids have no wordpiece; is this the vocabulary of the checkpoint, and is it complete?"
        logging.warning(message, sizes, num_spare)


def _made(family: Family, values: Mapping[str, Any]) -> BertConfig:
    """Build the config of a family from the keys of its files."""
    for name, constant in family.constant_keys.items():
        if values.get(name, constant) != constant:
            raise UserError(f"{name} is {_shown(values[name])}; only {constant!r} is supported")
    known = _keys(family)
    unknown = sorted(set(values) - set(known) - set(family.constant_keys))
    if unknown:
        for other in all_families().values():
            if other.own_key and unknown[0] in _keys(other):
                raise UserError(
                    f"{unknown[0]} is a key of {other.title}, whose config also needs {other.own_key}; {family.title} "
                    "has neither key"
                )
        raise UserError(f"unknown key {unknown[0]!r} ({len(unknown)} in all); known keys: {', '.join(known)}")
    if "vocab_size" not in values:
        raise UserError("the key 'vocab_size' is missing")
    values = {name: value for name, value in values.items() if name in known}
    activation = values.get("hidden_act", family.config_class.hidden_act)
    if activation is None or isinstance(activation, str):
        activation = (activation or "linear").lower()  # null and "" mean linear, as in the reference
    return family.config_class(**{**values, "hidden_act": activation})


def _keys(family: Family) -> list[str]:
    return [field.name for field in dataclasses.fields(family.config_class)]


def _no_such(name: str, index: int, count: int, config_file: str) -> str:
    return (
        f"there is no {name} {index} in a model of {count} {name}s ({config_file}); give indices from 0 (the first) to "
        f"{count - 1}, or from -1 (the last) to -{count}"
    )


def _shown(value: object) -> str:
    """Format a value for a message, truncated to 80 characters."""
    return f"{value!r:.80}"


def check_memory(config: BertConfig, config_file: str, *, for_training: bool) -> None:
    """Check that a model fits into the memory, before anything tries to allocate it."""
    needed = config.num_parameters * _BYTES_OF_NUMBER * (_ADAM_MULTIPLE if for_training else 1)
    available = _memory_and_swap()
    if available is not None and needed > available:
        name = max(USUAL_SIZES, key=lambda name: getattr(config, name) / USUAL_SIZES[name])
        raise UserError(
            f"{config_file}: {name} is {getattr(config, name)}; the model has {config.num_parameters:,} parameters and "
            f"needs {_gigabytes(needed)} {'to be trained' if for_training else 'of memory'}, but this machine has "
            f"{_gigabytes(available)}, swap included"
        )


def _memory_and_swap() -> int | None:
    """Return the bytes of physical memory and swap; None if the system does not report them."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with files.open_file("/proc/meminfo") as source:
            swap = re.search(r"^SwapTotal:\s+(\d+) kB$", source.read(), re.MULTILINE)
    except (AttributeError, OSError, ValueError):  # if one is unknown, a model that fits could be rejected
        return None
    return memory + 1024 * int(swap[1]) if swap and memory > 0 else None


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.1f} GB"
