"""The package installs wherever TensorFlow does: its requirements have wheels for each system and Python."""

import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from packaging.requirements import Requirement

from official_bert.support.files import KILL_AT_VARIABLE
from tests import warm_start
from tests.conftest import ROOT, Result, assert_fails, script_command, script_environment

pytestmark = pytest.mark.slow
LINUX = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")


def pip(*arguments):
    command = [sys.executable, "-m", "pip", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def registry():
    if pip("index", "versions", "absl-py").returncode:
        pytest.skip("needs a package index")


@pytest.mark.endurance
@pytest.mark.parametrize(
    ("system", "python", "platforms"),
    [
        ("win32", "3.13", ["win_amd64"]),
        ("linux", "3.13", [f"{tag}_aarch64" for tag in LINUX]),
        ("linux", "3.11", [f"{tag}_x86_64" for tag in LINUX]),
        ("darwin", "3.11", ["macosx_14_0_arm64"]),  # TensorFlow 2.16 was the last for Intel
    ],
)
def test_the_requirements_have_wheels(system, python, platforms, registry, tmp_path):
    requirements = [Requirement(text) for text in importlib.metadata.requires("official-bert")]
    target = {"sys_platform": system, "python_version": python, "extra": ""}
    required = [each for each in requirements if each.marker is None or each.marker.evaluate(target)]
    needed = [f"{each.name}{each.specifier}" for each in required]
    assert "tensorflow<2.22,>=2.21" in needed
    options = ["--dry-run", "--quiet", "--ignore-installed", "--only-binary=:all:", f"--target={tmp_path}"]
    result = pip(
        "install", *options, *(f"--platform={tag}" for tag in platforms), f"--python-version={python}", *needed
    )
    assert result.returncode == 0, result.stdout


def commands_of(dockerfile):
    """Return the RUN lines of a file in deploy/, and its entry point."""
    lines = dict(re.findall(r"^([A-Z]+) (.+)$", (ROOT / "deploy" / dockerfile).read_text(), re.M))
    return lines["RUN"], json.loads(lines["ENTRYPOINT"])


def files_of(folder):
    """Return the paths of all files of a package: modules and data."""
    paths = folder.rglob("*")
    return {path.relative_to(folder) for path in paths if path.is_file() and "__pycache__" not in path.parts}


@pytest.fixture
def source(tmp_path):
    """The folder of what a wheel is built from."""
    folder = tmp_path / "source"
    shutil.copytree(ROOT / "official_bert", folder / "official_bert", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, folder)
    return folder


def test_the_wheel_has_all_files_of_the_package(registry, source, tmp_path):
    built = pip("wheel", "--quiet", "--no-deps", f"--wheel-dir={tmp_path}", source)
    assert built.returncode == 0, built.stdout
    (wheel,) = tmp_path.glob("*.whl")
    names = map(pathlib.PurePath, zipfile.ZipFile(wheel).namelist())
    found = {name.relative_to("official_bert") for name in names if name.parts[0] == "official_bert"}
    assert found == files_of(ROOT / "official_bert")


@pytest.mark.endurance
def test_an_image_built_from_the_wheel_serves_and_trains(registry, version, reviews, source, tmp_path):
    environment = os.environ | {"PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)

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


# Removes from Python what Windows lacks.
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
RUN = """
import multiprocessing.resource_tracker, runpy
multiprocessing.resource_tracker._HAVE_SIGMASK = False
for name in [name for name in sys.modules if name.startswith("official_bert")]:
    del sys.modules[name]  # imported again without the above
sys.argv = sys.argv[1:]
if sys.argv[0] == "-m":
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def run_without_posix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("without_posix")
    (folder / "sitecustomize.py").write_text(WITHOUT_POSIX)  # is read by new processes
    (folder / "program.py").write_text(WITHOUT_POSIX + RUN)
    environment = {**script_environment(), "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}

    def run(script, **flags):
        python, *arguments = script_command(script, flags)
        return Result(warm_start.run([python, str(folder / "program.py"), *arguments], environment, timeout=300))

    return run


@pytest.mark.endurance
@pytest.mark.skipif(not warm_start.IS_POSSIBLE, reason="needs Linux")
def test_scripts_need_nothing_that_windows_lacks(run_without_posix, one_layer_model, corpus_file, vocab_file, tmp_path):
    flags = {"input_file": corpus_file, "output_file": tmp_path / "records", "vocab_file": vocab_file}
    made = run_without_posix("create_pretraining_data.py", **flags, sampling="sharded", num_processes=2)
    assert made.code == 0, made
    texts = tmp_path / "train.tsv"
    texts.write_text("text\tlabel\n" + "good\tyes\nbad\tno\n" * 8)
    flags = {"task_name": "custom", "data_dir": tmp_path, "train_file": "train.tsv", "predict_file": "train.tsv"}
    flags |= {"eval_file": "train.tsv", "max_seq_length": 16, "train_batch_size": 8, "output_dir": tmp_path / "out"}
    flags |= {"text_a_column": "text", "label_column": "label", "do_train": True, **one_layer_model}
    others = {"num_train_epochs": 4, "export_dir": tmp_path / "export"}
    others |= dict.fromkeys(("do_eval", "do_predict", "do_export"), True)
    for changes in ({}, others):  # the second run resumes the first
        result = run_without_posix("run_classifier.py", **flags, **changes)
        assert result.code == 0, result
    assert "resuming from" in result.errors
    refused = run_without_posix("build_vocab", input_file=corpus_file, vocab_file=tmp_path / "v.txt", vocab_size=300)
    assert_fails(refused, "learning a vocabulary needs tensorflow-text, which has no version for Windows")
