"""`Family`, the description of an encoder family, with its keys and tensor names in `transformers`; all families."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from official_bert import lazy
from official_bert.support.errors import UserError

BERT = "bert"
FAMILY_KEY = "family"  # key of our config files, for families that have no key of their own
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
FIXED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
MODEL_TYPE = "model_type"  # key of the family
_MOST_LABELS = 1 << 20
_THEIRS = (MODEL_TYPE, "architectures", "transformers_version")  # keys that our config files never have


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """A family of models that differ only in their sizes. The defaults are BERT's."""

    name: str  # `model_type` in a Hugging Face `config.json`
    title: str  # name in messages: "an ALBERT"
    config_class: type  # `BertConfig` or a subclass; its fields are the keys of the config files
    config_file: str = "bert_config.json"  # name of the config file in released archives
    # a key that only config files of this family have; None if only our key `family` distinguishes it
    own_key: str | None = None
    # unused keys of released config files, each with its only supported value
    constant_keys: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tokenizer: Callable[[], type] = lambda: lazy.FullTokenizer
    # the layers that differ from BERT's: "embeddings", "stack" (the transformer layers) and "pooler". Their variables
    # are named as in our checkpoints
    parts: Callable[[], Mapping[str, type]] = dict
    pooler_activation: str = "tanh"  # activation after the pooler's projection, one of `ACTIVATION_NAMES` of the config
    # whether all heads read what the pooler makes of a position, instead of the position itself
    heads_read_pooler: bool = False
    # whether the head that detects replaced tokens reads a position together with the first one, and normalizes the sum
    detects_beside_first: bool = False
    # activation after the masked-LM head's projection; None for that of the layers
    masked_lm_activation: str | None = None
    # prefixes of variable names in released TensorFlow 1 checkpoints, each with its prefix here
    released_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # a prefix that only pretrained models of this family have, which are written under the released names, too
    own_scope: str | None = None
    layers: str = "the layers of a BERT, each with weights of its own"  # description of the layers in messages
    layer_scope: str = "encoder/layer_0/"  # a part of the variable names of the first layer
    # keys whose product is the number of layers with separate weights; the variable names of a layer hold a
    # number for each key
    layer_keys: tuple[str, ...] = ("num_hidden_layers",)
    shares_layers: bool = False  # whether layers share weights, so that none can be treated separately
    hugging_face: "HuggingFace"  # the family's `config.json` keys and tensor names in `transformers`


class Rule(NamedTuple):
    """Names and shape of a variable; `{}` in the names stands for layer numbers, so the rule holds for every layer."""

    source: str  # source name; our name in the tables of families
    target: str  # target name
    # shape of the source, a letter or digit per dimension. V, T, S: rows of the word, segment and position
    # embeddings; E: their width; D: hidden size; I: intermediate size; N: heads; R: buckets of relative positions;
    # C: classes
    shape: str
    # whether source and target are transposes of each other; PyTorch's linear layers are [output, input]
    is_transposed: bool = False
    is_projection: bool = False  # whether the variable exists only if embeddings and layers differ in width
    skips_first: bool = False  # whether the first layer lacks the variable

    def mirrored(self) -> "Rule":
        """Return the rule of the opposite direction."""
        shape = self.shape[::-1] if self.is_transposed else self.shape
        return self._replace(source=self.target, target=self.source, shape=shape)

    def expand_layers(self, layers: Iterable[tuple[int, ...]]) -> list["Rule"]:
        """Return the rule for each layer; only the rule itself if it does not belong to a layer."""
        if "{}" not in self.source:
            return [self]
        return [
            self._replace(source=self.source.format(*layer), target=self.target.format(*layer))
            for layer in layers
            if any(layer) or not self.skips_first
        ]


def kernel(name: str, hf_name: str, shape: str, part: int | None = None) -> tuple[Rule, ...]:
    """Return the rule of a linear layer without bias, which may be a part of a tensor; see `HuggingFace.joined`."""
    place = "" if part is None else f"[{part}]"
    return (Rule(f"{name}/kernel", f"{hf_name}.weight{place}", shape, is_transposed=True),)


def dense(name: str, hf_name: str, shape: str) -> tuple[Rule, ...]:
    """Return the rules of a linear layer."""
    return *kernel(name, hf_name, shape), Rule(f"{name}/bias", f"{hf_name}.bias", shape[1])


