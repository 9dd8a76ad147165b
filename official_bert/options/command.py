"""`Command`: what a module of `commands` declares."""

import dataclasses
import shlex
from collections.abc import Callable
from typing import Any

from official_bert.support.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A command: a script at the root, or a tool.

    Attributes:
      name: as typed after `official-bert`; its file has the same name.
      config_class: dataclass made with `option()`; its fields are the flags.
      summary: one line that says what it does.
      run: called with the config; imports what is heavy when it is called.
      usage: the rest of the help text before the flags; `{command}` stands for the words that start the script.
      check: a function that raises `UserError` for mistakes in the files that the config names. It is called with the
        config before TensorFlow is imported, and must not import that.
      uses_tensorflow: whether to import TensorFlow before the run, quietly; for remote files it is imported anyway.
    """

    name: str
    config_class: type
    summary: str
    run: Callable[[Any], None]
    usage: str = ""
    check: Callable[[Any], None] | None = None
    uses_tensorflow: bool = True

    def help_text(self, command: str) -> str:
        """Return the help text before the flags.

        Args:
          command: the words that start the script, for example `official-bert run_squad`.
        """
        return f"{self.summary}\n{self.usage.replace('{command}', command)}".rstrip() + "\n"


def split_command(command: str) -> list[str]:
    """Split the value of a flag that is a command, of which what stands after `--` is made.

    Args:
      command: for example `"run_ner --data_dir='my data'"`.

    Raises:
      UserError: there is none, or a quotation mark is not closed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--command={command}: {error}") from error
    if not words:
        raise UserError("--command is empty; give the command at the end, after --")
    return words
