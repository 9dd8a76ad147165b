"""The exception for mistakes that users can correct; scripts report it in one line with exit code 1."""

import re
from collections.abc import Iterable

_MOST_NAMES_LISTED = 20
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")  # except tab


class UserError(ValueError):
    """A mistake in flags or input files.

    The message says what is wrong, where (flag, or file and line or record) and what to do about it.
    """


def format_names(names: Iterable[str]) -> str:
    """Format names for a message: quoted, and only the first of many."""
    names = [repr(name) for name in names]
    hidden = len(names) - _MOST_NAMES_LISTED
    return ", ".join(names[:_MOST_NAMES_LISTED]) + (f" and {hidden} more" if hidden > 0 else "") or "nothing"


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun: `1 sentence`, `2,000 sentences`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    r"""Escape control characters, as in `\x1b`, so that file contents cannot control the terminal or forge lines."""
    return _CONTROL_CHARACTERS.sub(lambda match: repr(match[0])[1:-1], text)


def plain_message(error: Exception) -> str:
    """Return the message of a TensorFlow error, without graph node and operation names."""
    return re.sub(r"\{\{.*?\}\} | \[Op:\w+\]", "", getattr(error, "message", None) or str(error))
