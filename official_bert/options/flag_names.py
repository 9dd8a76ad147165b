"""Parameter names written as flags in messages.

The library writes a parameter by its Python name; the commands add the dashes when they print a message.
"""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterator

from official_bert.support.errors import UserError

_other_commands: list[type] = []  # the config classes of the enclosing blocks of `on_behalf_of`


@functools.cache
def _pattern(config_class: type) -> re.Pattern[str]:
    names = [field.name for field in dataclasses.fields(config_class)]
    # A one-word name may be an ordinary word, unless a value follows.
    forms = [name if "_" in name else f"{name}(?==)" for name in names]
    # Skip names that are part of a path or of another word, are quoted, or already have dashes.
    return re.compile(rf"(?<![\w./\\'\"-])({'|'.join(forms)})(?![\w/'\"]|\.\w)")


def with_dashes(message: str, config_class: type) -> str:
    """Write the parameters in a message as flags.

    Args:
      message: for example "max_seq_length=512 exceeds max_position_embeddings=128".
      config_class: dataclass whose fields are the flags, besides those of `on_behalf_of`.

    Returns:
      The message, for example "--max_seq_length=512 exceeds max_position_embeddings=128".
    """
    for flags in (config_class, *_other_commands):
        message = _pattern(flags).sub(r"--\1", message)
    return message


@contextlib.contextmanager
def on_behalf_of(command: str, config_class: type) -> Iterator[None]:
    """Run code of another command in this process.

    Its parameters are also written as flags in log lines, and user errors begin with its name.

    Args:
      command: the name of the other command.
      config_class: dataclass whose fields are its flags.
    """
    _other_commands.append(config_class)
    try:
        yield
    except UserError as error:
        raise UserError(f"{command}: {with_dashes(str(error), config_class)}") from error
    finally:
        _other_commands.remove(config_class)
