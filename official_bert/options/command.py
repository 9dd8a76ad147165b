"""`Command`, the declaration of a command, and `run_command`, which parses its flags and runs it."""

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
from official_bert.options.option import with_dashes
from official_bert.support import errors, files, processes
from official_bert.support.console import filtered_stderr
from official_bert.support.errors import UserError, printable

flags.disclaim_key_flags()  # as in `binding`: the flags belong to the command

_COMMAND = "command"  # the flag that receives everything after "--", for a script that starts another one
_CHECKPOINT = "init_checkpoint"  # the flag whose folder supplies the other flags that are not given
# TensorFlow and Keras import these if installed, which takes two seconds; no command needs them.
UNUSED_PEERS = ("IPython", "jax", "matplotlib", "pandas", "sklearn")
_NVIDIA_DEVICE = "/dev/nvidiactl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A subcommand of `official-bert`, or a script in the repository root."""

    name: str  # the word after `official-bert`; the module has the same name
    config_class: type  # dataclass made with `option()`; its fields are the flags
    summary: str  # one line for the help text
    run: Callable[[Any], None]  # the function to call with the config; it imports heavy modules itself
    # the rest of the help text before the flags; `{command}` is replaced by the words that start the script
    usage: str = ""
    # a function that raises `UserError` for mistakes in the files that the config names. It is called with the
    # config before TensorFlow is imported, and must not import it
    check: Callable[[Any], None] | None = None
    # whether to import TensorFlow, quietly, before `run` is called; remote files always need it
    uses_tensorflow: bool = True

    def help_text(self, command: str) -> str:
        """Return the help text before the flags."""
        return f"{self.summary}\n{self.usage.replace('{command}', command)}".rstrip() + "\n"


def split_command(command: str) -> list[str]:
    """Split the value of --command, which holds the arguments after `--`, into words."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--command={command}: {error}") from error
    if not words:
        raise UserError("--command is empty; give the command at the end, after --")
    return words


def run_command(command: Command, complete: Complete | None = None) -> NoReturn:
    """Run a command: define and parse its flags, check its files, call its function, exit."""
    with exiting_with_one_line(command.config_class):
        define_flags(command.config_class, flags.FLAGS)
        for field in dataclasses.fields(command.config_class):  # for --helpxml, whatever the entry point
            flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[field.name])
        app.define_help_flags()
        for name, short_name in (("help", "?"), ("helpshort", None)):
            flags.DEFINE_flag(_Help(name, short_name, command.config_class), module_name=app.__name__)
        flags.FLAGS.set_default("verbosity", logging.INFO)
        handler = logging.get_absl_handler()
        handler.python_handler.setStream(sys.stderr)  # absl keeps the stream that existed when it was imported
        # --verbosity=1 is meant for this package's debug output, not for that of every library.
        handler.python_handler.addFilter(
            lambda record: record.name == "absl" or record.levelno >= standard_logging.INFO
        )
        handler.setFormatter(_Formatter(command.config_class))
        words = f"python {sys.argv[0]}" if sys.argv[0].endswith(".py") else sys.argv[0]
        sys.modules["__main__"].__doc__ = command.help_text(words)  # absl builds --help from it

        def main(_: Sequence[str]) -> None:
            if _CHECKPOINT in flags.FLAGS and files.is_remote(flags.FLAGS[_CHECKPOINT].value or ""):
                _import_tensorflow()
            config = from_flags(command.config_class, flags.FLAGS, complete if _CHECKPOINT in flags.FLAGS else None)
            if command.check and _can_be_checked_early(config):
                with _logging_errors_only():  # the run itself warns about the same things
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
    except SystemExit:  # absl exits with 1 after --help, as if it were an error
        sys.exit(0)
    return arguments[:1]


class _Help(flags.BooleanFlag):
    """The flag --help, which prints the flags in groups instead of absl's alphabetical list."""

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
    """Formatter of log lines."""

    def __init__(self, config_class: type):
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")
        self._config_class = config_class

    def format(self, record: standard_logging.LogRecord) -> str:
        record.msg, record.args = printable(with_dashes(record.getMessage(), self._config_class)), ()
        return "\n".join(map(printable, super().format(record).split("\n")))  # a traceback has several lines


