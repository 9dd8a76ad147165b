"""The end of scripts: broken and closed streams, interruptions, too little memory; processes only where needed."""

import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from official_bert.options.command import exiting_with_one_line
from tests.conftest import ROOT, script_environment, slow

# A script whose code is inserted by the test.
PROGRAM = """
import signal, sys, time
from official_bert.options.option import Options, option, options
from official_bert.options.command import Command
from official_bert.options.command import run_command

@options(group="input")
class Config(Options):
    size: int = option(1, "How much.")
    do_train: bool = option(False, "Knead.")
    do_predict: bool = option(False, "Taste.")
    train_batch_size: int = option(32, "Loaves.")
    predict_batch_size: int = option(8, "Slices.")
    max_seq_length: int = option(128, "Length.")
    gradient_checkpointing: bool = option(False, "Knead twice.")

def check(config):
    {check}

def run(config):
    {run}

sys.argv[0] = "bake.py"
run_command(Command(config_class=Config, summary="Bakes.", check=check, run=run,
                    uses_tensorflow={uses_tensorflow}))
"""


def bake(*, check="pass", run="pass", uses_tensorflow=False, redirection="", argument="", **options):
    program = PROGRAM.format(check=check, run=run, uses_tensorflow=uses_tensorflow)
    command = ["sh", "-c", f'exec "$0" -c "$1" {argument} {redirection}', sys.executable, program]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(command, text=True, env=script_environment(), **streams)


def end_of(process, **options):
    output, errors = process.communicate(timeout=60, **options)
    return process.returncode, output, errors


@pytest.mark.parametrize("arguments", [["-m", "official_bert", "--help"], ["run_squad.py", "--help"]])
def test_a_reader_that_goes_away_ends_the_output_quietly(arguments):
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, *arguments]
    streams = {"stdout": write_end, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=ROOT, env=script_environment(), **streams)
    os.close(write_end)
    assert end_of(process) == (128 + signal.SIGPIPE, None, "")


def test_control_characters_of_messages_do_not_reach_the_terminal():
    name = r"bert/\x1b[2J\x07\x9b31m\n12:00:00 INFO forged\u2028"
    run = f"from absl import logging; logging.warning('odd %s', '{name}'); raise UserError('no {name}\\there')"
    code, _, errors = end_of(bake(run=f"from official_bert.support.errors import UserError; {run}"))
    assert code == 1
    lines = [line.split(" ", 1)[1].strip() for line in errors.splitlines()]
    assert lines == [rf"WARNING odd {name}", f"error: no {name}\there"]


@pytest.mark.parametrize("redirection", [">&-", "<&- >&- 2>&-"])
def test_closed_streams_do_no_harm(tmp_path, redirection):
    place = tmp_path / "bread"
    run = f"sink = open({str(place)!r}, 'w'); print('to standard output'); "
    run += "from absl import logging; logging.warning('to standard error'); "
    run += "import os; os.write(1, b'x'); os.write(2, b'x'); "  # like libraries
    run += "sys.stdin.read(); sink.write('bread'); sink.close()"
    code, output, errors = end_of(bake(run=run, redirection=redirection, stdin=subprocess.DEVNULL))
    assert code == 0, errors
    assert place.read_text() == "bread"
    assert output == ("" if " >&-" in f" {redirection}" else "to standard output\nx")
    assert ("to standard error" in errors) == ("2>&-" not in redirection)
    assert "Traceback" not in errors


def test_verbosity_1_shows_the_details_of_the_project_alone():
    log = "from absl import logging; import logging as other; logging.debug('ours'); other.getLogger('h5py').debug('x')"
    _, _, errors = end_of(bake(run=log, argument="--verbosity=1"))
    assert [line.split()[1:] for line in errors.splitlines()] == [["DEBUG", "ours"]]
    assert end_of(bake(run=log)) == (0, "", "")


def test_a_mistake_is_about_a_flag_that_its_message_begins_with_also_with_closed_standard_output():
    check = "from official_bert.support.errors import UserError; raise UserError('size=3: a size of 3')"
    assert end_of(bake(check=check, redirection=">&-")) == (1, "", "bake.py: error: --size=3: a size of 3\n")
    assert end_of(bake(check=check, redirection=">&- 2>&-")) == (1, "", "")
    full = end_of(bake(run="print('x')", redirection=">/dev/full"))
    assert full == (1, "", "bake.py: error: input or output: No space left on device\n")


# A signal between a check of Python and one long sleep would wait for its end.
WAITS = "print('ready', flush=True), [time.sleep(0.1) for _ in range(600)]"


