"""Turns a config dataclass into absl flags, the parsed flags back into the dataclass, and that into a command line.

Together with `script.py` the only library module that imports `absl.flags`.
"""

import dataclasses
import types
import typing
from typing import Any, TypeVar

from absl import flags

flags.disclaim_key_flags()  # `--help` then lists the flags under the script, not under this module

Config = TypeVar("Config")

_DEFINERS = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}


def define_flags(config_class: type, flag_values: flags.FlagValues) -> None:
    """Defines one flag for each field of a dataclass made with `option()`."""
    types_by_name = typing.get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        limits = field.metadata
        help_text = limits["help"] + (" Required." if limits["required"] else "")
        if limits["choices"] is not None:
            flags.DEFINE_enum(field.name, field.default, limits["choices"], help_text, flag_values=flag_values)
        else:
            define = _DEFINERS[_value_type(types_by_name[field.name])]
            define(field.name, field.default, help_text, flag_values=flag_values)
        if limits["required"]:
            flags.mark_flag_as_required(field.name, flag_values=flag_values)


def from_flags(config_class: type[Config], flag_values: flags.FlagValues) -> Config:
    """Builds the config from parsed flags; its own checks run in `__post_init__`."""
    return config_class(**{field.name: flag_values[field.name].value for field in dataclasses.fields(config_class)})


def to_arguments(config: Any) -> list[str]:
    """The command line that gives a config, such as `["--task_name=mrpc", "--do_train"]`; defaults are left out."""
    arguments = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, bool):
            argument = f"--{field.name}" if value else f"--no{field.name}"
        else:
            argument = f"--{field.name}={value}"
        if value != field.default:
            arguments.append(argument)
    return arguments


def _value_type(annotation: Any) -> type:
    """The type behind an annotation: `str | None` is a string flag without a default."""
    if isinstance(annotation, types.UnionType):
        return next(kind for kind in typing.get_args(annotation) if kind is not type(None))
    return annotation
