"""Declaration of flags: `@options` makes a dataclass, `option()` declares a field, `Options` checks the values.

`short_help` and `full_help` describe them.
"""

import contextlib
import dataclasses
import inspect
import math
import os
import re
import shutil
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import typing_extensions
from absl import flags

from official_bert.support import files, writing
from official_bert.support.errors import UserError
from official_bert.support.manifest import find_inputs
from official_bert.support.text_files import check_json

# Upper limits far beyond any real run, so that a typo is an error before it fills the memory.
MAX_NUMBER = 10**12  # the default of option(); a million times this fits a 64-bit counter
MAX_SEED = 2**32 - 1  # NumPy's
MAX_BATCH_SIZE = 2**20
MAX_AXIS = 2**16  # size of a tensor axis: wordpieces of a sequence, answers to a question
MAX_PARTS = 2**12  # devices, processes, windows of a text, files of an output, layers
UNLIMITED = math.inf
_MOST_SHOWN = 50  # flags of a command whose `--help` shows all
_SUMMARY_COLUMN = 30  # width of a flag in `--help`

# The groups of flags, in the order of `--help`. Required flags are listed in the first group instead of their own.
# `--help` of a command with many flags only names those of the advanced groups.
REQUIRED = "required"
ADVANCED_GROUPS = (
    *("text normalization", "long texts", "optimizer and loss", "trained weights", "distillation", "rarely needed"),
)
GROUPS = (
    *(REQUIRED, "input", "text", "output", "model", "masks and pairs", "training", "evaluation", "export", "serving"),
    *("access", "devices", *ADVANCED_GROUPS),
)
# The effect of a flag on a training run; decides the checks when a run resumes and when checkpoints or teachers load.
AFFECTS = (
    "order",  # order of the examples, and the position at which a resumed run continues
    "selection",  # which evaluation chooses the best checkpoint
    "learning",  # how the model learns from the examples
    "slots",  # which weights learn, and the optimizer: the variables in the checkpoints of a run
    "data",  # the examples and the model files; their contents are compared instead of the flag
    "model",  # must be the same in training, evaluation and export, and is not visible in a checkpoint
    "head",  # like "model", but a teacher and its student may differ
    "frozen",  # like "head": whether the encoder is trained
    "task",  # the purpose of an export
    "use",  # how predictions are made and scored
    "run",  # output files, and what a run does besides training
    "nothing",
)
# Of earlier versions; they mattered in training only.
_REMOVED_CHOICES = ("lr_schedule=budget", "nan_policy=rollback")
Config = TypeVar("Config")


@typing_extensions.dataclass_transform(kw_only_default=True, frozen_default=True)
def options(*, group: str, affects: str | None = None) -> Callable[[type], type]:
    """Make a frozen dataclass; `group` and `affects` hold for the fields that do not say otherwise."""

    def to_dataclass(config_class: type) -> type:
        config_class = dataclasses.dataclass(frozen=True, kw_only=True)(config_class)
        own = inspect.get_annotations(config_class)
        for field in dataclasses.fields(config_class):
            if field.name in own:
                said = {name: value for name, value in field.metadata.items() if value is not None}
                field.metadata = types.MappingProxyType({**field.metadata, "group": group, "affects": affects, **said})
        return config_class

    return to_dataclass


def option(
    default: Any,
    help: str,
    *,
    group: str | None = None,
    affects: str | None = None,
    choices: Sequence[str] | None = None,
    required: bool | str = False,
    from_checkpoint: bool | Sequence[str] = False,
    is_path: bool = False,
    is_output: bool = False,
    separator: str | None = None,
    minimum: float | None = None,
    maximum: float = MAX_NUMBER,
) -> Any:
    """Declare a field; `required` may name a flag that waives it, `from_checkpoint` those it depends on.

    `is_output` means the path of a file that the command writes.
    `separator` joins the values of a flag that is given several times, a comma those of a comma-separated list.
    """
    is_path = is_path or is_output
    declaration = dict(locals())
    return dataclasses.field(default=declaration.pop("default"), metadata=declaration)


def redeclared(group: type, name: str, *, circumstances: str = "", **changes: Any) -> Any:
    """Redeclare a field of a group, for a command with another default, help text or limit."""
    field = next(field for field in dataclasses.fields(group) if field.name == name)
    declaration = {"default": field.default, **field.metadata, **changes}
    if circumstances:
        declaration["help"] = circumstances + declaration["help"][0].lower() + declaration["help"][1:]
    return option(**declaration)


def flags_affecting(config: Any, *kinds: str) -> list[str]:
    """Return the names of the flags of a config, or of its class, whose `affects` is one of `kinds`."""
    return [field.name for kind in kinds for field in dataclasses.fields(config) if field.metadata["affects"] == kind]


class Options:
    """Base class of all configs, which checks the values; a group checks its relations in `__post_init__`."""

    takes_several: ClassVar[bool] = False  # True if init_checkpoint is a list of checkpoints
    # the task whose exports for LiteRT and ONNX the command reads
    exports_of: ClassVar[str | None] = None

    def __post_init__(self):
        fields = dataclasses.fields(self)
        for field in fields:
            if field.metadata["is_path"]:
                _check_path(field.name, getattr(self, field.name))
        self._check_required()
        for field in fields:
            check_limits(f"--{field.name}", getattr(self, field.name), field.metadata)

    @property
    def output_files(self) -> list[str]:
        """The files to write; those in folders have names of their own."""
        names = [field.name for field in dataclasses.fields(self) if field.metadata["is_output"]]
        return [path for name in names if (path := getattr(self, name)) not in (None, "-")]

    def refuse(self, *names: str, because: str) -> None:
        """Raise an error if one of these flags is given, which would be ignored or contradicts others."""
        given = next(filter(self.is_given, names), None)
        if given:
            raise UserError(f"--{given} {because}")

    def is_given(self, name: str) -> bool:
        """Return True if a flag has another value than its default."""
        return getattr(self, name) != getattr(type(self), name)

    def _check_required(self) -> None:
        """Raise an error if required flags are missing; the message names all of them."""
        missing, advice = [], ""
        fields = {field.name: field for field in dataclasses.fields(self)}
        for field in fields.values():
            required = field.metadata["required"]
            is_waived = isinstance(required, str) and getattr(self, required)
            if required and not is_waived and getattr(self, field.name) is None:
                missing.append(f"--{field.name} ({field.metadata['help'].removesuffix('.')})")
                if field.metadata["from_checkpoint"] and "init_checkpoint" in fields:
                    advice = "; or give --init_checkpoint=FOLDER, a folder that holds the model's files"
                    if self.init_checkpoint:
                        advice = f"; the folder of --init_checkpoint={self.init_checkpoint} has no such file"
        if missing:
            message = f"missing: {', '.join(missing)}" if len(missing) > 1 else f"{missing[0]} is missing"
            raise UserError(message + advice)


def _check_path(name: str, value: str | None) -> None:
    """Raise an error if a path is empty, or a flag for a folder (`..._dir`) names a file."""
    if value is None:
        return
    if not value.strip():
        raise UserError(
            f"--{name} is empty; name a file or folder, or leave the flag out (was a shell variable not set?)"
        )
    if name.endswith("_dir"):
        existing = value
        while existing and not os.path.lexists(existing):
            existing = os.path.dirname(existing.rstrip("/"))
        if existing and not os.path.isdir(existing):
            raise UserError(f"--{name}={value}: {existing} is a file, not a folder; name a folder")


def check_limits(name: str, value: Any, limits: Mapping[str, Any]) -> None:
    """Raise UserError unless a value has the limits of an `option`."""
    given = f"{name}={value}"
    if limits["choices"] is not None and value is not None and value not in limits["choices"]:
        raise UserError(f"{given}: must be one of {', '.join(limits['choices'])}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{given}: must be a finite number")
    if limits["minimum"] is not None and value < limits["minimum"]:
        raise UserError(f"{given}: must be at least {limits['minimum']}")
    if value > limits["maximum"]:
        raise UserError(f"{given}: must be at most {limits['maximum']}")


def layer_numbers(layers: str, name: str = "layers") -> list[int]:
    """Parse a list of layer numbers, 0 for the first layer and -1 for the last."""
    given, names = f"--{name}={layers:.80}", layers.split(",")
    if len(names) > MAX_PARTS:
        raise UserError(f"{given}: lists {len(names):,} numbers; the maximum is {MAX_PARTS:,}")
    try:
        return [int(layer) for layer in names]
    except ValueError as error:
        raise UserError(f"{given}: give whole numbers separated by commas, as in -1,-2") from error


def config_from_saved(config_class: type[Config], saved: Mapping[str, Any], source: str) -> Config:
    """Build a config from flags saved as JSON; flags that the config does not have are ignored."""
    annotations = typing.get_type_hints(config_class)
    names = [field.name for field in dataclasses.fields(config_class)]
    values = {name: saved[name] for name in names if name in saved and f"{name}={saved[name]}" not in _REMOVED_CHOICES}
    for name, value in values.items():
        check_json(value, annotations[name], source, name)
    try:
        return config_class(**values)
    except UserError as error:
        raise UserError(f"{source}: {error}") from error


def full_help(config_class: type, flag_values: flags.FlagValues) -> str:
    """Return the help text of a config's flags by group, each flag in absl's format, and of the flags of absl."""
    groups = {group: [field.name for field in fields] for group, fields in _by_group(config_class).items()}
    own = {name for names in groups.values() for name in names}
    groups["of every command"] = [name for name in flag_values if name not in own]
    text = ""
    for group, names in groups.items():
        text += f"{group}:\n"
        for name in dict.fromkeys(flag_values[name].name for name in names):
            alone = flags.FlagValues()
            alone[name] = flag_values[name]
            text += alone.get_help("  ", include_special_flags=False) + "\n"
        text += "\n"
    return (
        text.rstrip()
        + "\n"
        + "  --flagfile=FILE reads flags from a file.\n  --undefok=NAMES ignores unknown flags of these names.\n"
    )


def short_help(config_class: type, flag_values: flags.FlagValues) -> str:
    """Return a line for each flag, by group; if there are many flags, only the names of those of advanced groups."""
    groups, width = _by_group(config_class), shutil.get_terminal_size((120, 1)).columns
    has_many = sum(map(len, groups.values())) > _MOST_SHOWN
    others = {group: groups.pop(group) for group in ADVANCED_GROUPS if has_many and group in groups}
    text = ""
    for group, fields in groups.items():
        lines = [_summary(field, flag_values[field.name], width) for field in fields]
        text += "\n".join([f"{group}:", *lines]) + "\n\n"
    if others:
        text += "Further flags, which few runs need:\n"
        for group, fields in others.items():
            listed = f"{group}: {', '.join(field.name for field in fields)}"
            text += textwrap.fill(listed, width, initial_indent="  ", subsequent_indent="    ") + "\n"
        text += "\n"
    return text + "--helpfull describes all flags in full; --flagfile=FILE reads flags from a file.\n"


def _by_group(config_class: type) -> dict[str, list[dataclasses.Field]]:
    """Return the fields of a config by group, in the order of the groups."""
    fields = {group: [] for group in GROUPS}
    for field in dataclasses.fields(config_class):
        fields[REQUIRED if field.metadata["required"] else field.metadata["group"]].append(field)
    return {group: of_group for group, of_group in fields.items() if of_group}


def _summary(field: dataclasses.Field, flag: flags.Flag, width: int) -> str:
    """Return the flag, its default value and the first sentence of its help text."""
    spelled = f"--{field.name}"
    if flag.boolean:
        spelled = f"--[no]{field.name}" if field.default else spelled
    elif field.default is None:
        is_number = flag.flag_type() in ("int", "float")
        spelled += "=PATH" if field.metadata["is_path"] else "=NUMBER" if is_number else "=TEXT"
    else:
        spelled += f"={field.default}"
    sentence = flag.help.split(". ")[0].removesuffix(".").removesuffix("; required")
    indent = " " * (_SUMMARY_COLUMN + 4)
    first = f"  {spelled:<{_SUMMARY_COLUMN}}  "
    return textwrap.fill(sentence, width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)


_FOLDERS = ("init_checkpoint", "teacher")  # flags of models besides those named `..._dir`
# Files of a model, a run or an export; others in such a folder, as earlier predictions, may be replaced.
_OF_MODEL = re.compile(
    r"checkpoint|graph\.pbtxt|saved_model\.pb|fingerprint\.pb|.+\.(index|meta|data-\d+-of-\d+)|model\.(tflite|onnx)"
    r"|.+\.(safetensors|bin|h5|keras|index\.json)|.*config.*\.json|.*tokenizer.*\.json|special_tokens_map\.json"
    r"|.*vocab.*\.(txt|json)|.+\.(spm|model)|merges\.txt|(bpe|modules|added_tokens|task)\.json"
    r"|(labels|thresholds|evaluations)\.json|metrics\.jsonl|eval_results\.txt|events\.out\.tfevents\..+"
)


def check_outputs(config: Options) -> None:
    """Raise unless the output files can be written, and none would replace an input or a file of an input model."""
    fields = [field for field in dataclasses.fields(config) if field.metadata["is_path"]]
    outputs = config.output_files
    if not outputs:
        return
    given = {field.name: getattr(config, field.name) for field in fields if not field.metadata["is_output"]}
    inputs = [path for name, value in given.items() if value for path in _inputs(name, value, outputs)]
    writing.check_outputs(outputs, inputs, name=next(field.name for field in fields if field.metadata["is_output"]))


def _inputs(name: str, value: str, outputs: list[str]) -> Iterator[str]:
    """Yield the files that a flag names, and those of the outputs that are files of the model that it names."""
    if not (name.endswith("_dir") or name in _FOLDERS):
        with contextlib.suppress(UserError):  # the check of the command describes what is wrong
            yield from [value] if os.path.isfile(value) else find_inputs(value)
        return
    for path in value.split(","):
        folder = os.path.realpath(path if files.is_folder(path) else os.path.dirname(path))
        for output in outputs:
            place = os.path.realpath(output)
            is_near = os.path.dirname(place) == os.path.dirname(folder) or place.startswith(os.path.join(folder, ""))
            if is_near and _OF_MODEL.fullmatch(os.path.basename(place)):  # the model of RUN/best is RUN's
                yield output
