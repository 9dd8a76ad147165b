"""Restore the config of a run from its saved flags."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from official_bert.support.errors import UserError

Config = TypeVar("Config")


def config_from_saved(config_class: type[Config], saved: Mapping[str, Any], source: str) -> Config:
    """Build a config from flags saved as JSON; flags that the config does not have are ignored.

    Args:
      config_class: dataclass made with `option()`.
      saved: name to value; missing flags, as in files of earlier versions, get their defaults.
      source: the file, for messages.

    Raises:
      UserError: a value has the wrong type or is out of range; the message names the file and the flag.
    """
    annotations = typing.get_type_hints(config_class)
    values = {field.name: saved[field.name] for field in dataclasses.fields(config_class) if field.name in saved}
    for name, value in values.items():
        if not _has_type(value, annotations[name]):
            raise UserError(
                f"{source}: {name} is {value!r:.80}, which is not a valid value of the flag; restore the file"
            )
    try:
        return config_class(**values)
    except UserError as error:
        raise UserError(f"{source}: {error}") from error


def _has_type(value: Any, annotation: Any) -> bool:
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return any(_has_type(value, kind) for kind in typing.get_args(annotation))
    if typing.get_origin(annotation) is Literal:
        return value in typing.get_args(annotation)
    if annotation is float:  # JSON does not distinguish 3 from 3.0
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is annotation
