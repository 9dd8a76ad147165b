"""`Family`, the description of an encoder family for the rest of the package, and the table of all families."""

import dataclasses
import importlib
from collections.abc import Collection, Mapping
from typing import Any

from official_bert.families.hugging_face import HuggingFace
from official_bert.support.errors import UserError

BERT = "bert"
FAMILIES = {
    BERT: "official_bert.families.bert.BERT_FAMILY",
    "albert": "official_bert.families.albert.ALBERT_FAMILY",
    "distilbert": "official_bert.families.bert.DISTILBERT_FAMILY",
    "electra": "official_bert.families.bert.ELECTRA_FAMILY",
    "roberta": "official_bert.families.bert.ROBERTA",
    "xlm-roberta": "official_bert.families.bert.XLM_ROBERTA",
    "camembert": "official_bert.families.bert.CAMEMBERT",
}
FAMILY_KEY = "family"  # key of our config files, for families that have no key of their own


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """A family of models that differ only in their sizes. The defaults are BERT's."""

    name: str  # key in `family_registry.FAMILIES`, equal to `model_type` in a Hugging Face `config.json`
    title: str  # name in messages: "an ALBERT"
    config_class: type  # `BertConfig` or a subclass; its fields are the keys of the config files
    config_file: str = "bert_config.json"  # name of the config file in released archives
    # a key that only config files of this family have; None if only our key `family` distinguishes it
    own_key: str | None = None
    # unused keys of released config files, each with its only supported value
    constant_keys: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # dotted path of the tokenizer class, which is imported on demand
    tokenizer: str = "official_bert.tokenization.full_tokenizer.FullTokenizer"
    # dotted paths of the layers that differ from BERT's: "embeddings", "stack" (the transformer layers) and
    # "pooler". Their variables are named as in our checkpoints
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pooler_activation: str = "tanh"  # activation after the pooler's projection, one of `ACTIVATION_NAMES` of the config
    # activation after the masked-LM head's projection; None for that of the layers
    masked_lm_activation: str | None = None
    # prefixes of variable names in released TensorFlow 1 checkpoints, each with its prefix here
    released_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    layers: str = "the layers of a BERT, each with weights of its own"  # description of the layers in messages
    layer_scope: str = "encoder/layer_0/"  # a part of the variable names of the first layer
    # keys whose product is the number of layers with separate weights; the variable names of a layer hold a
    # number for each key
    layer_keys: tuple[str, ...] = ("num_hidden_layers",)
    shares_layers: bool = False  # whether layers share weights, so that none can be treated separately
    hugging_face: HuggingFace  # the family's `config.json` keys and tensor names in `transformers`


def load_family(name: Any, key: str = "model_type") -> Family:
    """Import the module of a family."""
    if not isinstance(name, str) or name not in FAMILIES:
        known = ", ".join(map(repr, FAMILIES))
        raise UserError(
            f"{key} is {name!r:.80}, a family of encoders that is not supported; use a model of one of these: {known}"
        )
    return load_class(FAMILIES[name])


def load_class(path: str) -> Any:
    """Import a class or another object by its dotted path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def all_families() -> list[Family]:
    return [load_family(name) for name in FAMILIES]


def canonical_name(name: str) -> str:
    """Translate a variable name of a released checkpoint to ours."""
    for family in all_families():
        for theirs, ours in family.released_names.items():
            if name.startswith(theirs):
                return ours + name.removeprefix(theirs)
    return name


def family_of_keys(values: Mapping[str, Any]) -> Family:
    """Return the family of a config file, ours or a released one; BERT if no key identifies another family."""
    if FAMILY_KEY in values:
        return load_family(values[FAMILY_KEY], FAMILY_KEY)
    signs = {family.own_key: family.name for family in all_families()}
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
    return next((family for family in all_families() if any(f"/{family.layer_scope}" in name for name in names)), None)
