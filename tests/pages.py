"""Finds and runs the commands and Python sessions of Markdown pages, and compares the output with the page.

A page is run block by block, as if pasted into a shell:

- a block with lines that begin with `$ ` is a session: each command is followed by its output;
- a ```sh block without them is a script, whose output is not shown;
- a ```python block with `>>> ` is a Python session, one without is a program;
- any other block, or one that cannot be run, has `<!-- not run: REASON -->` in the line above it.
"""

import difflib
import doctest
import os
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
SKIPPED = "..."
_SEPARATOR = "\x1eend of an example\x1e"

# Removed from both sides before comparison: the time of a log line, the time left, which runs of less than a second
# lack, and every figure.
_TIMES = re.compile(r"^\d\d:\d\d:\d\d |\d+:\d\d:\d\d left, ")
_FIGURE = re.compile(r"-?\b\d+(,\d{3})*(\.\d+)?(e[+-]?\d+)?")
# Lines whose presence depends on the machine and its speed.
_CHANCE_LINES = re.compile(
    r"(INFO +(?!training| )[\w ]+: +\d+% of )"  # progress, every ten seconds
    r"|(no GPU found|\d GPUs? \(.+\)); \d+ CPU core"
    r"|(WARNING: All log messages before absl|[IWE]\d{4} [\d:.]+ |To enable the following instructions)"  # TensorFlow's
)
_COMMAND = re.compile(r"(?:official-bert|python)[ \n]+(\w+?)(?:\.py)?(?=[ \n]|$)")
_ENDS = re.compile(r"\n(?:\||&&|;|&|2?>+.*)(?:\n|$)")


class Block(NamedTuple):
    line: int  # number of its first line in the page, from 1
    language: str  # "" if the fence has none
    text: str
    not_run: str | None  # the reason given in the page, if any


class Step(NamedTuple):
    """A command or a Python block, and its output in the page; None if not shown."""

    line: int
    language: str  # "sh" or "python"
    text: str
    shown: list[str] | None


def find_blocks(page: str) -> list[Block]:
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
    """Return True if a shell would run the command instead of waiting for another line."""
    try:
        shlex.split(command)
    except ValueError:
        return False
    return not command.endswith("\\")


def find_commands(step: Step) -> list[list[str]]:
    """Return the name and the arguments of each of the project's commands in a step."""
    found = []
    for line in re.split(r"(?<!\\)\n", step.text) if step.language == "sh" else ():
        words = shlex.split(line.replace("\\\n", " "), comments=True) if _COMMAND.search(line) else []
        for command in re.split(_ENDS, "\n".join(words)):
            if match := _COMMAND.search(command):
                found.append([match[1], *command[match.end() :].split("\n")[1:]])
    return found


def run_step(step: Step, folder: str, environment: dict[str, str], timeout: float) -> list[str]:
    """Return what differs from the page, or the exit code and the last lines of a step that fails."""
    command, examples = ["bash", "-euo", "pipefail", "-c", step.text], []
    if step.language == "python":
        program = step.text
        if step.shown is not None:
            examples = doctest.DocTestParser().get_examples(step.text)
            program = (
                f"names = {{}}\nfor source in {[example.source for example in examples]!r}:\n"
                f"    exec(compile(source, '>>>', 'single'), names)\n    print({_SEPARATOR!r}, flush=True)\n"
            )
        command = ["python", "-c", program]
    process = subprocess.run(
        command, cwd=folder, env=environment, timeout=timeout, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE if examples else subprocess.STDOUT,
    )  # fmt: skip
    if process.returncode:
        output = (process.stdout + (process.stderr or "")).splitlines()
        return [f"exit code {process.returncode}", *output[-20:]]
    if not examples:
        return [] if step.shown is None else compare(step.shown, process.stdout.splitlines())
    both = zip(examples, process.stdout.split(_SEPARATOR + "\n"), strict=False)
    return [each for wanted, output in both for each in compare(wanted.want.splitlines(), output.splitlines())]


def compare(shown: list[str], printed: list[str]) -> list[str]:
    """Compare lines: figures and times may differ, and a line `...` matches any number of lines.

    Within a line `...` matches anything.
    """
    shapes = [shape(line) for line in printed if not _CHANCE_LINES.search(line)]
    patterns = ("(.*\n)*" if line == SKIPPED else _pattern_of(line) for line in shown)
    if re.fullmatch("".join(patterns), "".join(f"{line}\n" for line in shapes)):
        return []
    return [line for line in difflib.ndiff(list(map(shape, shown)), shapes) if not line.startswith("?")]


def _pattern_of(shown: str) -> str:
    return ".*".join(re.escape(part) for part in shape(shown).split(SKIPPED)) + "\n"


# Output that depends on the weights, which are random in tests: words filled in by a model, labels and answers that it
# chooses, texts picked at random as examples. Each pattern is replaced on both sides.
_VARYING = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(INFO +(example|masked): ).*", r"\1WORDS"),
        (r"(INFO +second part: ).*", r"\1WHICH"),
        (r"^  \S+ +(0\.\d+)$", r"  WORD \1"),  # fill_mask
        (r"^[^\t]+(\t\d+\t\d+)$", r"ANSWER\1"),  # predict
        (r"^(\[?)\[b'.*'\]( |$)", r"\1WORDS\2"),  # the bytes of an export's answer
        (r"\b(positive|negative|good|bad)\b", "LABEL"),
        (r"\b([BI]-(PER|LOC|ORG|MISC)|O)\b", "TAG"),
        (r"^\[((Entity)?\(.*\))?\]$", "ENTITIES"),
        (r"\b(label=|labels? |\{)'(0|1)'", r"\1'LABEL'"),
    )
)


def shape(line: str) -> str:
    """Normalize a line: remove the time of day, figures, column widths and a model's choices."""
    line = _TIMES.sub("", line)
    for pattern, replacement in _VARYING:
        line = pattern.sub(replacement, line)
    return " ".join(_FIGURE.sub("0", line).split()).replace(" ]", "]")  # NumPy pads short figures with spaces


def reader_environment(folder: str) -> dict[str, str]:
    """Return the environment of a reader who installed the project in `folder` and activated its Python."""
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    # Without settings of the test process, and without TensorFlow's notes about the machine.
    return {**os.environ, "PATH": path, "PYTHONPATH": folder, "TF_CPP_MIN_LOG_LEVEL": "2"}