def projection(name: str, hf_name: str) -> tuple[Rule, ...]:
    """Return the rules of the linear layer between embeddings and layers of another width."""
    return tuple(rule._replace(is_projection=True) for rule in dense(name, hf_name, "ED"))


def scale(name: str, hf_name: str, shape: str = "D") -> tuple[Rule, ...]:
    """Return the rule of a layer normalization without shift."""
    return (Rule(f"{name}/gamma", f"{hf_name}.weight", shape),)


def layer_norm(name: str, hf_name: str, shape: str = "D") -> tuple[Rule, ...]:
    return *scale(name, hf_name, shape), Rule(f"{name}/beta", f"{hf_name}.bias", shape)


def output(folder: str, hf_name: str, classes: str) -> tuple[Rule, ...]:
    """Return the rules of an output layer; our weights are stored transposed, as in the reference."""
    weights = Rule(f"{folder}output_weights", f"{hf_name}.weight", f"{classes}D")
    return weights, Rule(f"{folder}output_bias", f"{hf_name}.bias", classes)


def masked_lm_head(hf_dense: str, hf_norm: str, hf_bias: str, width: str = "D") -> tuple[Rule, ...]:
    """Return the rules of a masked-LM head, whose output weights are the word embeddings, of this width."""
    return (
        *dense("cls/predictions/transform/dense", hf_dense, f"D{width}"),
        *layer_norm("cls/predictions/transform/LayerNorm", hf_norm, width),
        Rule("cls/predictions/output_bias", hf_bias, "V"),
    )


def task_heads(classifier: str = "classifier") -> dict[str, tuple[Rule, ...]]:
    """Return the rules of the heads of fine-tuned models."""
    return {
        "classifier": output("", classifier, "C"),
        "tagger": output("tagging/", "classifier", "C"),
        "multiple-choice head": output("multiple_choice/", "classifier", "1"),
        "span head": output("cls/squad/", "qa_outputs", "2"),
    }


def architectures(prefix: str, **others: tuple[str, ...]) -> dict[tuple[str, ...], str]:
    """Return the classes with this prefix in `transformers`, by their heads; `others` are those of some families."""
    heads = {
        "Model": (),
        "ForMaskedLM": ("masked-LM head",),
        "ForSequenceClassification": ("classifier",),
        "ForTokenClassification": ("tagger",),
        "ForMultipleChoice": ("multiple-choice head",),
        "ForQuestionAnswering": ("span head",),
        **others,
    }
    return {of_class: prefix + name for name, of_class in heads.items()}


_OF_LAYER = ("attention/self/query", "attention/self/key", "attention/self/value", "attention/output/dense")
_OF_LAYER += ("attention/output/LayerNorm", "intermediate/dense", "output/dense", "output/LayerNorm")
_SHAPES_OF_LAYER = ("DD", "DD", "DD", "DD", "D", "DI", "ID", "D")


def layer_rules(hf_layer: str, hf_names: str) -> tuple[Rule, ...]:
    """Return the rules of transformer layers; `hf_names` are separated by spaces, in the order of `_OF_LAYER`."""
    rules: tuple[Rule, ...] = ()
    for name, shape, hf_name in zip(_OF_LAYER, _SHAPES_OF_LAYER, hf_names.split(), strict=True):
        of_kind = layer_norm if shape == "D" else dense
        rules += of_kind(f"bert/encoder/layer_{{}}/{name}", f"{hf_layer}.{hf_name}", shape)
    return rules


