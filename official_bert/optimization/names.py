"""Lookup of optimizers and schedules by name."""

from collections.abc import Mapping
from typing import TypeVar

from official_bert.support.errors import UserError

_Row = TypeVar("_Row")


def lookup(table: Mapping[str, _Row], name: str, parameter: str) -> _Row:
    """Return the table entry of a name.

    Raises:
      UserError: the name is unknown; the message states the parameter and all names.
    """
    if name not in table:
        raise UserError(f"{parameter}={name!r} is unknown; choose one of {', '.join(sorted(table))}")
    return table[name]
