"""Conversion of a family to and from `transformers`: the keys of `config.json` and the names of tensors."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from official_bert.support.errors import UserError

if TYPE_CHECKING:
    import numpy as np

# Activations, theirs to ours. The last of several names is the one we write: PyTorch computes it in one kernel.
ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
# Keys whose values are fixed in our encoder; also their defaults.
FIXED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
MODEL_TYPE = "model_type"  # key of the family
_MOST_LABELS = 1 << 20
_THEIRS = (MODEL_TYPE, "architectures", "transformers_version")  # keys that our config files never have


class Rule(NamedTuple):
    """Names and shape of a variable; `{}` in the names stands for layer numbers, so the rule holds for every layer."""

    source: str  # source name; our name in the tables of families
    target: str  # target name
    # shape of the source, a letter or digit per dimension. V, T, S: rows of the word, segment and position
    # embeddings; E: their width; D: hidden size; I: intermediate size; C: classes
    shape: str
    # whether source and target are transposes of each other; PyTorch's linear layers are [output, input]
    is_transposed: bool = False
    is_projection: bool = False  # whether the variable exists only if embeddings and layers differ in width

    def mirrored(self) -> "Rule":
        """Return the rule of the opposite direction."""
        shape = self.shape[::-1] if self.is_transposed else self.shape
        return self._replace(source=self.target, target=self.source, shape=shape)

    def expand_layers(self, layers: Iterable[tuple[int, ...]]) -> list["Rule"]:
        """Return the rule for each layer; only the rule itself if it does not belong to a layer."""
        if "{}" not in self.source:
            return [self]
        return [self._replace(source=self.source.format(*layer), target=self.target.format(*layer)) for layer in layers]


def dense(name: str, hf_name: str, shape: str) -> tuple[Rule, ...]:
    """Return the rules of a linear layer."""
    kernel = Rule(f"{name}/kernel", f"{hf_name}.weight", shape, is_transposed=True)
    return kernel, Rule(f"{name}/bias", f"{hf_name}.bias", shape[1])


def layer_norm(name: str, hf_name: str, shape: str = "D") -> tuple[Rule, ...]:
    return Rule(f"{name}/gamma", f"{hf_name}.weight", shape), Rule(f"{name}/beta", f"{hf_name}.bias", shape)


def output(folder: str, hf_name: str, classes: str) -> tuple[Rule, ...]:
    """Return the rules of an output layer; our weights are stored transposed, as in the reference."""
    weights = Rule(f"{folder}output_weights", f"{hf_name}.weight", f"{classes}D")
    return weights, Rule(f"{folder}output_bias", f"{hf_name}.bias", classes)


def encoder_rules(prefix: str) -> tuple[Rule, ...]:
    """Return the rules of an encoder with BERT's tensor names after a prefix."""
    embeddings, layer, hf_layer = f"{prefix}.embeddings", "bert/encoder/layer_{}", f"{prefix}.encoder.layer.{{}}"
    return (
        Rule("bert/embeddings/word_embeddings", f"{embeddings}.word_embeddings.weight", "VE"),
        Rule("bert/embeddings/token_type_embeddings", f"{embeddings}.token_type_embeddings.weight", "TE"),
        Rule("bert/embeddings/position_embeddings", f"{embeddings}.position_embeddings.weight", "SE"),
        *layer_norm("bert/embeddings/LayerNorm", f"{embeddings}.LayerNorm", "E"),
        *dense(f"{layer}/attention/self/query", f"{hf_layer}.attention.self.query", "DD"),
        *dense(f"{layer}/attention/self/key", f"{hf_layer}.attention.self.key", "DD"),
        *dense(f"{layer}/attention/self/value", f"{hf_layer}.attention.self.value", "DD"),
        *dense(f"{layer}/attention/output/dense", f"{hf_layer}.attention.output.dense", "DD"),
        *layer_norm(f"{layer}/attention/output/LayerNorm", f"{hf_layer}.attention.output.LayerNorm"),
        *dense(f"{layer}/intermediate/dense", f"{hf_layer}.intermediate.dense", "DI"),
        *dense(f"{layer}/output/dense", f"{hf_layer}.output.dense", "ID"),
        *layer_norm(f"{layer}/output/LayerNorm", f"{hf_layer}.output.LayerNorm"),
    )


class Constants(NamedTuple):
    """Variables that exist only in `transformers`, and whose values are fixed in our models."""

    arrays: dict[str, "np.ndarray"]  # value of each variable, by the name that it would have here
    otherwise: str  # error message for models with other values


