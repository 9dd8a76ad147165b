"""`option()`: a dataclass field that is also a command-line flag; `check_options()`: its limits."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from official_bert.errors import UserError


def option(
    default: Any,
    help_text: str,
    *,
    choices: Sequence[str] | None = None,
    required: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
) -> Any:
    """Declares a field of a run's config that is a flag of the same name.

    Args:
      default: value when the flag is not given; its type is the field's annotation.
      help_text: the line that `--help` prints.
      choices: the allowed strings, if they are few.
      required: the flag must be given; `default` is then None.
      minimum: smallest allowed number.
      maximum: largest allowed number.

    Returns:
      A `dataclasses.field`.
    """
    limits = {"help": help_text, "choices": choices, "required": required, "minimum": minimum, "maximum": maximum}
    return dataclasses.field(default=default, metadata=limits)


def check_options(config: Any) -> None:
    """Checks every field of a config against the limits its `option()` declares.

    Raises:
      UserError: a value is missing, too small, too large or not among the choices; the message names the flag.
    """
    for field in dataclasses.fields(config):
        value, limits = getattr(config, field.name), field.metadata
        given = f"--{field.name}={value}"
        if value is None:
            if limits["required"]:
                raise UserError(f"--{field.name} is required: {limits['help']}")
        elif limits["choices"] is not None and value not in limits["choices"]:
            raise UserError(f"{given}: must be one of {', '.join(limits['choices'])}")
        elif isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{given}: must be a finite number")
        elif limits["minimum"] is not None and not value >= limits["minimum"]:
            raise UserError(f"{given}: must be at least {limits['minimum']}")
        elif limits["maximum"] is not None and not value <= limits["maximum"]:
            raise UserError(f"{given}: must be at most {limits['maximum']}")
