"""Parameters as a user of the command line knows them.

Only the scripts know that there is a command line: what is below them calls a parameter by its name, as Python does.
Where a script prints such a message, it puts the dashes there.
"""

import dataclasses
import functools
import re


@functools.cache
def _pattern(config_class: type) -> re.Pattern[str]:
    names = [field.name for field in dataclasses.fields(config_class)]
    # A name of one word may be just that, unless a value follows.
    forms = [name if "_" in name else f"{name}(?==)" for name in names]
    # Not where it is part of a path or of another word, quoted, or has its dashes.
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
