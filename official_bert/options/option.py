"""Declaration of flags: `@options` makes a dataclass, `option()` declares a field, `Options` checks the values."""

import contextlib
import dataclasses
import functools
import inspect
import math
import os
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import typing_extensions

from official_bert.support.errors import UserError

_other_commands: list[type] = []  # the config classes of the enclosing blocks of `on_behalf_of`
# Upper limits far beyond any real run, so that a typo is an error before it fills the memory.
MAX_NUMBER = 10**12  # the default of option(); a million times this fits a 64-bit counter
MAX_SEED = 2**32 - 1  # NumPy's
MAX_BATCH_SIZE = 2**20
MAX_AXIS = 2**16  # size of a tensor axis: wordpieces of a sequence, answers to a question
MAX_PARTS = 2**12  # devices, processes, windows of a text, files of an output, layers
_SHOWN_CHARACTERS = 80  # longer values are shortened in messages
UNLIMITED = math.inf

# The groups of flags, in the order of `--help`. Required flags are listed in the first group instead of their own.
REQUIRED = "required"
GROUPS = (
    REQUIRED,
    "input",
    "text",
    "output",
    "model",
    "masks and pairs",
    "training",
    "distillation",
    "evaluation",
    "export",
    "serving",
    "devices",
    "rarely needed",
)
Config = TypeVar("Config")


@functools.cache
def _pattern(config_class: type) -> re.Pattern[str]:
    names = [field.name for field in dataclasses.fields(config_class)]
    # A one-word name may be an ordinary word, unless a value follows.
    forms = [name if "_" in name else f"{name}(?==)" for name in names]
    # Skip names that are part of a path or of another word, are quoted, or already have dashes.
    return re.compile(rf"(?<![\w./\\'\"-])({'|'.join(forms)})(?![\w/'\"]|\.\w)")


def with_dashes(message: str, config_class: type) -> str:
    """Write the parameters in a message as flags."""
    for flags in (config_class, *_other_commands):
        message = _pattern(flags).sub(r"--\1", message)
    return message


@contextlib.contextmanager
def on_behalf_of(command: str, config_class: type) -> Iterator[None]:
    """Run code of another command in this process.

    Its parameters are also written as flags in log lines, and user errors begin with its name.
    """
    _other_commands.append(config_class)
    try:
        yield
    except UserError as error:
        raise UserError(f"{command}: {with_dashes(str(error), config_class)}") from error
    finally:
        _other_commands.remove(config_class)


class _Given:
    """Container of every truthy value, which is any value of a flag that was given."""

    def __contains__(self, value: Any) -> bool:
        return bool(value)


GIVEN = _Given()  # a value of `only_with`

# The effect of a flag on a training run; decides the checks when a run resumes and when checkpoints or teachers load.
AFFECTS = (
    "order",  # order of the examples, and the position at which a resumed run continues
    "selection",  # which evaluation chooses the best checkpoint
    "learning",  # how the model learns from the examples
    "data",  # the examples and the model files; their contents are compared instead of the flag
    "model",  # must be the same in training, evaluation and export, and is not visible in a checkpoint
    "head",  # like "model", but a teacher and its student may differ
    "frozen",  # like "head": whether the encoder is trained
    "task",  # the purpose of an export
    "run",  # output files, and what a run does besides training
    "nothing",
)


@typing_extensions.dataclass_transform(kw_only_default=True, frozen_default=True)
def options(*, group: str) -> Callable[[type], type]:
    """Turn a class whose fields are declared by `option()` into a frozen dataclass."""

    def to_dataclass(config_class: type) -> type:
        config_class = dataclasses.dataclass(frozen=True, kw_only=True)(config_class)
        for field in dataclasses.fields(config_class):
            if field.metadata["group"] is None and field.name in inspect.get_annotations(config_class):
                field.metadata = types.MappingProxyType({**field.metadata, "group": group})
        return config_class

    return to_dataclass


def option(
    default: Any,
    help_text: str,
    *,
    group: str | None = None,
    affects: str | None = None,
    sizes_run_with: str | None = None,
    choices: Sequence[str] | None = None,
    required: bool = False,
    waived_with: str | None = None,
    from_checkpoint: bool | Sequence[str] = False,
    is_path: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
    only_with: Mapping[str, Sequence[Any] | _Given] | None = None,
    not_with: Mapping[str, str] | None = None,
) -> Any:
    """Declare a config field, which becomes a flag of the same name.

    Args:
      from_checkpoint: whether the folder of `init_checkpoint`, if the config has that field, supplies the value of a
        flag that is not given; or names of fields, one of which must be true for that.
    """
    limits = {
        "help": help_text,
        "group": group,
        "affects": affects,
        "sizes_run_with": sizes_run_with,
        "choices": choices,
        "required": required,
        "waived_with": waived_with,
        "from_checkpoint": from_checkpoint,
        "is_path": is_path,
        "minimum": minimum,
        "maximum": MAX_NUMBER if maximum is None else maximum,
        "only_with": only_with or {},
        "not_with": not_with or {},
    }
    return dataclasses.field(default=default, metadata=limits)