@dataclasses.dataclass(frozen=True, kw_only=True)
class HuggingFace:
    """The models of a family in `transformers`."""

    defaults: Mapping[str, Any]  # values of missing keys in `transformers` that differ from ours
    # keys with a single supported value, which is also their default
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=lambda: FIXED)
    # our keys to theirs, where they differ; None for keys that they do not have
    keys: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    tokenizer_class: str  # the equivalent tokenizer in `transformers`
    prefix: str  # prefix of the encoder's tensors in models with a head; a bare encoder has none
    # the rules of each part of a model; a model has all variables of a part or none. Heads may share tensor
    # names; the model's class then determines the head, and without a class it is the first
    parts: Mapping[str, Sequence[Rule]]
    # the rules of the pooler in models with one of these heads, where they differ from those in `parts`
    poolers: Mapping[str, Sequence[Rule]] = dataclasses.field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # prefixes of our variables that no class in `transformers` has
    tied: Mapping[str, str]  # tensors that share a variable with another tensor
    architectures: Mapping[tuple[str, ...], str]  # the class in `transformers` for each combination of heads
    # function from the config to the fixed variables
    constants: Callable[[Any], Constants] = lambda config: Constants({}, "")

    def to_bert_config(self, values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
        """Translate a `config.json` to our keys; keys unrelated to the architecture are left out."""
        for key, ours in self.fixed.items():
            if values.get(key, ours) != ours:
                raise UserError(
                    f"{key} is {values[key]!r:.80}; only {ours!r} is supported, so the model cannot be converted"
                )
        values = {**self.defaults, **values}
        found = {name: values[key] for name in known if (key := self.keys.get(name, name)) in values}
        activation = found["hidden_act"]
        if not isinstance(activation, str) or activation not in ACTIVATIONS:
            key = self.keys.get("hidden_act", "hidden_act")
            raise UserError(f"{key} is {activation!r:.80}; only {', '.join(ACTIVATIONS)} can be converted")
        return found | {"hidden_act": ACTIVATIONS[activation]}

    def from_bert_config(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Translate our config file to the keys of a `config.json`."""
        if "attention_direction" in values:
            raise UserError("attention_direction is left_to_right, which Hugging Face's BERT does not support")
        activations = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
        values = {**values, "hidden_act": activations[values["hidden_act"]]}
        renamed = {self.keys.get(name, name): value for name, value in values.items()}
        return {**self.fixed, **{key: value for key, value in renamed.items() if key is not None}}

    def heads_of(self, names: Collection[str], architecture: str | None = None) -> list[str]:
        """Return the heads of a model from the names of its tensors and, if known, its class."""
        found, taken = [], set()
        for head in dict.fromkeys((*self.heads_of_class(architecture), *self.heads)):
            targets = {rule.target for rule in self.parts[head]}
            if not targets.isdisjoint(names) and targets.isdisjoint(taken):
                found.append(head)
                taken |= targets
        return found

    def heads_of_class(self, architecture: str | None) -> tuple[str, ...]:
        """Return the heads of a class in `transformers`; empty for an unknown class."""
        return next((heads for heads, name in self.architectures.items() if name == architecture), ())

    def parts_with(self, heads: Collection[str]) -> dict[str, Sequence[Rule]]:
        """Return the rules of each part of a model with these heads."""
        parts = {part: rules for part, rules in self.parts.items() if part in heads or part not in self.heads}
        pooler = next((rules for head, rules in self.poolers.items() if head in heads), None)
        return parts if pooler is None else parts | {"pooler": pooler}

    @property
    def heads(self) -> list[str]:
        """The parts that are heads; a model has some of them."""
        return [part for part in self.parts if any(part in heads for heads in self.architectures)]

    def with_prefix(self, name: str) -> str:
        """Add the prefix to a tensor name of a bare encoder."""
        encoder = [rule.target for part, rules in self.parts.items() if part not in self.heads for rule in rules]
        stems = {name.removeprefix(self.prefix).partition(".")[0] for name in encoder}
        return self.prefix + name if name.partition(".")[0] in stems else name


def is_config(values: Mapping[str, Any], path: str) -> bool:
    """Return True if a config file is Hugging Face's, by its path or keys."""
    return path.endswith("/config.json") or path == "config.json" or any(key in values for key in _THEIRS)


def label_names(values: Mapping[str, Any], path: str) -> list[str]:
    """Return the class names of a fine-tuned model, in the order of its outputs."""
    names = values.get("id2label")
    if names is None:
        count = values.get("num_labels", 2)
        is_count = type(count) is int and count <= _MOST_LABELS
        names = {str(index): f"LABEL_{index}" for index in range(count)} if is_count else {}
    indices = [str(index) for index in range(len(names))] if isinstance(names, dict) else []
    if not indices or set(names) != set(indices) or not all(isinstance(name, str) for name in names.values()):
        raise UserError(
            f'{path}: id2label must map "0", "1" and so on, without a gap, to class names; correct the file'
        )
    return [names[index] for index in indices]


def label_keys(names: Sequence[str]) -> dict[str, Any]:
    """Return the class-name keys of a `config.json`, in the form that `label_names` reads."""
    return {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }
