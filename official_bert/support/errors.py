"""The exception for mistakes that users can correct, reported in one line, and checks of optional packages."""

import contextlib
import importlib
import importlib.util
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType

_MOST_NAMES_LISTED = 20
# Lines that name the nodes of a graph and the Python code that made them.
_OF_THE_GRAPH = ("Graph execution error", "Detected at node", "<stack traces", "  File ", "    ", "\t")
_MOST_ARRAYS_LISTED = 100
_NUMBER = re.compile(r"(?<=[._])\d+(?=[./])")  # of a layer, in the name of an array
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")  # except tab


class UserError(ValueError):
    """A mistake in flags or input files.

    The message says what is wrong, where (flag, or file and line or record) and what to do about it. A message about a
    parameter begins with its name, as in `"max_seq_length=65 exceeds ..."`; a command prints it as a flag.
    """

    _keras_call_info_injected = True  # so that Keras adds no lines about the arguments of its layers


def no_attribute(owner: object, name: str, advice: Mapping[str, str]) -> AttributeError:
    """Return the error for a missing attribute, with advice if another library has it."""
    hint = f"; use {advice[name]}" if name in advice else ""
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=owner)


def format_names(names: Iterable[str]) -> str:
    """Format names for a message: quoted, and only the first of many."""
    names = [repr(name) for name in names]
    hidden = len(names) - _MOST_NAMES_LISTED
    return ", ".join(names[:_MOST_NAMES_LISTED]) + (f" and {hidden} more" if hidden > 0 else "") or "nothing"


def format_arrays(names: Iterable[str]) -> str:
    """Format the names of arrays for a message: all of them, but those of several layers once.

    >>> format_arrays(["layer.0.bias", "layer.1.bias", "norm.bias"])
    'layer.*.bias (2), norm.bias'
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_NUMBER.sub("*", name), []).append(name)
    shown = [f"{pattern} ({len(group)})" if len(group) > 1 else group[0] for pattern, group in groups.items()]
    hidden = len(shown) - _MOST_ARRAYS_LISTED
    return ", ".join(shown[:_MOST_ARRAYS_LISTED]) + (f" and {hidden} more" if hidden > 0 else "")


def pluralize(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    r"""Escape control characters, as in `\x1b`, so that file contents cannot control the terminal or forge lines."""
    return _CONTROL_CHARACTERS.sub(lambda match: repr(match[0])[1:-1], text)


def plain_message(error: Exception) -> str:
    """Return the message of a TensorFlow error in one line, without its graph: "ids must be below 9, but are 12"."""
    text = re.sub(r"\{\{.*?\}\} | \[Op:\w+\]", "", getattr(error, "message", None) or str(error))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(_OF_THE_GRAPH)]
    text = "; ".join(lines).removeprefix("Name: <unknown>, ")
    assertion = re.fullmatch(r"assertion failed: (.*)|Expected 'tf.Tensor.*? Summarized data: b'(.*)", text)
    return re.sub(r"[\[\]]|';", "", assertion[1] or assertion[2]) if assertion else text


def require(package: str, extra: str) -> None:
    """Import a package, suppressing its log lines about missing optional parts."""
    logging.disable(logging.WARNING)
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise _not_installed(package, extra) from error
    finally:
        logging.disable(logging.NOTSET)


def check_installed(package: str, extra: str, advice: str = "") -> None:
    if importlib.util.find_spec(package) is None:
        raise _not_installed(package, extra, advice)


def import_tensorflow(use: str, advice: str = "") -> ModuleType:
    """Import TensorFlow on first use: models, records and safetensors files also work without it."""
    try:
        return importlib.import_module("tensorflow")
    except ModuleNotFoundError as error:
        raise UserError(f"{use} needs TensorFlow; run: pip install tensorflow{advice}") from error


def folder_of_tensorflow_text(use: str) -> str:
    """Find the package tensorflow_text without importing it, since it imports TensorFlow."""
    package = importlib.util.find_spec("tensorflow_text")
    if package is None:
        raise UserError(f"{use} needs tensorflow-text, which has no version for Windows; use Linux, macOS or WSL")
    return package.submodule_search_locations[0]


@contextlib.contextmanager
def blocked_imports(*packages: str) -> Iterator[None]:
    """Make imports in the block treat packages as not installed, except those that are already imported."""
    absent = [package for package in packages if package not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))
    try:
        yield
    finally:
        for package in absent:
            del sys.modules[package]


def _not_installed(package: str, extra: str, advice: str = "") -> UserError:
    return UserError(f"{package} is not installed; run: {install_command(extra)}{advice}")


def install_command(extra: str) -> str:
    return f"pip install 'official-bert[{extra}]'"  # pip keeps the installed package, wherever it comes from
