"""The package installs wherever TensorFlow does: its requirements have wheels for each system and Python."""

import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig

import pytest
from packaging.requirements import Requirement

from official_bert.support.files import KILL_AT_VARIABLE
from tests.conftest import ROOT, Result, assert_fails, script_command, script_environment

LINUX = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
SYSTEMS = {
    "linux": [f"{tag}_x86_64" for tag in LINUX],
    "linux on Arm": [f"{tag}_aarch64" for tag in LINUX],
    "darwin": ["macosx_14_0_arm64"],  # TensorFlow 2.16 was the last for Intel
    "win32": ["win_amd64"],
}


def pip(*arguments):
    command = [sys.executable, "-m", "pip", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def registry():
    if pip("index", "versions", "absl-py").returncode:
        pytest.skip("needs a package index")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "python"),
    [
        ("linux on Arm", "3.13"),
        ("darwin", "3.11"),
        ("win32", "3.13"),
        *(pytest.param(*names, marks=pytest.mark.endurance) for names in (("linux", "3.11"), ("win32", "3.12"))),
    ],
)
def test_the_requirements_have_wheels(system, python, registry, tmp_path):
    requirements = [Requirement(text) for text in importlib.metadata.requires("official-bert")]
    target = {"sys_platform": system.split()[0], "python_version": python, "extra": ""}
    needed = [
        f"{requirement.name}{requirement.specifier}"
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate(target)
    ]
    assert "tensorflow<2.22,>=2.21" in needed
    platforms = [f"--platform={tag}" for tag in SYSTEMS[system]]
    options = ["--dry-run", "--quiet", "--ignore-installed", "--only-binary=:all:", f"--target={tmp_path}"]
    result = pip("install", *options, *platforms, f"--python-version={python}", *needed)
    assert result.returncode == 0, result.stdout


def commands_of(dockerfile):
    """Return the RUN lines of a file in deploy/, and its entry point."""
    lines = dict(re.findall(r"^([A-Z]+) (.+)$", (ROOT / "deploy" / dockerfile).read_text(), re.M))
    return lines["RUN"], json.loads(lines["ENTRYPOINT"])


def files_of(folder):
    """Return the paths of all files of a package: modules and data."""
    paths = folder.rglob("*")
    return {path.relative_to(folder) for path in paths if path.is_file() and "__pycache__" not in path.parts}


@pytest.mark.slow
def test_an_image_built_from_the_wheel_serves_and_trains(registry, version, reviews, tmp_path):
    source, environment = tmp_path / "source", os.environ | {"PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    shutil.copytree(ROOT / "official_bert", source / "official_bert", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)

    def run(command, **options):
        return subprocess.run(command, shell=True, cwd=tmp_path, env=environment, check=True, text=True, **options)

    run(f"{sys.executable} -m venv venv && pip install --quiet build twine && python -m build --outdir=dist source")
    run("twine check --strict dist/*")
    # The requirements come from the environment of the tests, in which they need no download; a folder that is added
    # to the path does not follow its link to the checkout.
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "requirements.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    install, entry_point = commands_of("serve.Dockerfile")
    run(install.replace("/tmp/", ""))
    assert files_of(packages / "official_bert") == files_of(ROOT / "official_bert")
    found = run("python -c 'import official_bert; print(official_bert.__file__)'", capture_output=True).stdout
    assert found.startswith(str(packages))
    with socket.create_server(("localhost", 0)) as found:
        port = found.getsockname()[1]
    flags = [f"--export_dir={reviews['export_dir']}", f"--port={port}", "--grpc_port=0", "--model_name=m"]
    with subprocess.Popen([*entry_point, *flags], cwd=tmp_path, env=environment) as server:
        try:
            url = f"http://localhost:{port}/v1/models/m:predict"
            retries = "--retry 300 --retry-delay 1 --retry-connrefused"
            body = '{"inputs": {"text_a": ["a gem"], "text_b": ["a stone"]}}'
            answer = run(f"curl --silent --fail {retries} {url} --data '{body}'", capture_output=True).stdout
        finally:
            server.terminate()
    assert len(json.loads(answer)["outputs"]["probabilities"]) == 1
    install, entry_point = commands_of("train.Dockerfile")
    run(install.replace("/tmp/", "").replace("install", "install --dry-run --quiet"))
    killed = environment | {KILL_AT_VARIABLE: "write bert_config.json:1"}  # in its fourth step
    demo = subprocess.run([*entry_point, "demo"], cwd=tmp_path, env=killed, capture_output=True, text=True)
    assert "== 4." in demo.stdout and (tmp_path / "demo_output" / "train.tfrecord").exists(), demo.stderr


# Removes from Python what Windows lacks; read by every process at startup.
WITHOUT_POSIX = """
import fcntl, multiprocessing.connection, os, signal, subprocess, sys, types  # those that look for msvcrt come first

class msvcrt(types.ModuleType):  # stands in for that of Windows
    LK_NBLCK = 2

    def locking(self, descriptor, mode, num_bytes, lock=fcntl.flock, how=fcntl.LOCK_EX | fcntl.LOCK_NB):
        try:
            lock(descriptor, how)
        except BlockingIOError as error:
            raise PermissionError(13, "Permission denied") from error

sys.modules["msvcrt"] = msvcrt("msvcrt")
for name in ("fcntl", "pwd", "grp", "resource", "termios", "tensorflow_text"):
    sys.modules[name] = None
for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGPIPE", "siginterrupt", "pthread_sigmask", "setitimer"):
    delattr(signal, name)
for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "sched_getaffinity", "getuid", "fork", "mkfifo"):
    delattr(os, name)
"""


@pytest.fixture(scope="module")
def run_without_posix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("without_posix")
    (folder / "sitecustomize.py").write_text(WITHOUT_POSIX)
    environment = {**script_environment(), "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}

    def run(script, **flags):
        command = script_command(script, flags)
        return Result(subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300))

    return run


@pytest.mark.slow
def test_scripts_need_nothing_that_windows_lacks(run_without_posix, files_of_model, corpus_file, vocab_file, tmp_path):
    made = run_without_posix(
        "create_pretraining_data.py",
        input_file=corpus_file,
        output_file=tmp_path / "records",
        vocab_file=vocab_file,
        sampling="sharded",
        num_processes=2,
    )
    assert made.code == 0, made
    texts = tmp_path / "train.tsv"
    texts.write_text("text\tlabel\n" + "good\tyes\nbad\tno\n" * 8)
    flags = {"task_name": "custom", "data_dir": tmp_path, "train_file": "train.tsv", "predict_file": "train.tsv"}
    flags |= {"eval_file": "train.tsv", "max_seq_length": 16, "train_batch_size": 8, "output_dir": tmp_path / "out"}
    flags |= {"export_dir": tmp_path / "export", "text_a_column": "text", "label_column": "label"}
    flags |= files_of_model | dict.fromkeys(("do_train", "do_eval", "do_predict", "do_export"), True)
    for num_train_epochs in (1, 2):  # the second run resumes the first
        result = run_without_posix("run_classifier.py", num_train_epochs=num_train_epochs, **flags)
        assert result.code == 0, result
    assert "resuming from" in result.errors
    refused = run_without_posix("build_vocab", input_file=corpus_file, vocab_file=tmp_path / "v.txt", vocab_size=300)
    assert_fails(refused, "learning a vocabulary needs tensorflow-text, which has no version for Windows")
