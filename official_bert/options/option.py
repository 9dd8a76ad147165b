"""`@options`: a dataclass whose fields are flags; `option()`: such a field; `Options`: their limits are checked."""

import dataclasses
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from official_bert.options.flag_names import with_dashes
from official_bert.support.errors import UserError

# The largest numbers that make sense, far beyond any real run, so that a typo is an error before it fills the memory.
MAX_NUMBER = 10**12  # unless option() sets another maximum; 64-bit counters hold it times a million
MAX_SEED = 2**32 - 1  # NumPy's
MAX_BATCH_SIZE = 2**20
MAX_AXIS = 2**16  # what becomes an axis of a tensor: wordpieces of a sequence, answers to a question
MAX_PARTS = 2**12  # devices, processes, windows of a text, files of an output, layers
_SHOWN_CHARACTERS = 80  # of a value that may be long
UNLIMITED = math.inf

# The groups of flags, in the order of `--help`. Flags that must be given are in the first, whatever their own group is.
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


class _Given:
    """All values but those that stand for a flag that is not given."""

    def __contains__(self, value: Any) -> bool:
        return bool(value)


GIVEN = _Given()  # a value of `only_with`

# What a flag changes in a run that trains. Checks at a resume, of checkpoints, and of teachers follow from it.
AFFECTS = (
    "order",  # of the examples, and where in it a resumed run continues
    "learning",  # what is learnt from them
    "data",  # the examples and the files of the model, which are compared themselves
    "model",  # what training, evaluation and export must share, as a checkpoint does not show it
    "head",  # as "model", but a teacher and its student may differ in it
    "frozen",  # likewise: whether the encoder is trained
    "task",  # what an export is for
    "run",  # where a run writes, and what it does beside training
    "nothing",
)


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
def options(*, group: str) -> Callable[[type], type]:
    """Make a frozen dataclass of a class whose fields are declared by `option()`.

    Args:
      group: the heading in `--help` of those of its flags that declare none.
    """

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
    """Declare a field of a run's config that is a flag of the same name.

    Args:
      default: value when the flag is not given; its type is the field's annotation.
      help_text: the line that `--help` prints.
      group: one of `GROUPS`, the heading in `--help`; by default that of the class.
      affects: one of `AFFECTS`: what another value changes in a run that trains; training commands' flags must say it.
      sizes_run_with: name of the field with which this flag decides how much memory a run takes, or "always".
      choices: the allowed strings, if they are few.
      required: the flag must be given; `default` is then None.
      waived_with: name of a field that, if true, lets a required flag be left out.
      from_checkpoint: whether the folder of `init_checkpoint`, where there is such a field, supplies the value if the
        flag is not given; or the fields one of which must be true for that.
      is_path: the flag names a file or folder, or a list of them; it may be left out, but not be empty.
      minimum: smallest allowed number.
      maximum: largest allowed number; `MAX_NUMBER` if not given.
      only_with: names of other fields, each with the values (strings in lower case) with which this flag has an effect,
        or `GIVEN`.
      not_with: names of other fields that must not be true if this flag is given, each with the message.

    Returns:
      A `dataclasses.field`.
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
    """Declare a field of a group again, for a command whose default, help text or limits are others.

    Args:
      group: a dataclass made with `option()`.
      name: the field.
      circumstances: what its help text begins with, such as "With --do_export: ", if it has an effect only then.
      **changes: what is different: `default`, `help` or another argument of `option`.

    Returns:
      A `dataclasses.field`.
    """
    field = next(field for field in dataclasses.fields(group) if field.name == name)
    default, limits = changes.pop("default", field.default), {**field.metadata, **changes}
    if circumstances:
        limits["help"] = circumstances + limits["help"][0].lower() + limits["help"][1:]
    return dataclasses.field(default=default, metadata=limits)


class Options:
    """The base of all groups of flags and of all configs: their values are within their limits."""

    def __post_init__(self):
        check_options(self)


def flags_affecting(config: Any, *kinds: str) -> list[str]:
    """Return the names of the flags of a config, or of its class, that affect one of some kinds of `AFFECTS`."""
    return [field.name for kind in kinds for field in dataclasses.fields(config) if field.metadata["affects"] == kind]


def check_options(config: Any) -> None:
    """Check every field of a config against the limits its `option()` declares.

    Raises:
      UserError: a value is missing, too small, too large, not among the choices, contradicts another one, or would be
        ignored since a field that it depends on has another value; the message names the flag.
    """
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
    """Raise if flags that must be given are not; the message names all of them."""
    missing, advice = [], ""
    has_checkpoint = any(field.name == "init_checkpoint" for field in dataclasses.fields(config))
    for field in dataclasses.fields(config):
        limits = field.metadata
        is_waived = limits["waived_with"] is not None and getattr(config, limits["waived_with"])
        if limits["required"] and getattr(config, field.name) is None and not is_waived:
            missing.append(f"--{field.name} ({limits['help'].removesuffix('.')})")
            if limits["from_checkpoint"] and has_checkpoint:
                advice = "; or give --init_checkpoint=FOLDER, a folder that holds the model's files"
    if missing:
        message = f"missing: {', '.join(missing)}" if len(missing) > 1 else f"{missing[0]} is missing"
        raise UserError(message + advice)


def _check_paths(config: Any) -> None:
    """Raise if a flag that names a file or folder is empty, or one that names a folder (`..._dir`) names a file."""
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
    """Raise if a flag that was given would be ignored, since another one has this value."""
    if (value.lower() if isinstance(value, str) else value) in meaningful:
        return
    if isinstance(value, bool) or meaningful is GIVEN:
        reason = f"cannot be used with --{other}" if value else f"needs --{other}"
    else:
        reason = f"needs --{other}={' or '.join(meaningful)}"
    raise UserError(f"--{name} {reason}")


def layer_numbers(layers: str, name: str = "layers") -> list[int]:
    """Return the numbers that a flag lists, 0 for the first layer and -1 for the last.

    Args:
      layers: the list, with commas.
      name: the flag's, for the message.

    Raises:
      UserError: it lists something else, or too many.
    """
    given = f"--{name}={layers[:_SHOWN_CHARACTERS]}{'...' * (len(layers) > _SHOWN_CHARACTERS)}"
    names = layers.split(",")
    if len(names) > MAX_PARTS:
        raise UserError(f"{given}: lists {len(names):,} numbers; the maximum is {MAX_PARTS:,}")
    try:
        return [int(layer) for layer in names]
    except ValueError as error:
        raise UserError(f"{given}: give whole numbers separated by commas, as in -1,-2") from error
