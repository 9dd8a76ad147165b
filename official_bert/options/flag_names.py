"""Parameter names written as flags in messages.

The library writes a parameter by its Python name; the commands add the dashes when they print a message.
"""

import dataclasses
import functools
import re


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
      config_class: dataclass whose fields are the flags.

    Returns:
      The message, for example "--max_seq_length=512 exceeds max_position_embeddings=128".
    """
    return _pattern(config_class).sub(r"--\1", message)
