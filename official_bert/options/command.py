"""`Command`, the declaration of a command, and `run_command`, which parses its flags and runs it."""

import contextlib
import dataclasses
import difflib
import functools
import gc
import logging as standard_logging
import os
import re
import shlex
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeVar

from absl import app, flags, logging

from official_bert.options.option import check_outputs, full_help, short_help
from official_bert.support import errors, files, processes, signals
from official_bert.support.console import drop_broken_streams, filtered_stderr, is_startup_note, prepare_streams
from official_bert.support.errors import UserError, printable

flags.disclaim_key_flags()  # `--help` then lists the flags under the script, not under this module

Config = TypeVar("Config")

# Takes a config class, its flag values and the names of the flags that were given; returns all values.
Complete = Callable[[type, Mapping[str, Any], Collection[str]], Mapping[str, Any]]

# Flags of earlier versions, and what to do without them.
_REMOVED = {
    "adam_beta_1": "it is 0.9, as in Google's BERT",
    "batch_ramp_up_steps": "a longer warm-up serves the same purpose",
    "compression": "records of fine-tuning are not compressed",
    "fallback": "a run always resumes from the checkpoint before a damaged one",
    "hidden_state_weight": "with --teacher, fine-tuning learns the teacher's outputs",
    "paraphrases": "sentence_similarity ranks the sentences of a file for each other",
    "teacher_layers": "with --teacher, fine-tuning learns the teacher's outputs",
}
_KINDS = {
    bool: (flags.DEFINE_bool, "true or false"),
    int: (flags.DEFINE_integer, "a whole number"),
    float: (flags.DEFINE_float, "a number"),
    str: (flags.DEFINE_string, "text"),
}
_COMMAND = "command"  # the flag that receives everything after "--", for a script that starts another one
_CHECKPOINT = "init_checkpoint"  # the flag whose folder supplies the other flags that are not given
# Flags that the memory depends on.
_SIZES = re.compile(r"(\w+_)?batch_(size|tokens)|max_seq_length")
# Errors of TensorFlow, which has the same type for full queues, and of JAX.
_OUT_OF_MEMORY = re.compile(
    r"(?s)ResourceExhaustedError: .*(OOM when allocating|Out of memory)|(Jax|Xla)RuntimeError: RESOURCE_EXHAUSTED"
)
# TensorFlow and Keras import these if installed, which takes two seconds; no command needs them.
_BACKEND = "backend"  # the flag of the commands that train
UNUSED_PEERS = ("IPython", "jax", "matplotlib", "pandas", "sklearn")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A subcommand of `official-bert`, named like its module, or a script in the repository root."""

    config_class: type  # dataclass made with `option()`; its fields are the flags
    summary: str  # one line for the help text
    # the function to call with the config and, if there is a `prepare`, its result; it imports heavy modules itself
    run: Callable[..., None]
    # the rest of the help text before the flags; `{command}` is replaced by the words that start the script
    usage: str = ""
    # a function that raises `UserError` for mistakes in the files that the config names. It is called with the
    # config before TensorFlow is imported, and must not import it
    check: Callable[[Any], object] | None = None
    prepare: Callable[[Any], Any] | None = None  # like `check`; it returns what it has read, for `run`
    positional: Sequence[str] = ()  # the flags whose values may be given in this order without their names
    # whether to import TensorFlow, quietly, before `run` is called, also as a function of the config; remote files
    # always need it
    uses_tensorflow: bool | Callable[[Any], bool] = True
    # whether the last value of a flag that is given twice counts, as in the scripts of 2018; otherwise, an error
    last_value_counts: bool = False


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
    with exiting_with_one_line():
        define_flags(command.config_class, flags.FLAGS)
        for field in dataclasses.fields(command.config_class):  # for --helpxml, whatever the entry point
            flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[field.name])
        app.define_help_flags()
        for name, short_name in (("help", "?"), ("helpshort", None), ("helpfull", None)):
            flags.DEFINE_flag(_Help(name, short_name, command.config_class), module_name=app.__name__)
        flags.FLAGS.set_default("verbosity", logging.INFO)
        _format_log()
        words = f"python {sys.argv[0]}" if sys.argv[0].endswith(".py") else sys.argv[0]
        usage = command.usage.replace("{command}", words)
        sys.modules["__main__"].__doc__ = f"{command.summary}\n{usage}".rstrip() + "\n"  # absl builds --help from it

        def main(_: Sequence[str]) -> None:
            folders = [flags.FLAGS[name].value or "" for name in (_CHECKPOINT, "output_dir") if name in flags.FLAGS]
            if _CHECKPOINT in flags.FLAGS and any(map(files.is_remote, folders)):
                _import_tensorflow()
            config = from_flags(command.config_class, flags.FLAGS, complete if _CHECKPOINT in flags.FLAGS else None)
            texts = [value for value in vars(config).values() if isinstance(value, str)]
            if any(map(files.is_remote, texts)):  # only TensorFlow reads remote files
                _import_tensorflow()
            check_outputs(config)
            if command.check:
                command.check(config)
            prepared = [command.prepare(config)] if command.prepare else []
            uses = command.uses_tensorflow
            if uses(config) if callable(uses) else uses:
                _import_tensorflow()
            elif _BACKEND in flags.FLAGS:
                os.environ["KERAS_BACKEND"] = flags.FLAGS[_BACKEND].value
            command.run(config, *prepared)

        app.run(main, flags_parser=functools.partial(_parse, command))


def _parse(command: Command, arguments: Sequence[str]) -> Sequence[str]:
    if _COMMAND in flags.FLAGS and "--" in arguments:
        end = list(arguments).index("--")
        if any(argument.lstrip("-").partition("=")[0] == _COMMAND for argument in arguments[:end]):
            raise UserError(f"--{_COMMAND} cannot be used with a command after --")
        arguments = [*arguments[:end], f"--{_COMMAND}={shlex.join(arguments[end + 1 :])}"]
    try:
        parse_flags(flags.FLAGS, arguments, command.positional)
    except SystemExit:  # absl exits with 1 after --help, as if it were an error
        sys.exit(0)
    settle_repeated_flags(flags.FLAGS, arguments[1:], last_value_counts=command.last_value_counts)
    return arguments[:1]


def settle_repeated_flags(
    flag_values: flags.FlagValues, arguments: Iterable[str], *, last_value_counts: bool = False
) -> None:
    """Join the values of lists that are given twice; raise if another flag has two values, or warn of it.

    A value in a flag file may be overridden on the command line.
    """
    given, words = {}, iter(arguments)
    for word in words:
        name, equals, value = word.lstrip("-").partition("=")
        if name not in flag_values:  # a flag of absl's parser, or the negative form of a flag
            name, equals, value = name.removeprefix("no"), "=", "false"
        if name not in flag_values or not word.startswith("-"):
            continue
        flag = flag_values[name]
        if not equals:
            value = "true" if flag.boolean else next(words, "")
        former = given.setdefault(name, value)
        if value != former and last_value_counts:
            logging.warning("--%s is given twice: %s counts, not %s", name, value, former)
        elif value != former and getattr(flag, "separator", None):
            flag.value = value = former + flag.separator + value
        elif value != former:
            raise UserError(f"--{name} is given twice, as {former!r:.80} and {value!r:.80}; give it once")
        given[name] = value


class _Help(flags.BooleanFlag):
    """The flags --help and --helpfull, which print the flags in groups instead of absl's alphabetical list."""

    def __init__(self, name: str, short_name: str | None, config_class: type):
        help_text = "show all flags with their whole descriptions" if name == "helpfull" else "show this help"
        super().__init__(name, False, help_text, short_name=short_name, allow_override=True)
        self._config_class = config_class

    def parse(self, argument: Any) -> None:
        super().parse(argument)
        if self.value:
            describe = full_help if self.name == "helpfull" else short_help
            sys.stdout.write(f"{sys.modules['__main__'].__doc__}\n{describe(self._config_class, flags.FLAGS)}")
            sys.exit(0)


