"""A family in Hugging Face's terms: the keys of its `config.json`, and the names of its tensors in `transformers`."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from official_bert.support.errors import UserError

if TYPE_CHECKING:
    import numpy as np

# Activations, theirs to ours. Of two names for one function the last is written: PyTorch computes it in one step.
ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
# What our encoder is and theirs may be otherwise; also what a missing key means.
FIXED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
MODEL_TYPE = "model_type"  # names the family
_THEIRS = (MODEL_TYPE, "architectures", "transformers_version")  # keys that no config file of ours has


class Rule(NamedTuple):
    """One variable; with `{}` in its names, which stand for the numbers of a layer, one of each layer.

    Attributes:
      source: its name, in the tables of families ours.
      target: its other name.
      shape: under the first name, a letter for each dimension: V, T, S rows of the embeddings of words, segments and
        positions, E their width, D that of the layers, I the inner one, C classes; or a digit.
      is_transposed: whether the two layouts are transposes of each other; PyTorch's linear layers keep [output, input].
      is_projection: whether it is there only where the embeddings are not as wide as the layers.
    """

    source: str
    target: str
    shape: str
    is_transposed: bool = False
    is_projection: bool = False

    def mirrored(self) -> "Rule":
        """Return the same rule from the other side."""
        shape = self.shape[::-1] if self.is_transposed else self.shape
        return self._replace(source=self.target, target=self.source, shape=shape)

    def expand_layers(self, layers: Iterable[tuple[int, ...]]) -> list["Rule"]:
        """Return the rule for each layer of these numbers; the rule itself if it is of no layer."""
        if "{}" not in self.source:
            return [self]
        return [self._replace(source=self.source.format(*layer), target=self.target.format(*layer)) for layer in layers]


def dense(name: str, hf_name: str, shape: str) -> tuple[Rule, ...]:
    """Return the two variables of a linear layer."""
    kernel = Rule(f"{name}/kernel", f"{hf_name}.weight", shape, is_transposed=True)
    return kernel, Rule(f"{name}/bias", f"{hf_name}.bias", shape[1])


def layer_norm(name: str, hf_name: str, shape: str = "D") -> tuple[Rule, ...]:
    """Return the two variables of a layer normalization."""
    return Rule(f"{name}/gamma", f"{hf_name}.weight", shape), Rule(f"{name}/beta", f"{hf_name}.bias", shape)


def output(folder: str, hf_name: str, classes: str) -> tuple[Rule, ...]:
    """Return the two variables of a head that gives logits; ours are stored transposed, as in the reference."""
    weights = Rule(f"{folder}output_weights", f"{hf_name}.weight", f"{classes}D")
    return weights, Rule(f"{folder}output_bias", f"{hf_name}.bias", classes)


def encoder_rules(prefix: str) -> tuple[Rule, ...]:
    """Return the variables of an encoder whose tensors have BERT's names, after a prefix of its own."""
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
    """Variables that models in `transformers` have, and ours do not, because they can have one value alone.

    Attributes:
      arrays: the value of each, under the name that we would give it.
      otherwise: what to say of a model where they have another value.
    """

    arrays: dict[str, "np.ndarray"]
    otherwise: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class HuggingFace:
    """The models of one family, as `transformers` knows them.

    Attributes:
      defaults: what a missing key means there, where it does not mean the same here.
      fixed: keys that must have one value, which a missing key means as well.
      keys: our name of a key to theirs, where they differ; None where there is none.
      tokenizer_class: the tokenizer in `transformers` that does what the family's does.
      prefix: what begins the names of the encoder's tensors, but in a model that is an encoder alone.
      parts: the variables of each part of a model; of a part, all are there or none. Names of heads may be the same
        there: the class of a model tells which one it has, and without it the first one is meant.
      poolers: the pooler's variables in a model with one of these heads, where they are not those of `parts`.
      left_out: what begins our names of variables that no class has a place for.
      tied: tensors that are the same variable as another one.
      architectures: the class in `transformers` for the heads that a model may have.
      constants: gives the variables that are constants, from the config.
    """

    defaults: Mapping[str, Any]
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=lambda: FIXED)
    keys: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    tokenizer_class: str
    prefix: str
    parts: Mapping[str, Sequence[Rule]]
    poolers: Mapping[str, Sequence[Rule]] = dataclasses.field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    tied: Mapping[str, str]
    architectures: Mapping[tuple[str, ...], str]
    constants: Callable[[Any], Constants] = lambda config: Constants({}, "")

    def to_bert_config(self, values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
        """Translate the keys of a `config.json`; those that have nothing to do with the architecture are left out.

        Args:
          values: what the file holds.
          known: the keys of our config file.

        Raises:
          UserError: it asks for something that our encoder does not compute.
        """
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
        """Translate the keys of our config file.

        Raises:
          UserError: `transformers` cannot compute it.
        """
        if "attention_direction" in values:
            raise UserError("attention_direction is left_to_right, which Hugging Face's BERT has no equal of")
        activations = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
        values = {**values, "hidden_act": activations[values["hidden_act"]]}
        renamed = {self.keys.get(name, name): value for name, value in values.items()}
        return {**self.fixed, **{key: value for key, value in renamed.items() if key is not None}}

    def heads_of(self, names: Collection[str], architecture: str | None = None) -> list[str]:
        """Return the heads of a model, given its class, if that is known, and the names of its tensors."""
        found, taken = [], set()
        for head in dict.fromkeys((*self.heads_of_class(architecture), *self.heads)):
            targets = {rule.target for rule in self.parts[head]}
            if not targets.isdisjoint(names) and targets.isdisjoint(taken):
                found.append(head)
                taken |= targets
        return found

    def heads_of_class(self, architecture: str | None) -> tuple[str, ...]:
        """Return the heads that the models of a class have; none of a class that is not known."""
        return next((heads for heads, name in self.architectures.items() if name == architecture), ())

    def parts_with(self, heads: Collection[str]) -> dict[str, Sequence[Rule]]:
        """Return the variables of each part of a model with these heads."""
        parts = {part: rules for part, rules in self.parts.items() if part in heads or part not in self.heads}
        pooler = next((rules for head, rules in self.poolers.items() if head in heads), None)
        return parts if pooler is None else parts | {"pooler": pooler}

    @property
    def heads(self) -> list[str]:
        """The parts that stand on the encoder; a model has some of them."""
        return [part for part in self.parts if any(part in heads for heads in self.architectures)]

    def with_prefix(self, name: str) -> str:
        """Add the prefix to the name of a tensor of a model that is an encoder alone."""
        encoder = [rule.target for part, rules in self.parts.items() if part not in self.heads for rule in rules]
        stems = {name.removeprefix(self.prefix).partition(".")[0] for name in encoder}
        return self.prefix + name if name.partition(".")[0] in stems else name


def is_config(values: Mapping[str, Any], path: str) -> bool:
    """Tell whether a config file with these keys is of Hugging Face."""
    return path.endswith("/config.json") or path == "config.json" or any(key in values for key in _THEIRS)


def label_names(values: Mapping[str, Any], path: str) -> list[str]:
    """Return the names of the classes of a finished model, in the order of its outputs.

    Args:
      values: what its `config.json` holds; without names they are LABEL_0, LABEL_1 and so on, as in `transformers`.
      path: that file, for messages.

    Raises:
      UserError: the names are not those of the classes 0, 1 and so on.
    """
    names = values.get("id2label")
    if names is None:
        count = values.get("num_labels", 2)
        names = {str(index): f"LABEL_{index}" for index in range(count)} if isinstance(count, int) else {}
    indices = [str(index) for index in range(len(names))] if isinstance(names, dict) else []
    if not indices or set(names) != set(indices) or not all(isinstance(name, str) for name in names.values()):
        raise UserError(
            f'{path}: id2label must name the classes, from "0" on without a gap, each with a string; correct the file'
        )
    return [names[index] for index in indices]


def label_keys(names: Sequence[str]) -> dict[str, Any]:
    """Return the keys of a `config.json` that name classes, as `label_names` reads them."""
    return {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }
