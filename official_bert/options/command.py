"""`Command`: the declaration of a command, one in each module of `commands`."""

import dataclasses
import shlex
from collections.abc import Callable
from typing import Any

from official_bert.support.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A subcommand of `official-bert`, or a script in the repository root.

    Attributes:
      name: the word after `official-bert`; the module has the same name.
      config_class: dataclass made with `option()`; its fields are the flags.
      summary: one line for the help text.
      run: the function to call with the config; it imports heavy modules itself.
      usage: the rest of the help text before the flags; `{command}` is replaced by the words that start the script.
      check: a function that raises `UserError` for mistakes in the files that the config names. It is called with the
        config before TensorFlow is imported, and must not import it.
      uses_tensorflow: whether to import TensorFlow, quietly, before `run` is called; remote files always need it.
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
    """Split the value of --command, which holds the arguments after `--`, into words.

    Args:
      command: for example `"run_ner --data_dir='my data'"`.

    Raises:
      UserError: the command is empty, or a quotation mark is not closed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--command={command}: {error}") from error
    if not words:
        raise UserError("--command is empty; give the command at the end, after --")
    return words