def _format_log() -> None:
    handler = logging.get_absl_handler()
    handler.python_handler.setStream(sys.stderr)  # absl keeps the stream that existed when it was imported
    # --verbosity=1 is meant for this package's debug output, not for that of every library.
    handler.python_handler.addFilter(lambda record: record.name == "absl" or record.levelno >= standard_logging.INFO)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S"))


class _Formatter(standard_logging.Formatter):
    def format(self, record: standard_logging.LogRecord) -> str:
        record.msg, record.args = printable(_naming_flag(record.getMessage())), ()
        return "\n".join(map(printable, super().format(record).split("\n")))  # a traceback has several lines


@contextlib.contextmanager
def exiting_with_one_line() -> Iterator[None]:
    """Exit with a sensible code and a one-line message instead of a traceback, however the block ends.

    User errors (`UserError`, a file that cannot be opened, a full disk, too little memory) give exit code 1, Ctrl-C
    130, SIGTERM 143 (0 with --do_train, whose runs resume), and a closed standard output, as with `head`, 141. Other
    errors are bugs and keep their traceback.
    """
    prepare_streams()
    try:
        try:
            with signals.ending_command():
                yield
        finally:
            sys.stdout.flush()  # an error at interpreter shutdown would print noise and give exit code 120
    except UserError as error:
        _exit_with(_naming_flag(str(error)))
    except BrokenPipeError:
        sys.exit(signals.EXIT_CODE_OF_BROKEN_PIPE)
    except OSError as error:
        _exit_with(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except MemoryError:
        _exit_with(_out_of_memory())
    except KeyboardInterrupt:
        _exit_with("interrupted", status=signals.EXIT_CODE_OF_INTERRUPTION)
    except signals.Stopped:
        if not ("do_train" in flags.FLAGS and flags.FLAGS["do_train"].value):
            _exit_with("terminated", status=signals.EXIT_CODE_OF_TERMINATION)
        logging.info("SIGTERM: stopped; the same command resumes")
        sys.exit(0)
    except Exception as error:
        if "REPLACED BY KeyboardInterrupt" in str(error):  # TensorFlow's, if Ctrl-C arrives during its error handling
            _exit_with("interrupted", status=signals.EXIT_CODE_OF_INTERRUPTION)
        if not _OUT_OF_MEMORY.match(f"{type(error).__name__}: {error}"):
            raise
        _exit_with(_out_of_memory())
    finally:
        drop_broken_streams()


def _naming_flag(message: str) -> str:
    """Write the parameter that a message begins with, as in `max_seq_length=65 exceeds ...`, as a flag."""
    word = re.match(r"\w*", message)[0]
    is_flag = word in flags.FLAGS and ("_" in word or message.startswith(f"{word}="))
    return f"--{message}" if is_flag else message


def _out_of_memory() -> str:
    """Describe the size of the run, and suggest how to reduce it."""
    values = {name: flags.FLAGS[name].value for name in flags.FLAGS}
    sizes = [f"--{name}={value}" for name, value in values.items() if value and _SIZES.fullmatch(name)]
    savings = [f"--{name}" for name in ("gradient_accumulation_steps", "gradient_checkpointing") if name in values]
    advice = " or ".join([*savings, "a smaller model, shorter texts or a larger machine"])
    lowered = f" with {', '.join(sizes)}; lower one of these, or" if sizes else ";"
    return f"not enough memory{lowered} use {advice}"


def _exit_with(message: str, status: int = 1) -> NoReturn:
    with contextlib.suppress(OSError):  # the stream may be closed
        sys.stderr.write(f"{os.path.basename(sys.argv[0])}: error: {printable(message)}\n")
    sys.exit(status)


def _import_tensorflow(*, only_files: bool = False) -> None:
    """Import TensorFlow and Keras; drop their start-up notes about CPU features and absent GPUs."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    backend = flags.FLAGS[_BACKEND].value if _BACKEND in flags.FLAGS else "tensorflow"
    os.environ["KERAS_BACKEND"] = backend  # overrides what a user has set for other work
    with filtered_stderr(is_startup_note):
        with errors.blocked_imports(*(name for name in UNUSED_PEERS if name != backend)):
            gc.disable()  # while half a million objects are made, collections find nothing and take a sixth of the time
            tf = errors.import_tensorflow("this command")
            import keras  # noqa: F401

            gc.enable()
            gc.freeze()  # later collections need not look at these objects

        if backend == "tensorflow" and not only_files:
            tf.config.list_physical_devices()  # initializes GPUs now, while its log lines are filtered
        else:
            tf.config.set_visible_devices([], "GPU")


def run_on_tensorflow(config_class: type, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own, whose Keras computes with TensorFlow on the CPU.

    Its log lines and errors, which name the flags of a config class, are those of this process.
    """
    call = logging.get_verbosity(), config_class, processes.LateCall(function, *arguments)
    # For several processes; for a single one, it would not start any. One call needs one.
    with processes.Workers(2, name=f"runs {function.__name__}", advice="use a machine with more memory") as workers:
        return next(workers.map(_called_on_tensorflow, [call]))


def _called_on_tensorflow(call: tuple[int, type, processes.LateCall]) -> Any:
    verbosity, config_class, late_call = call
    define_flags(config_class, flags.FLAGS)
    flags.FLAGS.mark_as_parsed()  # otherwise absl warns of log lines before flags are parsed
    _format_log()
    logging.use_absl_handler()
    logging.set_verbosity(verbosity)
    _import_tensorflow(only_files=True)
    return late_call()


def _unknown_flag(name: str, flag_names: Collection[str]) -> str:
    similar = [flag for flag in flag_names if flag.endswith(f"_{name}")]  # seed: random_seed
    similar += difflib.get_close_matches(name, flag_names, n=1, cutoff=0.75)
    advice = f"did you mean --{similar[0]}?" if similar else "--help lists the flags"
    advice = _REMOVED.get(name.removeprefix("no"), advice)
    return f"there is no flag --{name}; {advice}"


def define_flags(config_class: type, flag_values: flags.FlagValues) -> None:
    types_by_name = typing.get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        required, help_text = field.metadata["required"], field.metadata["help"]
        waived = [f"--{required} is given"] if isinstance(required, str) else []
        if field.metadata["from_checkpoint"] and _CHECKPOINT in types_by_name:
            waived.append(f"--{_CHECKPOINT} has it")
        if "do_predict" in types_by_name and field.name != "output_dir":
            waived.append("the run in --output_dir has it")
        if required:
            unless = f", unless {' or '.join(waived)}" if waived else ""
            help_text = f"{help_text.removesuffix('.')}; required{unless}."
        if field.metadata["choices"] is not None:
            choices = field.metadata["choices"]
            flags.DEFINE_enum(field.name, field.default, choices, help_text, flag_values=flag_values)
        else:
            _define(field, types_by_name[field.name], help_text, flag_values)
        is_list = "omma-separated" in help_text  # as the help text of each list says
        flag_values[field.name].separator = field.metadata["separator"] or ("," if is_list else None)


def _define(field: dataclasses.Field, annotation: Any, help_text: str, flag_values: flags.FlagValues) -> None:
    """Define a flag of the annotation's type: `float | Literal["auto"]` accepts a number or the word auto."""
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    kind, *others = typing.get_args(annotation) if is_union else (annotation,)
    words = [word for other in others if typing.get_origin(other) is Literal for word in typing.get_args(other)]
    definer, demand = _KINDS[kind]
    definer(field.name, field.default, help_text, flag_values=flag_values)
    flag_values[field.name].parser = _Parser(flag_values[field.name].parser, " or ".join([demand, *words]), words)


class _Parser(flags.ArgumentParser):
    """Parser that also accepts a few words, and whose error message is plain."""

    def __init__(self, parser: flags.ArgumentParser, demand: str, words: Sequence[str]):
        self._parser, self._demand, self._words = parser, demand, words
        self.syntactic_help = parser.syntactic_help

    def parse(self, argument: Any) -> Any:
        if argument in self._words:
            return argument
        try:
            return self._parser.parse(argument)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"must be {self._demand}") from None

    def flag_type(self) -> str:
        return self._parser.flag_type()


