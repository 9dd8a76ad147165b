"""Detects which encoder family a checkpoint belongs to, by its layer names."""

from collections.abc import Collection

from official_bert.families.family import Family
from official_bert.families.family_registry import all_families
from official_bert.support.errors import UserError


def check_kind(source: str, missing: Collection[str], there: Collection[str]) -> None:
    """Raise if a checkpoint belongs to a different encoder family than the model.

    Args:
      source: the checkpoint, for messages.
      missing: names of variables that the checkpoint lacks.
      there: names of variables that it has.

    Raises:
      UserError: the families differ; the message names the required config.
    """
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
