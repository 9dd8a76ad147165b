"""Commands and Python sessions of Markdown pages: found, run, and compared with what the page shows.

A page is run block by block, as a reader would who pastes one after the other into a shell:

- a block with lines that begin with `$ ` is a session: each command is followed by what it prints;
- a ```sh block without them is a script, of which nothing is shown;
- a ```python block with `>>> ` is a Python session, one without is a program;
- any other block, or one that cannot be run, has `<!-- not run: REASON -->` in the line above it.
"""

import difflib
import doctest
import itertools
import os
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
SKIPPED = "..."
_SEPARATOR = "\x1eend of an example\x1e"

# Both sides lose these before they are compared: the time of a log line, the time left, which a run of less than a
# second does not know, and every figure.
_TIMES = re.compile(r"^\d\d:\d\d:\d\d |\d+:\d\d:\d\d left, ")
_FIGURE = re.compile(r"-?\b\d+(,\d{3})*(\.\d+)?(e[+-]?\d+)?")
# Lines that come or do not come, by how fast the machine is and how it is built.
_CHANCE_LINES = re.compile(
    r"(INFO +(?!training| )[\w ]+: +\d+% of )"  # progress, every ten seconds
    r"|(WARNING: All log messages before absl|[IWE]\d{4} [\d:.]+ |To enable the following instructions)"  # TensorFlow's
)


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int  # of its first line in the page, counted from 1
    language: str  # "" if the fence names none
    text: str
    not_run: str | None  # the reason, where the page gives one


class Step(NamedTuple):
    """A command or a Python block, and what the page shows of its output; None if it shows nothing."""

    line: int
    language: str  # "sh" or "python"
    text: str
    shown: list[str] | None


def find_blocks(page: str) -> list[Block]:
    """Finds the fenced blocks of a page.

    Raises:
      ValueError: the last fence is not closed, or a mark does not stand above a block.
    """
    blocks, mark, lines = [], None, iter(enumerate(page.splitlines(), start=1))
    for number, line in lines:
        if match := NOT_RUN.fullmatch(line):
            mark = match[1]
        elif line.startswith("```"):
            content = []
            for _, inner in lines:
                if inner == "```":
                    break
                content.append(inner)
            else:
                raise ValueError(f"line {number}: the block has no end")
            blocks.append(Block(number + 1, line.removeprefix("```"), "\n".join(content), mark))
            mark = None
        elif mark:
            raise ValueError(f"line {number}: '<!-- not run: {mark} -->' stands above no block")
    return blocks


def find_steps(block: Block) -> list[Step]:
    """Takes a block apart into what is to be run, in order.

    Raises:
      ValueError: nobody could say how to run it.
    """
    lines = block.text.split("\n")
    if block.language == "python":
        shown = [] if any(line.startswith(">>> ") for line in lines) else None
        return [Step(block.line, "python", block.text, shown)]
    if block.language in ("", "sh") and lines[0].startswith("$ "):
        return list(_session(block.line, lines))
    if block.language == "sh":
        return [Step(block.line, "sh", block.text, None)]
    raise ValueError(f"line {block.line}: neither a command nor marked '<!-- not run: REASON -->'")


def _session(number: int, lines: list[str]):
    position = 0
    while position < len(lines):
        start, command = position, lines[position].removeprefix("$ ")
        while not _is_whole(command):
            position += 1
            command += "\n" + lines[position]
        position += 1
        shown = []
        while position < len(lines) and not lines[position].startswith("$ "):
            shown.append(lines[position])
            position += 1
        yield Step(number + start, "sh", command, shown)


def _is_whole(command: str) -> bool:
    """Whether a shell would run it, rather than wait for another line."""
    try:
        shlex.split(command)
    except ValueError:
        return False
    return not command.endswith("\\")


def run_step(step: Step, folder: str, environment: dict[str, str], timeout: float) -> list[str]:
    """Runs a step in a folder and compares what it prints with what is shown.

    Returns:
      What is wrong, a line each; nothing if all is well.
    """
    if step.language == "sh":
        return _run_command(step, folder, environment, timeout)
    if step.shown is None:
        process = _run([sys.executable, "-c", step.text], folder, environment, timeout)
        return _failure(process)
    examples = doctest.DocTestParser().get_examples(step.text)
    sources = [example.source for example in examples]
    program = (
        f"names = {{}}\nfor source in {sources!r}:\n"
        f"    exec(compile(source, '>>>', 'single'), names)\n    print({_SEPARATOR!r}, flush=True)\n"
    )
    process = _run([sys.executable, "-c", program], folder, environment, timeout, stderr=subprocess.PIPE)
    if process.returncode:
        return _failure(process)
    printed = process.stdout.split(_SEPARATOR + "\n")
    return [
        complaint
        for example, output in zip(examples, printed, strict=False)
        for complaint in compare(example.want.splitlines(), output.splitlines())
    ]


