"""The table of encoder families, one row each: the name that Hugging Face has for it, and its `Family`.

Its module has a config class and the `Family`, and is imported when it is asked for. No other code asks which family a
model is of.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from official_bert.families.family import Family
from official_bert.support.errors import UserError

BERT = "bert"
FAMILIES = {
    BERT: "official_bert.families.bert.FAMILY",
    "albert": "official_bert.families.albert.FAMILY",
    "distilbert": "official_bert.families.distilbert.FAMILY",
    "electra": "official_bert.families.electra.FAMILY",
    "roberta": "official_bert.families.roberta.ROBERTA",
    "xlm-roberta": "official_bert.families.roberta.XLM_ROBERTA",
    "camembert": "official_bert.families.roberta.CAMEMBERT",
}
FAMILY_KEY = "family"  # of our config files, where no other key tells the family


def load_family(name: Any, key: str = "model_type") -> Family:
    """Import the module of a family.

    Args:
      name: as in the table.
      key: where it comes from, for messages.

    Raises:
      UserError: there is no such family; the message lists all.
    """
    if not isinstance(name, str) or name not in FAMILIES:
        known = ", ".join(map(repr, FAMILIES))
        raise UserError(
            f"{key} is {name!r:.80}, a family of encoders that is not supported; use a model of one of these: {known}"
        )
    return load_class(FAMILIES[name])


def load_class(path: str) -> Any:
    """Import a class, or another object of a module, given its dotted path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def all_families() -> list[Family]:
    """Import all families."""
    return [load_family(name) for name in FAMILIES]


def canonical_name(name: str) -> str:
    """Return what a variable of a released checkpoint is called here."""
    for family in all_families():
        for theirs, ours in family.released_names.items():
            if name.startswith(theirs):
                return ours + name.removeprefix(theirs)
    return name


def family_of_keys(values: Mapping[str, Any]) -> Family:
    """Return the family that a config file of ours, or of a released archive, describes; BERT's has no sign."""
    if FAMILY_KEY in values:
        return load_family(values[FAMILY_KEY], FAMILY_KEY)
    signs = {family.own_key: family.name for family in all_families()}
    return load_family(next((signs[key] for key in values if key in signs), BERT))
