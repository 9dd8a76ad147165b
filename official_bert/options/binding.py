"""Conversion between config dataclasses, absl flags and command lines.

This module and `command.py` are the only library modules that import `absl.flags`.
"""

import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeVar

from absl import flags

from official_bert.options.option import GROUPS, REQUIRED
from official_bert.support import network
from official_bert.support.errors import UserError

# Flag names in Hugging Face's examples, the TensorFlow Model Garden and others, with our names for them; the first one
# that the command has is suggested.
_OTHER_NAMES = {
    "accumulation_steps": ("gradient_accumulation_steps",),
    "batch_size": ("train_batch_size",),
    "bert_config": ("bert_config_file",),
    "checkpoint_dir": ("output_dir",),
    "config_file": ("bert_config_file",),
    "config_name": ("bert_config_file",),
    "adam_beta1": ("adam_beta_1",),
    "adam_beta2": ("adam_beta_2",),
    "data_path": ("data_dir", "input_file", "train_file"),
    "dataset_name": ("task_name", "train_file"),
    "dev_file": ("eval_file", "predict_file"),
    "distribution_strategy": ("distribution",),
    "enable_xla": ("use_xla",),
    "epochs": ("num_train_epochs", "num_train_steps"),
    "eval_strategy": ("eval_steps",),
    "evaluation_strategy": ("eval_steps",),
    "load_best_model_at_end": ("use_best_checkpoint",),
    "logging_steps": ("log_steps",),
    "lr": ("learning_rate",),
    "max_length": ("max_seq_length",),
    "max_sequence_length": ("max_seq_length",),
    "max_steps": ("num_train_steps", "num_train_epochs"),
    "mlm_probability": ("masked_lm_prob",),
    "model_dir": ("output_dir",),
    "model_path": ("init_checkpoint",),
    "n_gpu": ("num_replicas",),
    "gpus": ("num_replicas",),
    "lr_scheduler_type": ("lr_schedule",),
    "num_epochs": ("num_train_epochs", "num_train_steps"),
    "num_gpus": ("num_replicas",),
    "num_steps": ("num_train_steps", "num_train_epochs"),
    "optim": ("optimizer",),
    "optimizer_type": ("optimizer",),
    "per_device_eval_batch_size": ("eval_batch_size", "predict_batch_size"),
    "per_device_train_batch_size": ("train_batch_size",),
    "per_gpu_eval_batch_size": ("eval_batch_size", "predict_batch_size"),
    "per_gpu_train_batch_size": ("train_batch_size",),
    "save_steps": ("save_checkpoints_steps",),
    "save_total_limit": ("keep_checkpoint_max",),
    "seed": ("random_seed",),
    "test_file": ("predict_file",),
    "tokenizer_name": ("vocab_file",),
    "sentencepiece_model": ("spm_model_file",),
    "sentencepiece_model_file": ("spm_model_file",),
    "train_data_path": ("train_file", "input_file"),
    "train_epochs": ("num_train_epochs", "num_train_steps"),
    "train_steps": ("num_train_steps", "num_train_epochs"),
    "validation_file": ("eval_file", "predict_file"),
    "warmup_ratio": ("warmup_proportion", "num_warmup_steps"),
    "weight_decay": ("weight_decay_rate",),
    "warmup_steps": ("num_warmup_steps", "warmup_proportion"),
}

_DEVICES = "GPUs are used if TensorFlow finds any; --num_replicas sets how many, CUDA_VISIBLE_DEVICES which ones"
_PRECISION = "--mixed_precision=bfloat16, float16 or auto chooses the number format"
_RESUMING = "the same command resumes from the last checkpoint in --output_dir; use another folder to start a new run"
_CLIPPING = "as in Google's BERT, the gradient norm is clipped to 1.0"
_MODEL_FILES = (
    "give the model as --init_checkpoint=FOLDER, the local folder of a released model, a run or a Hugging Face model"
)

# Flags that have no counterpart here, with advice.
_ADVICE = {
    "amp": _PRECISION,
    "bf16": _PRECISION,
    "device": _DEVICES,
    "do_resume": _RESUMING,
    "dtype": _PRECISION,
    "fp16": _PRECISION,
    "gpu": _DEVICES,
    "max_grad_norm": _CLIPPING,
    "model_name_or_path": _MODEL_FILES,
    "model_type": _MODEL_FILES,
    "no_cuda": _DEVICES,
    "overwrite_output_dir": _RESUMING,
    "resume_from_checkpoint": _RESUMING,
    "use_cuda": _DEVICES,
    "use_fp16": _PRECISION,
    "use_gpu": _DEVICES,
}
flags.disclaim_key_flags()  # `--help` then lists the flags under the script, not under this module

Config = TypeVar("Config")

# Takes a config class, its flag values and the names of the flags that were given; returns all values.
Complete = Callable[[type, Mapping[str, Any], Collection[str]], Mapping[str, Any]]

_DEFINERS = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}
_DEMANDS = {
    bool: "must be true or false",
    int: "must be a whole number",
    float: "must be a number",
    str: "must be text",
}


def unknown_flag(name: str, flag_names: Collection[str]) -> str:
    """Return the error message for an unknown flag, with advice if there is any."""
    message = f"there is no flag --{name}"
    positive = name.removeprefix("no")
    others = [other for other in _OTHER_NAMES.get(name, ()) if other in flag_names]
    advice = _ADVICE.get(name) or _ADVICE.get(positive)
    if others:
        return f"{message}; use --{others[0]}"
    if advice:
        return f"{message}; {advice}"
    similar = difflib.get_close_matches(name, flag_names, n=1, cutoff=0.75)
    if similar:
        return f"{message}; did you mean --{similar[0]}?"
    return f"{message}; --help lists the flags"


def define_flags(config_class: type, flag_values: flags.FlagValues) -> None:
    """Define a flag for each field of a dataclass made with `option()`."""
    types_by_name = typing.get_type_hints(config_class)
    has_checkpoint = "init_checkpoint" in types_by_name
    for field in dataclasses.fields(config_class):
        limits = field.metadata
        waived = [f"--{limits['waived_with']} is given"] if limits["waived_with"] else []
        if limits["from_checkpoint"] and has_checkpoint:
            waived.append("the folder of --init_checkpoint has it")
        unless = f", unless {' or '.join(waived)}" if waived else ""
        help_text = limits["help"] + (f" Required{unless}." if limits["required"] else "")
        if limits["choices"] is not None:
            flags.DEFINE_enum(field.name, field.default, limits["choices"], help_text, flag_values=flag_values)
        else:
            _define(field, types_by_name[field.name], help_text, flag_values)


def flags_help(config_class: type, flag_values: flags.FlagValues) -> str:
    """Return the help text of a config's flags by group, each flag in absl's format."""
    flags_by_group = {group: [] for group in GROUPS}
    for field in dataclasses.fields(config_class):
        group = REQUIRED if field.metadata["required"] else field.metadata["group"]
        alone = flags.FlagValues()
        alone[field.name] = flag_values[field.name]
        flags_by_group[group].append(alone.get_help("  ", include_special_flags=False))
    return "\n\n".join("\n".join([f"{group}:", *texts]) for group, texts in flags_by_group.items() if texts) + "\n"


def from_flags(
    config_class: type[Config],
    flag_values: flags.FlagValues,
    complete: Complete | None = None,
) -> Config:
    """Build the config from parsed flags; `__post_init__` checks it."""
    names = [field.name for field in dataclasses.fields(config_class)]
    values = {name: flag_values[name].value for name in names}
    for field in dataclasses.fields(config_class):
        if field.metadata["is_path"] and values[field.name]:
            values[field.name] = ",".join(map(network.local_folder, values[field.name].split(",")))
    if complete is not None:
        values = complete(config_class, values, [name for name in names if flag_values[name].present])
    return config_class(**values)


def from_arguments(
    config_class: type[Config],
    arguments: Sequence[str],
    complete: Callable[[type, Mapping[str, Any], Collection[str]], Mapping[str, Any]] | None = None,
) -> Config:
    """Build the config from command-line arguments without the program name."""
    flag_values = flags.FlagValues()
    define_flags(config_class, flag_values)
    parse_flags(flag_values, ["", *arguments])
    return from_flags(config_class, flag_values, complete)


def parse_flags(flag_values: flags.FlagValues, arguments: Sequence[str]) -> None:
    """Parse a command line."""
    for argument in arguments[1:]:
        try:
            argument.encode("utf-8")
        except UnicodeEncodeError as error:  # Python decodes invalid bytes of the command line to surrogates
            raise UserError(f"the argument {argument!a} is not UTF-8; check the terminal's encoding") from error
    flag_file = next((argument for argument in arguments if argument.lstrip("-").startswith("flagfile")), "--flagfile")
    if flag_file.endswith("="):
        raise UserError(f"{flag_file} is empty; name a file, or leave the flag out")
    try:
        rest = flag_values(arguments)[1:]
    except flags.CantOpenFlagFileError as error:
        cause = error.__context__
        raise UserError(f"--flagfile: cannot read {cause.filename}: {cause.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{flag_file}: this file, or one that it includes, is not UTF-8: {error}") from error
    except flags.UnrecognizedFlagError as error:
        raise UserError(unknown_flag(error.flagname, list(flag_values))) from error
    except (flags.Error, ValueError) as error:
        raise UserError(str(error).removeprefix("flag ")) from error
    if rest:
        origin = "" if rest[0] in arguments else f" in a file of {flag_file}"
        raise UserError(
            f"unexpected argument {rest[0]!r:.80}{origin}; flags are written --name=value, booleans --name or --noname"
        )


def to_arguments(config: Any) -> list[str]:
    """Return the flags of a config that differ from their defaults, such as `["--task_name=mrpc", "--do_train"]`."""
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


def _define(field: dataclasses.Field, annotation: Any, help_text: str, flag_values: flags.FlagValues) -> None:
    """Define the flag of a field, with the type of its annotation.

    `str | None` is a string flag without a default; `float | Literal["auto"]` accepts a number or the word auto.
    """
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    kinds = typing.get_args(annotation) if is_union else (annotation,)
    words = [word for kind in kinds if typing.get_origin(kind) is Literal for word in typing.get_args(kind)]
    if words:
        parser = _NumberOrWord(words)
        flags.DEFINE(parser, field.name, field.default, help_text, flag_values, flags.ArgumentSerializer())
        return
    _DEFINERS[kinds[0]](field.name, field.default, help_text, flag_values=flag_values)
    if kinds[0] in _DEMANDS:
        flag = flag_values[field.name]
        flag.parser = _PlainSpokenParser(flag.parser, _DEMANDS[kinds[0]])


class _NumberOrWord(flags.FloatParser):
    """Parser for a number or one of a few literal words."""

    def __init__(self, words: Sequence[str]):
        super().__init__()
        self._words = words

    def parse(self, argument: str | float) -> str | float:
        if argument in self._words:
            return argument
        try:
            return super().parse(argument)
        except (TypeError, ValueError):
            raise ValueError(f"must be a number or {' or '.join(self._words)}") from None


class _PlainSpokenParser(flags.ArgumentParser):
    """Wrapper of a parser that replaces its error message by a plain one."""

    def __init__(self, parser: flags.ArgumentParser, demand: str):
        self._parser = parser
        self._demand = demand
        self.syntactic_help = parser.syntactic_help

    def parse(self, argument: Any) -> Any:
        try:
            return self._parser.parse(argument)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(self._demand) from None

    def flag_type(self) -> str:
        return self._parser.flag_type()
