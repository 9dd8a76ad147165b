"""Tells the arrays of one encoder family from those of another, by the names of the layers."""

from collections.abc import Collection

from official_bert.families.family import Family
from official_bert.families.registry import all_families
from official_bert.support.errors import UserError


def check_kind(source: str, missing: Collection[str], there: Collection[str]) -> None:
    """Raise if the variables of one family are wanted of a checkpoint of another.

    Args:
      source: the checkpoint, for messages.
      missing: names of variables that it lacks.
      there: those that it has.

    Raises:
      UserError: the names are of two families; the message says which config is needed.
    """
    given, wanted = _family_of_names(there), _family_of_names(missing)
    if given and wanted and given != wanted:
        key = f" ({wanted.own_key})" if wanted.own_key else ""
        raise UserError(
            f"{source} has {given.layers}, and the config is {wanted.title}'s{key}; give the {given.config_file} that "
            "belongs to the checkpoint"
        )


def _family_of_names(names: Collection[str]) -> Family | None:
    """Return the first family whose layers have such names; None if there is none."""
    return next((family for family in all_families() if any(f"/{family.layer_scope}" in name for name in names)), None)
