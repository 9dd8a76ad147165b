"""The package can be installed wherever TensorFlow can: its requirements have wheels for each system and Python."""

import importlib.metadata
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

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
    [("linux", "3.10"), ("linux on Arm", "3.13"), ("darwin", "3.11"), ("win32", "3.12"), ("win32", "3.13")],
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