def redeclared(group: type, name: str, *, circumstances: str = "", **changes: Any) -> Any:
    """Redeclare a field of a group, for a command with another default, help text or limit."""
    field = next(field for field in dataclasses.fields(group) if field.name == name)
    default, limits = changes.pop("default", field.default), {**field.metadata, **changes}
    if circumstances:
        limits["help"] = circumstances + limits["help"][0].lower() + limits["help"][1:]
    return dataclasses.field(default=default, metadata=limits)


class Options:
    """Base class of all flag groups and configs; checks the values when a config is created."""

    def __post_init__(self):
        check_options(self)


def flags_affecting(config: Any, *kinds: str) -> list[str]:
    """Return the names of the flags of a config, or of its class, whose `affects` is one of `kinds`."""
    return [field.name for kind in kinds for field in dataclasses.fields(config) if field.metadata["affects"] == kind]


def check_options(config: Any) -> None:
    """Check every field of a config against the limits in its `option()`."""
    _check_paths(config)
    _check_required(config)
    for field in dataclasses.fields(config):
        value, limits = getattr(config, field.name), field.metadata
        given = f"--{field.name}={value}"
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if limits["choices"] is not None and value is not None and value not in limits["choices"]:
            raise UserError(f"{given}: must be one of {', '.join(limits['choices'])}")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{given}: must be a finite number")
        if is_number and limits["minimum"] is not None and value < limits["minimum"]:
            raise UserError(f"{given}: must be at least {limits['minimum']}")
        if is_number and value > limits["maximum"]:
            raise UserError(f"{given}: must be at most {limits['maximum']}")
        if value != field.default:
            for other, meaningful in limits["only_with"].items():
                _check_meaning(field.name, other, getattr(config, other), meaningful)
            for other, message in limits["not_with"].items():
                if getattr(config, other):
                    raise UserError(with_dashes(message, type(config)))


def _check_required(config: Any) -> None:
    """Raise `UserError` if required flags are missing; the message names all of them."""
    missing, advice = [], ""
    has_checkpoint = any(field.name == "init_checkpoint" for field in dataclasses.fields(config))
    for field in dataclasses.fields(config):
        limits = field.metadata
        is_waived = limits["waived_with"] is not None and getattr(config, limits["waived_with"])
        if limits["required"] and getattr(config, field.name) is None and not is_waived:
            missing.append(f"--{field.name} ({limits['help'].removesuffix('.')})")
            if limits["from_checkpoint"] and has_checkpoint:
                advice = "; or give --init_checkpoint=FOLDER, a folder that holds the model's files"
                if config.init_checkpoint:
                    advice = f"; the folder of --init_checkpoint={config.init_checkpoint} has no such file"
    if missing:
        message = f"missing: {', '.join(missing)}" if len(missing) > 1 else f"{missing[0]} is missing"
        raise UserError(message + advice)


def _check_paths(config: Any) -> None:
    """Raise `UserError` if a path is empty, or a flag for a folder (`..._dir`) names a file."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.metadata["is_path"] and value is not None and not value.strip():
            raise UserError(
                f"--{field.name} is empty; name a file or folder, or leave the flag out (was a shell variable not set?)"
            )
        if field.metadata["is_path"] and value is not None and field.name.endswith("_dir"):
            existing = value
            while existing and not os.path.lexists(existing):
                existing = os.path.dirname(existing.rstrip("/"))
            if existing and not os.path.isdir(existing):
                raise UserError(f"--{field.name}={value}: {existing} is a file, not a folder; name a folder")


def _check_meaning(name: str, other: str, value: Any, meaningful: Sequence[Any] | _Given) -> None:
    """Raise `UserError` if the given flag `name` would be ignored because `other` has this value."""
    if (value.lower() if isinstance(value, str) else value) in meaningful:
        return
    if isinstance(value, bool) or meaningful is GIVEN:
        reason = f"cannot be used with --{other}" if value else f"needs --{other}"
    else:
        reason = f"needs --{other}={' or '.join(meaningful)}"
    raise UserError(f"--{name} {reason}")


def layer_numbers(layers: str, name: str = "layers") -> list[int]:
    """Parse a list of layer numbers, 0 for the first layer and -1 for the last."""
    given = f"--{name}={layers[:_SHOWN_CHARACTERS]}{'...' * (len(layers) > _SHOWN_CHARACTERS)}"
    names = layers.split(",")
    if len(names) > MAX_PARTS:
        raise UserError(f"{given}: lists {len(names):,} numbers; the maximum is {MAX_PARTS:,}")
    try:
        return [int(layer) for layer in names]
    except ValueError as error:
        raise UserError(f"{given}: give whole numbers separated by commas, as in -1,-2") from error


def config_from_saved(config_class: type[Config], saved: Mapping[str, Any], source: str) -> Config:
    """Build a config from flags saved as JSON; flags that the config does not have are ignored."""
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
