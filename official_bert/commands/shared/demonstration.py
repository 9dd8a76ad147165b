"""Helpers of the demos: output folder, display and execution of commands, titles."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from official_bert.support import writing
from official_bert.support.errors import UserError

_DEMO_DATA = Path(__file__).parents[2] / "demo_data"
LINE_WIDTH = 100
# A demo deletes files only in a folder with this marker file.
MARKER = "made_by_a_demo"


def prepare_folder(folder: Path, made_files: Sequence[str]) -> None:
    """Create the output folder, or empty one that an earlier demo created."""
    writing.make_folders(str(folder))
    present = {path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()}
    made = {path for pattern in (MARKER, *made_files) for path in folder.glob(pattern)} & present
    if present and folder / MARKER not in present:
        raise UserError(f"output_dir={folder} is not empty and the demo did not make it; give a new folder")
    if present != made:
        foreign = min(present - made)
        raise UserError(f"{foreign} was not made by the demo; move it away or give another output_dir")
    for path in made - {folder / MARKER}:
        path.unlink()
    emptied = {parent for path in made for parent in path.parents if folder in parent.parents}
    for subfolder in sorted(emptied, reverse=True):  # deepest first
        subfolder.rmdir()
    (folder / MARKER).write_text("A demo made the files in this folder and deletes them when it starts again.\n")


def demo_data(name: str) -> str:
    """Return the shortest path of a file or folder that the demos read."""
    path = str(_DEMO_DATA / name)
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


def write_demo_data(folder: str) -> None:
    """Copy all files that the demos and the examples of the documentation read into a new folder."""
    shutil.copytree(_DEMO_DATA, folder)


def run_command(script: str, **flag_values: str | int | float | bool) -> None:
    """Print a command as typed in a shell, and run it."""
    flags = [f"--{name}" if value is True else f"--{name}={value}" for name, value in flag_values.items()]
    run_python("-m", "official_bert", script, *flags)


def run_python(*arguments: str) -> None:
    """Print a command for this Python as typed in a shell, and run it."""
    print_text("$ " + wrapped(_this_python(), *arguments))
    exit_code = subprocess.run([sys.executable, *arguments], check=False).returncode
    if exit_code:
        raise UserError(f"{' '.join(arguments[:3])} ... failed with exit code {exit_code}; its message is above")


def run_outside_project(program: str) -> None:
    """Print a Python program as typed in a shell, and run it in a process that cannot import this project."""
    print_text(f"$ {_this_python()} -I -c {shlex.quote(program)}")
    # TensorFlow's device messages would hide the answer.
    process = subprocess.run([sys.executable, "-I", "-c", program], check=False, stderr=subprocess.PIPE, text=True)
    if process.returncode:
        raise UserError(f"it failed with exit code {process.returncode}: {process.stderr}")


def _this_python() -> str:
    """Return the shortest command for this Python from the current folder."""
    if shutil.which("python") == sys.executable:
        return "python"
    relative = os.path.relpath(sys.executable)
    return sys.executable if relative.startswith(os.pardir) else relative


def wrapped(*words: str) -> str:
    """Format a command over several lines that a shell reads as one."""
    lines = [""]
    for word in map(quoted, words):
        if lines[-1] and len(lines[-1]) + len(word) > LINE_WIDTH:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def quoted(word: str) -> str:
    """Quote an argument for the shell; for a flag, only its value: --text='the [MASK] .'."""
    name, equals, value = word.partition("=")
    return f"{name}={shlex.quote(value)}" if equals else shlex.quote(word)


def print_title(text: str) -> None:
    print_text(f"\n== {text}")


def print_text(text: str) -> None:
    """Write to standard output, flushed before the next command writes."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
