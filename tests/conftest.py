"""Shared by all tests: golden files, and running the real scripts."""

import contextlib
import fcntl
import gc
import importlib
import json
import logging
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from official_bert.commands import load_command
from official_bert.options.command import UNUSED_PEERS
from official_bert.options.option import check_outputs
from official_bert.support.console import filtered_stderr
from official_bert.support.errors import UserError, blocked_imports
from official_bert.support.processes import available_cores
from official_bert.tokenization import FullTokenizer
from tests import warm_start

pytest_plugins = ("tests.browser_fixtures", "tests.export_fixtures")

ROOT = pathlib.Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
UNMASKED_RECORDS = 102  # number of records that `unmasked_records_file()` makes of the golden corpus
PAGE_RUNS = "tests/test_docs.py::test_commands_print_what_the_page_shows["
LONG_FILES = (  # the longest first
    "training/test_multi_worker.py", "serving/test_models_of_ids.py", "training/test_jax.py",
    "commands/test_run_sentence_encoder.py", "inference/test_sentence_transformers.py",
    "commands/test_spm_model_file.py", "faults/test_kills.py", "commands/test_run_classifier.py",
    "serving/test_server.py", "commands/test_distillation.py", "serving/test_access.py",
    "commands/test_beam_predict.py", "test_keras_backends.py", "serving/test_without_tensorflow.py",
    "tokenization/test_graph_tokenizer.py", "commands/test_run_squad.py", "commands/test_run_multiple_choice.py",
)  # fmt: skip


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in background jobs; scripts inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    is_parallel = config.getoption("dist", "no") != "no"
    if not hasattr(config, "workerinput"):
        if is_parallel:  # workers already keep the cores busy, and waiting threads cost a tenth of the time
            os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
        config.warm_start = warm_start.start(script_environment())
    only_distributes = is_parallel and not config.option.collectonly
    if not only_distributes:
        _set_up_tensorflow()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Run long files first and the pages last, so that no worker has a long one left at the end."""
    for item in items:
        if item.get_closest_marker("endurance"):
            item.add_marker("slow")
    places = {str(ROOT / "tests" / name): place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: (item.nodeid.startswith(PAGE_RUNS), places.get(str(item.path), len(places))))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """Return a worker for each core, and another one for the slow tests, which wait for processes and servers."""
    return available_cores() + (config.option.markexpr != "not slow")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep the tests of a file on one worker, for its fixtures, except the pages, which share none."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return nodeid if nodeid.startswith(PAGE_RUNS) else super()._split_scope(nodeid)

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_unconfigure(config):
    if getattr(config, "warm_start", None):
        config.warm_start.close()
    # Garbage collection at exit takes seconds because of TensorFlow's many objects.
    gc.freeze()


def _set_up_tensorflow():
    """Import TensorFlow without notes about CPUs and GPUs, and set options that can be set only once."""
    with contextlib.suppress(ImportError):  # importing these after TensorFlow crashes the process
        for peer in ("torch", "triton"):
            importlib.import_module(peer)
    gc.disable()  # like the scripts
    with filtered_stderr(lambda note: True):
        with blocked_imports(*(name for name in UNUSED_PEERS if name != os.environ.get("KERAS_BACKEND"))):
            import keras  # noqa: F401
            import tensorflow as tf
        # Two devices for the tests of tf.distribute; everything else uses the first.
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
        )
    gc.enable()
    gc.freeze()
    gc.set_threshold(50_000)  # tracing makes many objects, few of them garbage


@pytest.fixture(autouse=True)
def _defaults():
    """Undo what runs and libraries left in this process: a level of logging; an ignored SIGTERM, which is inherited."""
    logging.getLogger("absl").setLevel(logging.NOTSET)
    yield
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def slow(*rows, mark=pytest.mark.slow):
    """Return rows of a parametrized test, tuples or single values, with a mark."""
    return [pytest.param(*(row if type(row) is tuple else (row,)), marks=mark) for row in rows]


def endurance(*rows):
    return slow(*rows, mark=pytest.mark.endurance)


def golden_arrays(name):
    with np.load(GOLDEN / name) as arrays:
        return {key: arrays[key] for key in arrays.files}


class Result:
    def __init__(self, process):
        self.code, self.output, self.errors = process.returncode, process.stdout, process.stderr

    def __repr__(self):
        return f"exit code {self.code}\n{self.output}\n{self.errors}"

    @property
    def last_error_line(self):
        return self.errors.strip().splitlines()[-1]


def script_command(script, flags):
    """Return the command line of a script or command of the project, with flags as keywords."""
    start = [str(ROOT / script)] if str(script).endswith(".py") else ["-m", "official_bert", script]
    return [sys.executable, *start, *(f"--{name}={value}" for name, value in flags.items())]


def script_environment():
    """Return this process's environment, in which tools find the package."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def run_script(script, *arguments, piped=None, **flags):
    """Run a script or command with at most 4096 bytes through a pipe, if given, and flags: name to value."""
    command = [*script_command(script, flags), *arguments]
    with _input_of(piped) as stdin:
        process = warm_start.run(command, script_environment(), timeout=300, stdin=stdin)
    return Result(process) if process else run_cold(script, *arguments, piped=piped, **flags)


def run_cold(script, *arguments, piped=None, **flags):
    """Run a script like `run_script()`, but in a new Python, for tests of startup."""
    command = [*script_command(script, flags), *arguments]
    options = {"capture_output": True, "text": True, "env": script_environment(), "timeout": 300}
    with _input_of(piped) as stdin:
        return Result(subprocess.run(command, stdin=stdin, **options))


