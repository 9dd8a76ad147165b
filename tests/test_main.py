"""`official-bert` and `python -m official_bert`: from a checkout, and installed from a wheel."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig

import pytest

from official_bert import __version__
from official_bert.commands import all_commands
from official_bert.support.files import KILL_AT_VARIABLE
from tests.conftest import GOLDEN, ROOT, Result, assert_fails, script_environment


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


@pytest.mark.parametrize("name", ["python -m official_bert", "official-bert"])
def test_help_of_a_script_is_that_of_its_file(name, tmp_path):
    options = {"capture_output": True, "text": True, "check": True}
    of_file = subprocess.run([sys.executable, "run_squad.py", "--help"], cwd=ROOT, **options).stdout
    if name == "official-bert":  # created by an installation
        command = [sys.executable, str(tmp_path / name)]
        (tmp_path / name).write_text("from official_bert.__main__ import main\n\nmain()\n")
    else:
        command = [sys.executable, "-m", "official_bert"]
    process = subprocess.run([*command, "run_squad", "--help"], env=script_environment(), **options)
    assert process.stdout == of_file.replace("python run_squad.py", f"{name} run_squad")


def test_the_version_comes_without_tensorflow():
    result = run_module("--version")
    assert (result.code, result.output) == (0, f"official-bert {__version__}\n")
    program = "import sys, official_bert.__main__; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], env=script_environment(), check=True)


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


def files_of(folder):
    """Return the paths of all files of a package: modules and data."""
    paths = folder.rglob("*")
    return {path.relative_to(folder) for path in paths if path.is_file() and "__pycache__" not in path.parts}


@pytest.mark.slow
def test_a_wheel_works_without_the_checkout(tmp_path):
    source = tmp_path / "source"  # a build writes into its source folder
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "official_bert", source / "official_bert", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", str(source), "--no-deps", f"--wheel-dir={tmp_path}"], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"official_bert-{__version__}-")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([*pip, f"--python={python}", "install", "--no-deps", str(wheel)], check=True)
    # Dependencies come from the environment of the tests, which has at most a link to the checkout for the project
    # itself; a folder added to the path does not follow such links.
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")

    folder = tmp_path / "elsewhere"
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*arguments):
        command = [str(tmp_path / "venv" / "bin" / "official-bert"), *arguments]
        return Result(subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300))

    def printed(program):
        options = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
        return subprocess.run([python, "-c", program], **options).stdout

    assert printed("import official_bert; print(official_bert.__file__)").startswith(str(packages))
    assert files_of(packages / "official_bert") == files_of(ROOT / "official_bert")
    assert run("--version").output == f"official-bert {__version__}\n"
    program = "from official_bert.commands import all_commands; print(*[it.summary for it in all_commands().values()])"
    assert printed(program).strip() == " ".join(script.summary for script in all_commands().values())
    assert run("run_squad", "--help").output.startswith(all_commands()["run_squad"].summary)
    result = run("demo", "--output_dir=demo", "--random_seed=x")
    assert_fails(result, "official-bert demo: error: --random_seed")
    environment[KILL_AT_VARIABLE] = "write bert_config.json:1"  # in its fourth step
    result = run("demo", "--output_dir=demo")
    assert "documents gave" in result.errors and "== 4." in result.output, result
    shutil.rmtree(folder / "demo")
    (folder / "corpus.txt").write_text((GOLDEN / "inputs" / "corpus.txt").read_text())
    result = run("build_vocab", "--input_file=corpus.txt", "--vocab_file=vocab.txt", "--vocab_size=300")
    assert result.code == 0, result
    result = run(
        "create_pretraining_data", "--input_file=corpus.txt", "--output_file=out.tfrecord", "--vocab_file=vocab.txt"
    )
    assert result.code == 0, result
    made = ["out.tfrecord", "out.tfrecord.tokenizer.json", "out.tfrecord.vocab.txt"]
    assert sorted(os.listdir(folder)) == ["corpus.txt", *made, "vocab.txt"]
    assert_fails(
        run("build_vocab", "--input_file=a", "--vocab_file=b"), "official-bert build_vocab: error: no file matches"
    )
