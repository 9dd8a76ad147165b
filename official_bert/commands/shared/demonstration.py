"""Parts of the demos: a folder of their own, commands shown and run, titles."""

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
# A demo deletes files only in a folder that holds this one.
MARKER = "made_by_a_demo"


def prepare_folder(folder: Path, made_files: Sequence[str]) -> None:
    """Create the output folder, or empties one that an earlier demo made.

    Args:
      folder: the demo's; nothing is deleted if it holds anything else.
      made_files: globs of what the demo makes in it.

    Raises:
      UserError: there are files that the demo did not make.
    """
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
    for subfolder in sorted(emptied, reverse=True):  # what is deeper comes first
        subfolder.rmdir()
    (folder / MARKER).write_text("A demo made the files in this folder and deletes them when it starts again.\n")


def demo_data(name: str) -> str:
    """Return the path of a file or folder that the demos read, as short as it can be."""
    path = str(_DEMO_DATA / name)
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


def run_command(script: str, **flag_values: str | int | float | bool) -> None:
    """Print the command of a script as it could be typed, and run it.

    Args:
      script: its name.
      **flag_values: flags in their order; True stands for a flag without a value.

    Raises:
      UserError: it fails; what went wrong is on standard error already.
    """
    flags = [f"--{name}" if value is True else f"--{name}={value}" for name, value in flag_values.items()]
    run_python("-m", "official_bert", script, *flags)


def run_python(*arguments: str) -> None:
    """Print a command of this Python as it could be typed, and run it.

    Raises:
      UserError: it fails; what went wrong is on standard error already.
    """
    print_text("$ " + wrapped(_this_python(), *arguments))
    exit_code = subprocess.run([sys.executable, *arguments], check=False).returncode
    if exit_code:
        raise UserError(f"{' '.join(arguments[:3])} ... failed with exit code {exit_code}; its message is above")


def run_outside_project(program: str) -> None:
    """Print a Python program as it could be typed, and run it in a process that does not find this project.

    Raises:
      UserError: it fails.
    """
    print_text(f"$ {_this_python()} -I -c {shlex.quote(program)}")
    # TensorFlow's notes on this machine's devices would hide the answer.
    process = subprocess.run([sys.executable, "-I", "-c", program], check=False, stderr=subprocess.PIPE, text=True)
    if process.returncode:
        raise UserError(f"it failed with exit code {process.returncode}: {process.stderr}")


def _this_python() -> str:
    """Return the shortest command that calls this Python from here."""
    if shutil.which("python") == sys.executable:
        return "python"
    relative = os.path.relpath(sys.executable)
    return sys.executable if relative.startswith(os.pardir) else relative


def wrapped(*words: str) -> str:
    """Write a command over several lines, so that a shell still takes it as one.

    Args:
      *words: the program and its arguments.

    Returns:
      The words, quoted, with a backslash where a line ends.
    """
    lines = [""]
    for word in map(quoted, words):
        if lines[-1] and len(lines[-1]) + len(word) > LINE_WIDTH:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def quoted(word: str) -> str:
    """Quote an argument for the shell; of a flag only its value: --text='the [MASK] .'."""
    name, equals, value = word.partition("=")
    return f"{name}={shlex.quote(value)}" if equals else shlex.quote(word)


def print_title(text: str) -> None:
    """Write the title of a step."""
    print_text(f"\n== {text}")


def print_text(text: str) -> None:
    """Write to standard output, before the next command writes anything."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