def encoder_rules(prefix: str) -> tuple[Rule, ...]:
    """Return the rules of an encoder with BERT's tensor names after a prefix."""
    embeddings, attention = f"{prefix}.embeddings", "attention.self"
    return (
        Rule("bert/embeddings/word_embeddings", f"{embeddings}.word_embeddings.weight", "VE"),
        Rule("bert/embeddings/token_type_embeddings", f"{embeddings}.token_type_embeddings.weight", "TE"),
        Rule("bert/embeddings/position_embeddings", f"{embeddings}.position_embeddings.weight", "SE"),
        *layer_norm("bert/embeddings/LayerNorm", f"{embeddings}.LayerNorm", "E"),
        *layer_rules(
            f"{prefix}.encoder.layer.{{}}",
            f"{attention}.query {attention}.key {attention}.value attention.output.dense attention.output.LayerNorm "
            "intermediate.dense output.dense output.LayerNorm",
        ),
    )


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
    # ends of the names of tensors that hold several variables, whose rules name "...weight[0]" and so on, one after
    # another in their first dimension; with the number of variables
    joined: Mapping[str, int] = dataclasses.field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # prefixes of our variables that no class in `transformers` has
    ignored: tuple[str, ...] = ()  # prefixes of tensors in published files that no class uses
    # prefixes of tensors in other versions of the family's files, each with today's
    other_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tied: Mapping[str, str]  # tensors that share a variable with another tensor
    architectures: Mapping[tuple[str, ...], str]  # the class in `transformers` for each combination of heads
    always_projects: bool = False  # whether embeddings are projected even if they are as wide as the layers

    def to_bert_config(self, values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
        """Translate a `config.json` to our keys; keys unrelated to the architecture are left out."""
        values = {**self.defaults, **values}
        for key, ours in self.fixed.items():
            if values.get(key, ours) != ours:
                raise UserError(
                    f"{key} is {values[key]!r:.80}; only {ours!r} is supported, so the model cannot be converted"
                )
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
        if self.always_projects and values["embedding_size"] == values["hidden_size"]:
            raise UserError("embedding_size equals hidden_size: transformers has a projection then, which ours lacks")
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


@functools.cache
def all_families() -> dict[str, Family]:
    """Return the families by name."""
    families = (
        *(lazy.BERT_FAMILY, lazy.ALBERT_FAMILY, lazy.DISTILBERT_FAMILY, lazy.ELECTRA_FAMILY, lazy.ROBERTA),
        *(lazy.XLM_ROBERTA, lazy.CAMEMBERT, lazy.MPNET_FAMILY, lazy.DEBERTA_FAMILY, lazy.MODERNBERT_FAMILY),
    )
    return {family.name: family for family in families}


def load_family(name: Any, key: str = "model_type") -> Family:
    if not isinstance(name, str) or name not in all_families():
        known = ", ".join(map(repr, all_families()))
        raise UserError(
            f"{key} is {name!r:.80}, a family of encoders that is not supported; use a model of one of these: {known}"
        )
    return all_families()[name]


def canonical_name(name: str) -> str:
    """Translate a variable name of a released checkpoint to ours."""
    return with_prefix(
        name, {old: new for family in all_families().values() for old, new in family.released_names.items()}
    )


def stored_names(names: Collection[str]) -> list[str]:
    """Translate the names of a checkpoint's variables to the released ones if it has the `own_scope` of a family."""
    prefixes: dict[str, str] = {}
    for family in all_families().values():
        if family.own_scope and any(name.startswith(family.own_scope) for name in names):
            prefixes = {ours: theirs for theirs, ours in family.released_names.items()}
    return [with_prefix(name, prefixes) for name in names]


def with_prefix(name: str, prefixes: Mapping[str, str]) -> str:
    """Replace the first of the prefixes that a name begins with."""
    return next((new + name.removeprefix(old) for old, new in prefixes.items() if name.startswith(old)), name)


def family_of_keys(values: Mapping[str, Any]) -> Family:
    """Return the family of a config file, ours or a released one; BERT if no key identifies another family."""
    if FAMILY_KEY in values:
        return load_family(values[FAMILY_KEY], FAMILY_KEY)
    signs = {family.own_key: family.name for family in all_families().values()}
    return load_family(next((signs[key] for key in values if key in signs), BERT))


def check_kind(source: str, missing: Collection[str], there: Collection[str]) -> None:
    """Raise if a checkpoint belongs to a different encoder family than the model."""
    given, wanted = _family_of_names(there), _family_of_names(missing)
    if given and wanted and given != wanted:
        key = f" ({wanted.own_key})" if wanted.own_key else ""
        raise UserError(
            f"{source} has {given.layers}, but the config is {wanted.title}'s{key}; give the {given.config_file} that "
            "belongs to the checkpoint"
        )


def _family_of_names(names: Collection[str]) -> Family | None:
    """Return the first family with matching layer names; None if there is none."""
    return next(
        (family for family in all_families().values() if any(f"/{family.layer_scope}" in name for name in names)), None
    )


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
