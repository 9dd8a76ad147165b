"""`official-bert` and `python -m official_bert`: from a checkout, and installed from a wheel."""

import re
import subprocess
import sys

import pytest

from official_bert import __version__
from official_bert.commands import all_commands
from tests.conftest import ROOT, Result, assert_fails, run_program, script_environment


def run_module(*arguments):
    """Run `python -m official_bert` in a separate process."""
    command = [sys.executable, "-m", "official_bert", *arguments]
    return Result(subprocess.run(command, capture_output=True, text=True, env=script_environment(), timeout=60))


def test_help_lists_the_scripts():
    result = run_module("--help")
    assert result.code == 0
    groups = result.output.split("\n\n")[1:]
    assert [group.splitlines()[0] for group in groups] == ["train:", "data:", "models:", "use:", "serve:"]
    assert sum(len(group.splitlines()) - 1 for group in groups) == len(all_commands())
    for name, script in all_commands().items():
        assert re.search(rf"^  {name} +{re.escape(script.summary)}$", result.output, re.MULTILINE)


def test_help_of_a_script_is_that_of_its_file(tmp_path):
    options = {"capture_output": True, "text": True, "check": True, "env": script_environment()}
    of_file = subprocess.run([sys.executable, "run_squad.py", "--help"], cwd=ROOT, **options).stdout
    (tmp_path / "official-bert").write_text("from official_bert.__main__ import main\n\nmain()\n")
    for name, command in (
        ("official-bert", [str(tmp_path / "official-bert"), "run_squad", "--help"]),  # created by an installation
        ("python -m official_bert", ["-m", "official_bert", "help", "run_squad"]),
    ):
        process = subprocess.run([sys.executable, *command], **options)
        assert process.stdout == of_file.replace("python run_squad.py", f"{name} run_squad")


def test_the_version_comes_without_tensorflow():
    code = (
        "import sys; sys.modules['tensorflow'] = None; sys.argv[1:] = ['--version']; import official_bert.__main__ as m"
    )
    assert run_program(f"{code}; m.main()") == f"official-bert {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "python -m official_bert: error: no script is given; python -m official_bert --help lists the scripts"),
        (["run_clasifier", "--do_train"], "there is no script 'run_clasifier' (did you mean run_classifier?); "),
        (["fill_mask.py"], "there is no script 'fill_mask.py' (did you mean fill_mask?); "),
        (["plot_metrics"], "plot_metrics is now tensorboard --logdir=OUTPUT_DIR; "),
        (["--task_name=mrpc"], "the first argument must be the name of a script, not '--task_name=mrpc'"),
        (["score_answers", "--squad_file=a", "--predictions_file=b"], "python -m official_bert score_answers: error"),
    ],
)
def test_mistakes(arguments, message):
    assert_fails(run_module(*arguments), message)