@pytest.mark.parametrize(
    ("settings", "seconds", "output"),
    [
        *slow(({"check": "print('ready', flush=True)", "uses_tensorflow": True}, 1.0, "")),  # while it is imported
        ({"run": f"try:\n        {WAITS}\n    finally: print('cleaned')"}, 0.1, "cleaned\n"),
    ],
)
def test_an_interruption_ends_in_one_line(settings, seconds, output):
    process = bake(**settings)
    assert process.stdout.readline() == "ready\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    assert end_of(process) == (130, output, "bake.py: error: interrupted\n")


@pytest.mark.slow
def test_a_second_interruption_of_training_ends_at_once():
    process = bake(run=f"from official_bert.support.signals import RunRequests\n    with RunRequests(): {WAITS}")
    assert process.stdout.readline() == "ready\n"
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(1)
    assert end_of(process) == (-signal.SIGINT, "", "\nCtrl-C: saving a checkpoint; press it again to end at once\n")


def test_a_process_in_the_background_ignores_interruptions_on():
    reads = "print('ready', flush=True); sys.stdin.readline()"
    options = {"stdin": subprocess.PIPE, "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    process = bake(check=reads, run=reads, **options)
    for _ in range(2):
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        process.stdin.write("\n")
        process.stdin.flush()
    assert end_of(process) == (0, "", "")


LOGS_STOP = "SIGTERM: stopped; the same command resumes\n"


@pytest.mark.parametrize(
    ("changes", "argument", "expected"),
    [
        ({"run": WAITS}, "--nodo_train", (143, "", "bake.py: error: terminated\n")),
        ({"run": f"try:\n        {WAITS}\n    finally: print('end')"}, "--do_train", (0, "end\n", LOGS_STOP)),
        ({"run": f"try:\n        {WAITS}\n    except BaseException: _ = 1 / 0"}, "--do_train", (0, "", LOGS_STOP)),
        ({"check": WAITS}, "--do_train", (0, "", LOGS_STOP)),
        ({"run": f"import atexit; atexit.register(lambda: ({WAITS.replace('600', '10')}))"}, "", (0, "", "")),
    ],
)
def test_termination_before_and_after_training_ends_like_during_it(changes, argument, expected):
    process = bake(**changes, argument=argument)
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    code, output, errors = end_of(process)
    assert (code, output, re.sub(r"^\d\d:\d\d:\d\d INFO +", "", errors)) == expected


def test_out_of_memory_errors_name_the_sizes():
    status, _, errors = end_of(bake(run="bytearray(2**60)", argument="--do_train --train_batch_size=640"))
    sizes = "--train_batch_size=640, --predict_batch_size=8, --max_seq_length=128"
    advice = "use --gradient_checkpointing or a smaller model, shorter texts or a larger machine"
    assert (status, errors) == (1, f"bake.py: error: not enough memory with {sizes}; lower one of these, or {advice}\n")


def interrupt_native_code():
    raise RuntimeError("pybind11::error_already_set: InvalidArgumentError REPLACED BY KeyboardInterrupt: <EMPTY>")


@pytest.mark.parametrize(
    ("act", "code", "message"),
    [
        *slow(
            (lambda: tf.fill([2**44], 1.0), 1, "not enough memory; use a smaller model"),
            (lambda: importlib.import_module("jax").numpy.ones(2**45), 1, "not enough memory; use a smaller model"),
        ),
        (interrupt_native_code, 130, "interrupted\n"),
        (lambda: open("flour"), 1, "flour: No such file or directory\n"),
    ],
)
def test_errors_of_the_system_are_one_line(capsys, act, code, message):
    with pytest.raises(SystemExit) as end, exiting_with_one_line():
        act()
    assert end.value.code == code
    assert f": error: {message}" in capsys.readouterr().err


def test_mistakes_in_the_program_keep_their_traceback():
    with pytest.raises(ZeroDivisionError), exiting_with_one_line():
        _ = 1 / 0
    with pytest.raises(tf.errors.ResourceExhaustedError), exiting_with_one_line():
        raise tf.errors.ResourceExhaustedError(None, None, "the queue is full")


def test_characters_that_standard_output_lacks_are_written_as_escapes_of_json(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="cp949"))
    with exiting_with_one_line():
        print(text := "좋다 🍋 café")
    printed = sys.stdout.buffer.getvalue().decode("cp949")
    assert printed == "좋다 \\ud83c\\udf4b caf\\u00e9\n"
    assert json.loads(f'"{printed.strip()}"') == text
