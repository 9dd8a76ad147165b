"""Registry of encoder families: Hugging Face's name for each, and the dotted path of its `Family`.

A family's module has a config class and the `Family`, and is imported on demand. No other code depends on the family
of a model.
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
FAMILY_KEY = "family"  # key of our config files, for families that have no key of their own


def load_family(name: Any, key: str = "model_type") -> Family:
    """Import the module of a family.

    Args:
      name: key in `FAMILIES`.
      key: the config key that holds the name, for messages.

    Raises:
      UserError: the family is unknown; the message lists all.
    """
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
    """Import all families."""
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
