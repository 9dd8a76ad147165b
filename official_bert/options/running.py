"""`run_command()`: what every command does around its run: flags, a quiet start, errors in one line."""

import contextlib
import dataclasses
import logging as standard_logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from absl import app, flags, logging

from official_bert.options.binding import Complete, define_flags, flags_help, from_flags, parse_flags
from official_bert.options.command import Command
from official_bert.options.flag_names import with_dashes
from official_bert.support import extras, files, signals
from official_bert.support.errors import UserError, printable
from official_bert.support.stderr_filter import filtered_stderr

flags.disclaim_key_flags()  # as in binding: the flags belong to the command

_COMMAND = "command"  # the flag that what comes after "--" is the value of, for a script that starts another one
_CHECKPOINT = "init_checkpoint"  # the flag whose folder supplies others that are not given
# TensorFlow and Keras import these where they find them, which takes two seconds and serves no command.
UNUSED_PEERS = ("IPython", "jax", "matplotlib", "pandas", "sklearn")
_NVIDIA_DEVICE = "/dev/nvidiactl"


def run_command(command: Command, complete: Complete | None = None) -> NoReturn:
    """Run a command: define and parse its flags, check its files, call its function, end the process.

    Args:
      command: its declaration.
      complete: adds to flags that name a checkpoint what is beside that; see `from_flags`.
    """
    with exiting_with_one_line(command.config_class):
        define_flags(command.config_class, flags.FLAGS)
        for field in dataclasses.fields(command.config_class):  # for --helpxml, whichever file was started
            flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[field.name])
        app.define_help_flags()
        for name, short_name in (("help", "?"), ("helpshort", None)):
            flags.DEFINE_flag(_Help(name, short_name, command.config_class), module_name=app.__name__)
        flags.FLAGS.set_default("verbosity", logging.INFO)
        handler = logging.get_absl_handler()
        handler.python_handler.setStream(sys.stderr)  # absl keeps the one that was there when it was imported
        # --verbosity=1 asks for our details, not for those of every library.
        handler.python_handler.addFilter(
            lambda record: record.name == "absl" or record.levelno >= standard_logging.INFO
        )
        handler.setFormatter(_Formatter(command.config_class))
        words = f"python {sys.argv[0]}" if sys.argv[0].endswith(".py") else sys.argv[0]
        sys.modules["__main__"].__doc__ = command.help_text(words)  # from which absl makes --help

        def main(_: Sequence[str]) -> None:
            if _CHECKPOINT in flags.FLAGS and files.is_remote(flags.FLAGS[_CHECKPOINT].value or ""):
                _import_tensorflow()
            config = from_flags(command.config_class, flags.FLAGS, complete if _CHECKPOINT in flags.FLAGS else None)
            if command.check and _can_be_checked_early(config):
                with _logging_errors_only():  # the run warns of the same things, once
                    command.check(config)
            if command.uses_tensorflow or _is_any(files.is_remote, config):
                _import_tensorflow()
            command.run(config)

        app.run(main, flags_parser=_parse)


def _parse(arguments: Sequence[str]) -> Sequence[str]:
    if _COMMAND in flags.FLAGS and "--" in arguments:
        end = list(arguments).index("--")
        if any(argument.lstrip("-").partition("=")[0] == _COMMAND for argument in arguments[:end]):
            raise UserError(f"--{_COMMAND} cannot be used with a command after --")
        arguments = [*arguments[:end], f"--{_COMMAND}={shlex.join(arguments[end + 1 :])}"]
    try:
        parse_flags(flags.FLAGS, arguments)
    except SystemExit:  # absl ends with 1 after --help, as if that were a mistake
        sys.exit(0)
    return arguments[:1]


class _Help(flags.BooleanFlag):
    """A flag that prints the flags of the script in groups, instead of in absl's alphabetical list."""

    def __init__(self, name: str, short_name: str | None, config_class: type):
        super().__init__(name, False, "show this help", short_name=short_name, allow_override=True)
        self._config_class = config_class

    def parse(self, argument: Any) -> None:
        super().parse(argument)
        if self.value:
            text = flags_help(self._config_class, flags.FLAGS)
            sys.stdout.write(f"{sys.modules['__main__'].__doc__}\n{text}\nTry --helpfull to get a list of all flags.\n")
            sys.exit(0)


class _Formatter(standard_logging.Formatter):
    """Log lines of a script."""

    def __init__(self, config_class: type):
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
        self._config_class = config_class

    def format(self, record: standard_logging.LogRecord) -> str:
        return printable(with_dashes(super().format(record), self._config_class))


