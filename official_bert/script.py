"""`run_script()`: what every script and tool does around its run: flags, a quiet start, errors in one line."""

import contextlib
import importlib
import logging as standard_logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from absl import app, flags, logging

from official_bert import files
from official_bert.config.flag_binding import define_flags, from_flags
from official_bert.config.scripts import Script
from official_bert.errors import UserError

flags.disclaim_key_flags()  # as in flag_binding: the flags belong to the script

_NVIDIA_DEVICE = "/dev/nvidiactl"


def run_script(script: Script) -> None:
    """Runs a script: defines and parses its flags, checks them, calls its function with the config, ends the process.

    A mistake of the user (`UserError`, a file that cannot be opened, a full disk) becomes one line on standard error
    and exit code 1; Ctrl-C exit code 130.

    Args:
      script: its row of the table.
    """

    def main(arguments: Sequence[str]) -> None:
        if len(arguments) > 1:
            raise app.UsageError(
                f"unexpected argument {arguments[1]!r}; flags are written --name=value, booleans --name or --noname"
            )
        try:
            config = from_flags(script.config_class, flags.FLAGS)
            if script.check and _can_be_checked_early(config):
                with _only_errors_logged():  # the run warns of the same things, once
                    _function(script.check)(config)
            if script.uses_tensorflow:
                _import_tensorflow()
            _function(script.run)(config)
        except UserError as error:
            exit_with(str(error))
        except OSError as error:
            exit_with(f"{error.filename or 'input or output'}: {error.strerror or error}")
        except KeyboardInterrupt:
            exit_with("interrupted", status=130)

    define_flags(script.config_class, flags.FLAGS)
    flags.FLAGS.set_default("verbosity", logging.INFO)
    logging.get_absl_handler().setFormatter(
        standard_logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
    )
    command = f"python {sys.argv[0]}" if sys.argv[0].endswith(".py") else sys.argv[0]
    sys.modules["__main__"].__doc__ = script.help_text(command)  # from which absl makes --help
    app.run(main)


def exit_with(message: str, status: int = 1) -> None:
    """Ends the process with one line on standard error.

    Args:
      message: what is wrong; the program's name is put before it.
      status: the exit code.
    """
    sys.stderr.write(f"{os.path.basename(sys.argv[0])}: error: {message}\n")
    sys.exit(status)


def _function(path: str) -> Callable[[Any], None]:
    """The function that `"module:name"` stands for."""
    module, name = path.split(":")
    return getattr(importlib.import_module(module), name)


def _can_be_checked_early(config: Any) -> bool:
    """Whether the flags name no file that only TensorFlow can read, or that can be read but once."""
    texts = [value for value in vars(config).values() if isinstance(value, str)]
    return not any(files.is_remote(text) or files.is_own_descriptor(text) for text in texts)


@contextlib.contextmanager
def _only_errors_logged() -> Iterator[None]:
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def _import_tensorflow() -> None:
    """Imports TensorFlow and drops its start-up notes about CPU features and absent GPUs."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    with _filtered_standard_error():
        import tensorflow as tf

        tf.config.list_physical_devices()  # looks for GPUs now, while its notes are filtered


@contextlib.contextmanager
def _filtered_standard_error() -> Iterator[None]:
    """Holds back what native code writes to standard error in the block, then passes on what is not a mere note."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as held_back:
        os.dup2(held_back.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            held_back.seek(0)
            for line in held_back.read().decode(errors="replace").splitlines(keepends=True):
                if not _is_startup_note(line):
                    sys.stderr.write(line)


def _is_startup_note(line: str) -> bool:
    if line.startswith(("I0000 ", "WARNING: All log messages before absl::InitializeLog()")):
        return True
    return "failed call to cuInit" in line and not os.path.exists(_NVIDIA_DEVICE)
