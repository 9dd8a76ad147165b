"""Tables of numbers as text: aligned for a terminal, tab-separated, or Markdown."""

import re
import statistics
from collections.abc import Iterable, Sequence

from official_bert.support import writing

_ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})
_NUMBER_OR_NOTHING = re.compile(r"(-?[\d.]+(e-?\d+)?)?")


def format_table(rows: Sequence[Sequence[str]], style: str = "aligned") -> str:
    r"""Format a table; numeric columns are right-aligned.

    Args:
      rows: the header and the other rows, all of the same length.
      style: "aligned", "tsv" or "markdown".

    Returns:
      Lines that end in `\n`.
    """
    if style == "tsv":
        return "".join("\t".join(row) + "\n" for row in rows)
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    sides = [">" if all(map(_NUMBER_OR_NOTHING.fullmatch, column[1:])) else "<" for column in columns]
    lines = [[f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)] for row in rows]
    if style == "markdown":
        rules = ("-" * (width - 1) + (":" if side == ">" else "-") for side, width in zip(sides, widths, strict=True))
        lines.insert(1, list(rules))
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return "".join("  ".join(line).rstrip() + "\n" for line in lines)


def write_rows(path: str, rows: Iterable[Iterable[str]]) -> None:
    r"""Write a tab-separated file; tabs and line ends within a cell are escaped as `\t`, `\n` and `\r`."""
    with writing.atomic_write(path) as sink:
        sink.writelines("\t".join(cell.translate(_ESCAPES) for cell in row) + "\n" for row in rows)


def mean_and_deviation(values: Sequence[float], decimals: int) -> tuple[str, str]:
    """Return the mean and the sample standard deviation (n - 1) as table cells, empty if there are too few values."""
    mean = f"{statistics.mean(values):.{decimals}f}" if values else ""
    deviation = f"{statistics.stdev(values):.{decimals}f}" if len(values) > 1 else ""
    return mean, deviation