@contextlib.contextmanager
def exiting_with_one_line(config_class: type | None = None) -> Iterator[None]:
    """Exit with a sensible code and a one-line message instead of a traceback, however the block ends.

    User errors (`UserError`, a file that cannot be opened, a full disk, too little memory) give exit code 1, Ctrl-C
    130, SIGTERM 143 (0 with --do_train, whose runs resume), and a closed standard output, as with `head`, 141. Other
    errors are bugs and keep their traceback.
    """
    _open_closed_streams()
    try:
        try:
            with processes.raising_terminated():
                yield
        finally:
            sys.stdout.flush()  # an error at interpreter shutdown would print noise and give exit code 120
    except UserError as error:
        _exit_with(with_dashes(str(error), config_class) if config_class else str(error))
    except BrokenPipeError:
        sys.exit(processes.EXIT_CODE_OF_BROKEN_PIPE)
    except OSError as error:
        _exit_with(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except MemoryError:
        _exit_with(_out_of_memory(config_class))
    except KeyboardInterrupt:
        _exit_with("interrupted", status=130)
    except processes.Terminated:
        if not ("do_train" in flags.FLAGS and flags.FLAGS["do_train"].value):
            _exit_with("terminated", status=processes.EXIT_CODE_OF_TERMINATION)
        logging.info("SIGTERM: stopped; the same command resumes")
        sys.exit(0)
    except Exception as error:
        if _is_interruption(error):
            _exit_with("interrupted", status=130)
        if not _is_tensorflow_out_of_memory(error):
            raise
        _exit_with(_out_of_memory(config_class))
    finally:
        _drop_broken_streams()


def _out_of_memory(config_class: type | None) -> str:
    """Describe the size of the run, and suggest how to reduce it."""
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
    with contextlib.suppress(OSError):  # the stream may be closed
        sys.stderr.write(f"{os.path.basename(sys.argv[0])}: error: {printable(message)}\n")
    sys.exit(status)


def _open_closed_streams() -> None:
    """Connect closed standard streams (`>&-`) to the null device.

    Otherwise a file opened later gets the descriptor of a closed stream and receives its output.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # Python's mark for a closed stream; the lowest free descriptor is its own
            null = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(null, "r" if name == "stdin" else "w", encoding="utf-8"))


def _drop_broken_streams() -> None:
    """Connect unwritable output streams to the null device, which absorbs their remaining buffers."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)


def _is_interruption(error: Exception) -> bool:
    """Return True for the error that TensorFlow raises if Ctrl-C arrives during its error handling."""
    return isinstance(error, RuntimeError) and "REPLACED BY KeyboardInterrupt" in str(error)


def _is_tensorflow_out_of_memory(error: Exception) -> bool:
    """Recognize out-of-memory errors among other exhausted resources, without importing TensorFlow."""
    words = ("OOM when allocating", "Out of memory")
    return type(error).__name__ == "ResourceExhaustedError" and any(word in str(error) for word in words)


def _can_be_checked_early(config: Any) -> bool:
    """Return True if no flag names a file that only TensorFlow can read or that can be read only once."""
    return not _is_any(files.is_remote, config) and not _is_any(files.is_own_descriptor, config)


def _is_any(is_kind: Callable[[str], bool], config: Any) -> bool:
    """Return True if the text of a flag has the given kind."""
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
    os.environ["KERAS_BACKEND"] = "tensorflow"  # overrides what a user has set for other work
    with filtered_stderr(_is_startup_note):
        with errors.blocked_imports(*UNUSED_PEERS):
            import keras  # noqa: F401
            import tensorflow as tf

        tf.config.list_physical_devices()  # initializes GPUs now, while its log lines are filtered


def _is_startup_note(line: str) -> bool:
    if line.startswith(("I0000 ", "WARNING: All log messages before absl::InitializeLog()")):
        return True
    return "failed call to cuInit" in line and not os.path.exists(_NVIDIA_DEVICE)