@contextlib.contextmanager
def exiting_with_one_line(config_class: type | None = None) -> Iterator[None]:
    """End the process with a sensible exit code and at most one line, not with a traceback, whatever ends the block.

    A mistake of the user (`UserError`, a file that cannot be opened, a full disk, too little memory) gives exit code 1,
    Ctrl-C 130, a reader of standard output that went away, as `head` does, 141. Other errors are mistakes in the
    program and keep their traceback.

    Args:
      config_class: the flags that messages may name.
    """
    _open_closed_streams()
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # at the interpreter's own end an error would be noise and exit code 120
    except UserError as error:
        _exit_with(with_dashes(str(error), config_class) if config_class else str(error))
    except BrokenPipeError:
        sys.exit(signals.EXIT_CODE_OF_BROKEN_PIPE)
    except OSError as error:
        _exit_with(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except MemoryError:
        _exit_with(_out_of_memory(config_class))
    except KeyboardInterrupt:
        _exit_with("interrupted", status=130)
    except Exception as error:
        if _is_interruption(error):
            _exit_with("interrupted", status=130)
        if not _is_tensorflow_out_of_memory(error):
            raise
        _exit_with(_out_of_memory(config_class))
    finally:
        _drop_broken_streams()


def _out_of_memory(config_class: type | None) -> str:
    """Say what the run's size is, and what makes it smaller."""
    fields = dataclasses.fields(config_class) if config_class else ()
    values = {field.name: flags.FLAGS[field.name].value for field in fields if field.name in flags.FLAGS}
    phases = {field.name: field.metadata["sizes_run_with"] for field in fields}
    sizes = [
        f"--{name}={value}"
        for name, value in values.items()
        if value and phases[name] and (phases[name] == "always" or values.get(phases[name], True))
    ]
    if not sizes:
        return "not enough memory; use a smaller model, shorter texts or a larger machine"
    savings = [f"--{name}" for name in ("gradient_accumulation_steps", "gradient_checkpointing") if name in values]
    advice = f"use {' or '.join(savings)}, " if savings and values["do_train"] else "use "
    lowered = "lower it" if len(sizes) == 1 else "lower one of them"
    return f"not enough memory with {' and '.join(sizes)}; {lowered}, {advice}a smaller model or a larger machine"


def _exit_with(message: str, status: int = 1) -> NoReturn:
    with contextlib.suppress(OSError):  # nobody may be listening
        sys.stderr.write(f"{os.path.basename(sys.argv[0])}: error: {printable(message)}\n")
    sys.exit(status)


def _open_closed_streams() -> None:
    """Connect standard streams that were closed (`>&-`) with the null device.

    Otherwise a file that is opened later takes the number of a closed one, and receives what is written to it.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # how Python marks a closed one; the lowest number that is free is its own
            null = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(null, "r" if name == "stdin" else "w", encoding="utf-8"))


def _drop_broken_streams() -> None:
    """Connect output streams that cannot be written to with the null device, where what is left in them goes."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)


def _is_interruption(error: Exception) -> bool:
    """Tell what native code of TensorFlow makes of a KeyboardInterrupt that comes while it handles an error."""
    return isinstance(error, RuntimeError) and "REPLACED BY KeyboardInterrupt" in str(error)


def _is_tensorflow_out_of_memory(error: Exception) -> bool:
    """Tell it from other exhausted resources, without an import of TensorFlow."""
    words = ("OOM when allocating", "Out of memory")
    return type(error).__name__ == "ResourceExhaustedError" and any(word in str(error) for word in words)


def _can_be_checked_early(config: Any) -> bool:
    """Return whether the flags name no file that only TensorFlow can read, or that can be read but once."""
    return not _is_any(files.is_remote, config) and not _is_any(files.is_own_descriptor, config)


def _is_any(is_kind: Callable[[str], bool], config: Any) -> bool:
    """Return whether a flag's text is of a kind."""
    return any(is_kind(value) for value in vars(config).values() if isinstance(value, str))


@contextlib.contextmanager
def _logging_errors_only() -> Iterator[None]:
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def _import_tensorflow() -> None:
    """Import TensorFlow and drop its start-up notes about CPU features and absent GPUs."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    os.environ["KERAS_BACKEND"] = "tensorflow"  # whatever a user has set for work of another kind
    with filtered_stderr(_is_startup_note):
        with extras.left_out(*UNUSED_PEERS):
            import keras  # noqa: F401
            import tensorflow as tf

        tf.config.list_physical_devices()  # looks for GPUs now, while its notes are filtered


def _is_startup_note(line: str) -> bool:
    if line.startswith(("I0000 ", "WARNING: All log messages before absl::InitializeLog()")):
        return True
    return "failed call to cuInit" in line and not os.path.exists(_NVIDIA_DEVICE)