def from_flags(config_class: type[Config], flag_values: flags.FlagValues, complete: Complete | None = None) -> Config:
    """Build the config from parsed flags; `__post_init__` checks it."""
    names = [field.name for field in dataclasses.fields(config_class)]
    values = {name: flag_values[name].value for name in names}
    for field in dataclasses.fields(config_class):
        if field.metadata["is_path"] and values[field.name]:
            values[field.name] = ",".join(map(files.local_folder, values[field.name].split(",")))
    if complete is not None:
        values = complete(config_class, values, [name for name in names if flag_values[name].present])
    return config_class(**values)


def from_arguments(config_class: type[Config], arguments: Sequence[str], complete: Complete | None = None) -> Config:
    """Build the config from command-line arguments without the program name."""
    flag_values = flags.FlagValues()
    define_flags(config_class, flag_values)
    parse_flags(flag_values, ["", *arguments])
    return from_flags(config_class, flag_values, complete)


def parse_flags(flag_values: flags.FlagValues, arguments: Sequence[str], positional: Sequence[str] = ()) -> None:
    """Parse a command line; see `Command` for `positional`."""
    for argument in arguments[1:]:
        if not argument.isascii() and re.search("[\udc80-\udcff]", argument):  # Python's form of invalid bytes
            raise UserError(f"the argument {argument!a} is not UTF-8; check the terminal's encoding")
    flag_file = next((argument for argument in arguments if argument.lstrip("-").startswith("flagfile")), "--flagfile")
    if flag_file.endswith("="):
        raise UserError(f"{flag_file} is empty; name a file, or leave the flag out")
    try:
        flag_values.set_gnu_getopt(bool(positional))  # flags may follow other arguments
        rest = flag_values(arguments)[1:]
        named = [f"--{name}={word}" for name, word in zip(positional, rest, strict=False)]
        rest = flag_values(["", *named])[1:] + rest[len(named) :]
    except flags.CantOpenFlagFileError as error:
        cause = error.__context__
        raise UserError(f"--flagfile: cannot read {cause.filename}: {cause.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{flag_file}: this file, or one that it includes, is not UTF-8: {error}") from error
    except flags.UnrecognizedFlagError as error:
        raise UserError(_unknown_flag(error.flagname, list(flag_values))) from error
    except (flags.Error, ValueError) as error:
        raise UserError(str(error).removeprefix("flag ")) from error
    if rest:
        origin = "" if rest[0] in arguments else f" in a file of {flag_file}"
        raise UserError(
            f"unexpected argument {rest[0]!r:.80}{origin}; flags are written --name=value, booleans --name or --noname"
        )


def to_arguments(config: Any) -> list[str]:
    """Return the flags of a config that differ from their defaults, such as `["--task_name=mrpc", "--do_train"]`."""
    arguments = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, bool):
            argument = f"--{field.name}" if value else f"--no{field.name}"
        else:
            argument = f"--{field.name}={value}"
        if value != field.default:
            arguments.append(argument)
    return arguments
