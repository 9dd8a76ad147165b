"""`metrics.jsonl`, a run's record of losses and scores: one line per split and step.

`training/monitoring.py` writes it, `official-bert plot_metrics` draws it.
"""

import json
import math
from typing import NamedTuple

from official_bert.support import files

METRICS_FILE = "metrics.jsonl"
_MAX_STEP = 10**12  # as for flags that count steps


class Series(NamedTuple):
    """A metric over the steps of a run."""

    steps: list[int]  # increasing
    values: list[float]  # finite, one for each step


class Metrics(NamedTuple):
    """The contents of a `metrics.jsonl`."""

    # split ("train" or "eval") and name to the values, in order of first appearance
    series: dict[tuple[str, str], Series]
    num_damaged: int  # damaged lines, such as the last one of a killed run
    num_not_finite: int  # values that are NaN or infinite, such as the losses of a run that diverged


def parse_line(line: bytes) -> dict | None:
    """Parse a line to a dict of `split`, `step` and numbers; None if damaged, like the last line of a killed run."""
    try:
        scalars = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or nested too deeply
        return None
    if not line.endswith(b"\n") or not isinstance(scalars, dict):
        return None
    split, step = scalars.get("split"), scalars.get("step")
    is_whole = isinstance(split, str) and type(step) is int and 0 <= step <= _MAX_STEP
    return scalars if is_whole and all(_is_number(scalars[name]) for name in scalars.keys() - {"split"}) else None


def read_metrics(path: str) -> Metrics:
    """Read a `metrics.jsonl`.

    If a step has two lines of a split, the last one counts. Values that are not finite are omitted.
    """
    points: dict[tuple[str, str], dict[int, float]] = {}
    num_damaged = num_not_finite = 0
    with files.open_file(path, "rb") as source:
        for line in source:
            scalars = parse_line(line)
            if scalars is None:
                num_damaged += 1
                continue
            split, step = scalars.pop("split"), scalars.pop("step")
            for name, value in scalars.items():
                if math.isfinite(value):
                    points.setdefault((split, name), {})[step] = value
                else:
                    num_not_finite += 1
    series = {}
    for key, values in points.items():
        steps = sorted(values)
        series[key] = Series(steps, [float(values[step]) for step in steps])
    return Metrics(series, num_damaged, num_not_finite)


def _is_number(value: object) -> bool:
    """Return True for a number that fits a float, including NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < 2**1023
