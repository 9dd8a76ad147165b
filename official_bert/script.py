"""`run_script()`: what every script and tool does around its run: flags, a quiet start, errors in one line."""

import contextlib
import logging as standard_logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from absl import app, flags, logging

from official_bert.config.flag_binding import define_flags, from_flags
from official_bert.errors import UserError

flags.disclaim_key_flags()  # as in flag_binding: the flags belong to the script

Config = TypeVar("Config")

_NVIDIA_DEVICE = "/dev/nvidiactl"


def run_script(config_class: type[Config], run: Callable[[Config], None], *, uses_tensorflow: bool = True) -> None:
    """Runs a script: defines and parses its flags, calls `run(config)`, ends the process.

    A mistake of the user (`UserError`, a file that cannot be opened, a full disk) becomes one line on standard error
    and exit code 1; Ctrl-C exit code 130.

    Args:
      config_class: dataclass made with `option()`; its fields become the flags.
      run: called with the config.
      uses_tensorflow: whether to import TensorFlow before, quietly.
    """

    def main(arguments: Sequence[str]) -> None:
        if len(arguments) > 1:
            raise app.UsageError(
                f"unexpected argument {arguments[1]!r}; flags are written --name=value, booleans --name or --noname"
            )
        try:
            config = from_flags(config_class, flags.FLAGS)
            if uses_tensorflow:
                _import_tensorflow()
            run(config)
        except UserError as error:
            _exit_with(str(error))
        except OSError as error:
            _exit_with(f"{error.filename or 'input or output'}: {error.strerror or error}")
        except KeyboardInterrupt:
            _exit_with("interrupted", status=130)

    define_flags(config_class, flags.FLAGS)
    flags.FLAGS.set_default("verbosity", logging.INFO)
    logging.get_absl_handler().setFormatter(
        standard_logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
    )
    app.run(main)


def _exit_with(message: str, status: int = 1) -> None:
    sys.stderr.write(f"{os.path.basename(sys.argv[0])}: error: {message}\n")
    sys.exit(status)


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