def run_program(code, *arguments):
    """Run Python code in a new process; return what it prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    process = subprocess.run(command, env=script_environment(), capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    return process.stdout


@contextlib.contextmanager
def _input_of(piped):
    """Return the descriptor of a closed pipe with the bytes, or of this process's standard input."""
    if piped is None:
        yield 0
        return
    read_end, write_end = os.pipe()
    try:
        os.write(write_end, piped)
        os.close(write_end)
        yield read_end
    finally:
        os.close(read_end)


def assert_fails(result, *parts):
    """Assert a user error: exit code 1 or 2, no traceback, and a last line that contains all parts."""
    assert result.code in (1, 2), result
    assert "Traceback" not in result.errors, result
    for part in parts:
        assert part.replace("--", "") in result.last_error_line.replace("--", ""), result


def run_here(command, /, **flags):
    """Check the files of a command and run it in this process."""
    declared = load_command(command)
    flags = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in flags.items()}
    config = declared.config_class(**flags)
    check_outputs(config)
    if declared.check:
        declared.check(config)
    run_config(declared, config)


def run_config(command, config):
    """Read the files of a command and run it in this process; the command may be its module."""
    command = getattr(command, "COMMAND", command)
    command.run(config, *([command.prepare(config)] if command.prepare else []))


def assert_refused(command, flags, *parts):
    """Assert a user error in this process: a UserError whose message, as printed by scripts, contains all parts."""
    with pytest.raises(UserError) as caught:
        run_here(command, **flags)
    for part in parts:
        assert part.replace("--", "") in str(caught.value).replace("--", "")


@contextlib.contextmanager
def prints_error(message):
    """Assert a user error in the block whose message, as printed by the script, matches the expression."""
    with pytest.raises(UserError) as caught:
        yield caught
    printed = str(caught.value).replace("--", "")
    assert re.search(message.replace("--", ""), printed), printed


def shared(tmp_path_factory, name, make):
    """Return a folder that `make(folder)` fills once for all workers; tests that change such a folder copy it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared" / name
    folder.parent.mkdir(exist_ok=True)
    with open(f"{folder}.lock", "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        if not lock.read():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
            folder.mkdir()
            make(folder)
            lock.write("made")
    return folder


@pytest.fixture(scope="session")
def forked_python(tmp_path_factory):
    """Path of a `python`, beside an `official-bert`, that runs in forked children; signals but SIGKILL reach these."""
    folder = tmp_path_factory.mktemp("bin")
    warm_start.write_stand_ins(folder)
    return folder / "python"


@pytest.fixture
def forked_children(forked_python, monkeypatch):
    """Let the Pythons that scripts start run in forked children, too."""
    monkeypatch.setenv(warm_start.FORKED_PYTHON, str(forked_python))


@pytest.fixture(scope="session")
def two_devices():
    from official_bert.training.tensorflow_devices import mirrored_strategy  # imports TensorFlow

    return mirrored_strategy("CPU", 2)


@pytest.fixture(scope="session")
def corpus_file():
    return str(GOLDEN / "inputs" / "corpus.txt")


@pytest.fixture(scope="session")
def vocab_file():
    return str(GOLDEN / "inputs" / "vocab.txt")


@pytest.fixture(scope="module")
def tokenizer(vocab_file):
    return FullTokenizer(vocab_file)


@pytest.fixture(scope="session")
def model_dir():
    return GOLDEN / "pretraining_model"


@pytest.fixture(scope="session")
def one_layer_config_file(tmp_path_factory, model_dir):
    """The golden architecture reduced to one layer, for tests that do not depend on the number."""
    config = json.loads((model_dir / "bert_config.json").read_text())
    path = tmp_path_factory.mktemp("one_layer") / "bert_config.json"
    path.write_text(json.dumps({**config, "num_hidden_layers": 1}))
    return str(path)


def _records(tmp_path_factory, name, **flags):
    def make(folder):
        flags["output_file"] = folder / f"{name}.tfrecord"
        result = run_script("create_pretraining_data.py", **flags, dupe_factor=4, max_seq_length=64)
        assert result.code == 0, result

    return str(shared(tmp_path_factory, name, make) / f"{name}.tfrecord")


@pytest.fixture(scope="session")
def records_file(tmp_path_factory, corpus_file, vocab_file):
    files = {"input_file": corpus_file, "vocab_file": vocab_file}
    return _records(tmp_path_factory, "train", **files, max_predictions_per_seq=10)


@pytest.fixture(scope="session")
def unmasked_records_file(tmp_path_factory, corpus_file, vocab_file):
    """`UNMASKED_RECORDS` records of the same text without masks."""
    return _records(tmp_path_factory, "unmasked", input_file=corpus_file, vocab_file=vocab_file, masking="none")


@pytest.fixture(scope="session")
def files_of_model(model_dir, vocab_file):
    files = {"bert_config_file": "bert_config.json", "init_checkpoint": "bert_model.ckpt"}
    return {name: str(model_dir / file) for name, file in files.items()} | {"vocab_file": vocab_file}


@pytest.fixture(scope="session")
def one_layer_model(files_of_model, one_layer_config_file):
    """The flags for the files of the golden model reduced to one layer."""
    return {**files_of_model, "bert_config_file": one_layer_config_file}