def _run_command(step: Step, folder: str, environment: dict[str, str], timeout: float) -> list[str]:
    process = _run(["bash", "-euo", "pipefail", "-c", step.text], folder, environment, timeout)
    if process.returncode or step.shown is None:
        return _failure(process)
    return compare(step.shown, process.stdout.splitlines())


def _run(command, folder, environment, timeout, stderr=subprocess.STDOUT) -> subprocess.CompletedProcess:
    return subprocess.run(
        command, cwd=folder, env=environment, timeout=timeout, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
    )  # fmt: skip


def _failure(process: subprocess.CompletedProcess) -> list[str]:
    if not process.returncode:
        return []
    output = (process.stdout + (process.stderr or "")).splitlines()
    return [f"exit code {process.returncode}", *output[-20:]]


def compare(shown: list[str], printed: list[str]) -> list[str]:
    """Compares the shape of lines: figures and times may differ, a line `...` stands for any number of lines.

    Within a line `...` stands for anything.

    Args:
      shown: what the page shows.
      printed: what the command printed.

    Returns:
      A diff of the lines that are shown, -, with those that were printed, +; nothing if they agree.
    """
    printed = [line for line in printed if not _CHANCE_LINES.search(line)]
    parts = [[]]
    for line in shown:
        if line == SKIPPED:
            parts.append([])
        else:
            parts[-1].append(line)
    if _matches(parts, printed):
        return []
    printed_shapes = [shape(line) for line in printed]
    # A line that agrees but for its dots is written as it was printed, so that the diff pairs the two.
    shown_shapes = [
        next((other for other in printed_shapes if line != SKIPPED and _agrees(line, other)), shape(line))
        for line in shown
    ]
    return _shortened([line for line in difflib.ndiff(shown_shapes, printed_shapes) if not line.startswith("?")])


def _shortened(diff: list[str]) -> list[str]:
    """Leaves out the middle of long runs of lines that the page does not show: most of them stand where it has dots."""
    lines = []
    for is_extra, run in itertools.groupby(diff, lambda line: line.startswith("+ ")):
        run = list(run)
        middle = [f"+ ({len(run) - 4} more lines)"] if is_extra and len(run) > 6 else run[2:-2]
        lines += [*run[:2], *middle, *run[2:][-2:]]
    return lines


def _matches(parts: list[list[str]], printed: list[str]) -> bool:
    """Whether the parts occur one after the other, the first at the start and the last at the end."""
    shapes = [shape(line) for line in printed]
    first, *others = parts
    if not others:
        return _agree(first, shapes)
    *middle, last = others
    if len(first) + len(last) > len(shapes) or not _agree(first, shapes[: len(first)]):
        return False
    end = len(shapes) - len(last)
    if not _agree(last, shapes[end:]):
        return False
    position = len(first)
    for part in middle:
        starts = (start for start in range(position, end - len(part) + 1) if _agree(part, shapes[start:][: len(part)]))
        position = next(starts, end) + len(part)
        if position > end:
            return False
    return True


def _agree(shown: list[str], shapes: list[str]) -> bool:
    return len(shown) == len(shapes) and all(map(_agrees, shown, shapes))


def _agrees(shown: str, printed_shape: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in shape(shown).split(SKIPPED))
    return re.fullmatch(pattern, printed_shape) is not None


# What depends on the weights, which are random ones in a test: words that a model fills in, labels and answers that it
# chooses, texts that chance picks as an example. Each pattern becomes its replacement, on both sides.
_VARYING = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(INFO +(example|masked): ).*", r"\1WORDS"),
        (r"(INFO +second part: ).*", r"\1WHICH"),
        (r"^  \S+ +(0\.\d+)$", r"  WORD \1"),  # fill_mask
        (r"^(    \d+  0\.\d+ +)\d+-\d+  .*", r"\1PLACE ANSWER"),  # answer
        (r"^(\[?)\[b'.*'\]( |$)", r"\1WORDS\2"),  # the bytes of an export's answer
        (r"\b(positive|negative|good|bad)\b", "LABEL"),
        (r"\b([BI]-(PER|LOC|ORG|MISC)|O)\b", "TAG"),
        (r"^\[((Entity)?\(.*\))?\]$", "ENTITIES"),
        (r"\b(label=|labels? |\{)'(0|1)'", r"\1'LABEL'"),
    )
)


def shape(line: str) -> str:
    """Writes a line without what may differ: the time of day, figures, the widths of columns, a model's choices."""
    line = _TIMES.sub("", line)
    for pattern, replacement in _VARYING:
        line = pattern.sub(replacement, line)
    return " ".join(_FIGURE.sub("0", line).split()).replace(" ]", "]")  # NumPy fills a short figure up with spaces


def reader_environment(folder: str) -> dict[str, str]:
    """The environment of a reader who has installed the project in `folder` and activated its Python."""
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    # Without the settings of the tests' own process, and without TensorFlow's notes on the machine.
    return {**os.environ, "PATH": path, "PYTHONPATH": folder, "TF_CPP_MIN_LOG_LEVEL": "2"}
