"""Looks up a row of a table by its name, or says which names there are."""

from collections.abc import Mapping
from typing import TypeVar

from official_bert.support.errors import UserError

_Row = TypeVar("_Row")


def lookup(table: Mapping[str, _Row], name: str, parameter: str) -> _Row:
    """Return the row of a name.

    Raises:
      UserError: there is none; the message names the parameter and all rows.
    """
    if name not in table:
        raise UserError(f"{parameter}={name!r} is unknown; choose one of {', '.join(sorted(table))}")
    return table[name]
