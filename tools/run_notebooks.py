"""Run the notebooks from top to bottom and save their outputs; `make notebooks`.

Each runs in a copy of its folder, without files of other runs, as after a fresh clone. Needs the extras "notebooks"
and "serve".

python tools/run_notebooks.py                                       # all
python tools/run_notebooks.py notebooks/2_classification.ipynb      # one
"""

import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import nbclient
import nbformat

REPOSITORY = Path(__file__).resolve().parent.parent
SECONDS_A_CELL = 600
# TensorFlow's log lines about the machine, which differ between machines, and progress bars.
_NOTE = re.compile(
    r"WARNING: All log messages before absl|[IWE]\d{4} [\d:.]+ |To enable the following instructions|"
    r"[\w ]+: +(\d+%\||\d+ [\w ]+\[\d\d:)"
)


def main() -> None:
    """Run the notebooks given as arguments, or all."""
    folder = REPOSITORY / "notebooks"
    for path in map(Path, sys.argv[1:] or sorted(folder.glob("*.ipynb"))):
        began = time.monotonic()
        notebook = execute(path)
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
        sys.stdout.write(f"{path.name}: {time.monotonic() - began:.0f} s, {path.stat().st_size / 1000:.0f} KB\n")


def execute(path: Path, output: Path | None = None) -> nbformat.NotebookNode:
    """Run a notebook in a new kernel and a new folder.

    Args:
      path: the notebook, which is not changed.
      output: replaces its folder `output`, with the files of earlier notebooks; None starts without.

    Returns:
      The notebook with outputs, without times and TensorFlow's log lines about the machine.

    Raises:
      CellExecutionError: a cell raises.
    """
    with tempfile.TemporaryDirectory() as clone:
        folder = Path(clone, "notebooks")
        shutil.copytree(path.parent, folder, ignore=shutil.ignore_patterns("output", "__pycache__", ".*"))
        Path(clone, "data").symlink_to(REPOSITORY / "data")
        if output:
            (folder / "output").symlink_to(output)
        notebook = nbformat.read(path, as_version=4)
        client = nbclient.NotebookClient(
            notebook,
            timeout=SECONDS_A_CELL,
            startup_timeout=SECONDS_A_CELL,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(folder)}},
        )
        paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
        client.execute(env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(without_notes, cell.outputs) if output]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def without_notes(output: nbformat.NotebookNode) -> nbformat.NotebookNode | None:
    """Remove TensorFlow's log lines and progress bars from an output; return None if nothing else is left."""
    if output.output_type != "stream":
        return output
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in output.text.split("\n")]
    text = "\n".join(line for line in lines if not _NOTE.match(line))
    return nbformat.from_dict({**output, "text": text}) if text.strip() else None


if __name__ == "__main__":
    main()
