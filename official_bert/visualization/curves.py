"""Training curves of runs, as an HTML page.

`support/metrics_file.py` reads the metrics; `curves_image.py` draws the same curves as an image.
"""

import base64
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.support.errors import UserError, format_names
from official_bert.support.metrics_file import Series
from official_bert.visualization.report_page import filled

_TEMPLATE = "curves.html"
# Maximum number of points in a page, 11 MB; beyond that, neighbouring points are averaged.
_MOST_POINTS = 2_000_000

# Metrics of every task, which do not show whether two runs are comparable.
_OF_ALL_TASKS = frozenset(
    (
        "loss",
        "eval_loss",
        "learning_rate",
        "gradient_norm",
        "examples_per_second",
        "tokens_per_second",
        "padding",
        "loss_scale",
        "overflow_steps",
        "skipped_steps",
    )
)
# The order of the panels, by split and suffix of the name; other names come last.
_ORDER = (
    ("train", "loss"),
    ("eval", ""),
    ("eval", "loss"),
    ("train", "learning_rate"),
    ("train", "gradient_norm"),
    ("train", "examples_per_second"),
    ("train", "tokens_per_second"),
    ("train", "padding"),
)
_SPLIT_TITLES = {"train": "training", "eval": "evaluation"}
_TITLES = {
    "learning_rate": "learning rate",
    "gradient_norm": "gradient norm",
    "examples_per_second": "examples per second",
    "tokens_per_second": "tokens per second",
    "padding": "fraction of padding",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """The metrics of a run."""

    name: str  # name in the legend
    folder: str  # the run's folder
    series: Mapping[tuple[str, str], Series]  # values by split and metric name


class Panel(NamedTuple):
    """A plot of one metric."""

    split: str  # "train" or "eval"
    name: str  # name of the metric
    title: str  # title of the plot
    is_loss: bool  # whether a logarithmic scale makes sense
    is_smoothed: bool  # whether to smooth the values, which is useful for values of single batches


def check_comparable(runs: Sequence[Run]) -> None:
    """Check that the metrics of runs can be compared."""
    for first, second in itertools.combinations(runs, 2):
        for split in _SPLIT_TITLES:
            names, others = _own_names(first, split), _own_names(second, split)
            if names and others and not names & others:
                raise UserError(
                    f"{first.folder} and {second.folder} have different metrics: {format_names(sorted(names))} and "
                    f"{format_names(sorted(others))}; draw the runs of each task separately"
                )


def _own_names(run: Run, split: str) -> set[str]:
    return {name for of_split, name in run.series if of_split == split} - _OF_ALL_TASKS


def panels(runs: Sequence[Run]) -> list[Panel]:
    """Return the panels of runs in display order: losses, scores, learning rate, other metrics.

    If the training loss has a single component, the component is left out. So is the evaluation's `loss` beside
    `eval_loss`; they differ only in the weighting of the last batch.
    """
    names = list(dict.fromkeys(key for run in runs for key in run.series))
    losses = [name for split, name in names if split == "train" and name.endswith("_loss")]
    hidden = {("train", losses[0])} if len(losses) == 1 and ("train", "loss") in names else set()
    if ("eval", "eval_loss") in names:
        hidden.add(("eval", "loss"))
    shown = [
        Panel(
            split,
            name,
            title=f"{_SPLIT_TITLES.get(split, split)}: {_title(name)}",
            is_loss=name.endswith("loss"),
            is_smoothed=split == "train" and name != "learning_rate",
        )
        for split, name in names
        if (split, name) not in hidden
    ]
    return sorted(shown, key=_position)  # stable


def _title(name: str) -> str:
    return _TITLES.get(name) or name.removeprefix("eval_").replace("_", " ")


def _position(panel: Panel) -> int:
    kind = "loss" if panel.is_loss else panel.name if panel.split == "train" else ""
    return _ORDER.index((panel.split, kind)) if (panel.split, kind) in _ORDER else len(_ORDER)


def smoothed(values: Sequence[float], smoothing: float) -> np.ndarray:
    """Return the exponential moving average, corrected for the bias towards 0 at the start.

    With `smoothing=.5` the values `4, 1, 1` become `4, (2 * 1 + 4) / 3 = 2, (4 * 1 + 2 * 1 + 4) / 7 = 1.43`.

    Args:
      values: floats [T].

    Returns:
      float64 [T].

    Source: TensorBoard; as in Adam, Kingma and Ba, section 3.
    """
    averages = np.empty(len(values))
    total = weight = 0.0
    for number, value in enumerate(values):
        total = smoothing * total + value
        weight = smoothing * weight + 1.0
        averages[number] = total / weight
    return averages


def page(runs: Sequence[Run], *, smoothing: float, notes: Sequence[str] = ()) -> str:
    """Create an HTML page that needs no other file and no network.

    It contains all points in float32. If there are too many, neighbouring points are averaged, and a note says so.
    """
    notes = list(notes)
    num_points = sum(len(series.steps) for run in runs for series in run.series.values())
    num_averaged = -(-num_points // _MOST_POINTS)
    if num_averaged > 1:
        notes.append(f"The runs have {num_points:,} points; each point shown is the mean of {num_averaged} neighbours.")
    steps: dict[str, int] = {}  # most curves of a run have the same steps

    def curve(series: Series | None) -> dict[str, str | int] | None:
        if series is None:
            return None
        of_points, values = _averaged(series, num_averaged)
        return {"steps": steps.setdefault(_base64(of_points, "<f8"), len(steps)), "values": _base64(values, "<f4")}

    shown = [
        {
            "title": panel.title,
            "isLoss": panel.is_loss,
            "isSmoothed": panel.is_smoothed,
            "curves": [curve(run.series.get((panel.split, panel.name))) for run in runs],
        }
        for panel in panels(runs)
    ]
    data = {
        "runs": [{"name": run.name, "folder": run.folder} for run in runs],
        "panels": shown,
        "steps": list(steps),
        "smoothing": smoothing,
        "notes": notes,
    }
    return filled(_TEMPLATE, data)


def _averaged(series: Series, num_averaged: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the means of groups of `num_averaged` neighbouring points, each at the step of its last point."""
    starts = np.arange(0, len(series.steps), num_averaged)
    ends = np.append(starts[1:], len(series.steps))
    return np.array(series.steps)[ends - 1], np.add.reduceat(np.array(series.values), starts) / (ends - starts)


def _base64(numbers: np.ndarray, kind: str) -> str:
    """Encode floats as little-endian bytes, clipped to the range of the type."""
    largest = np.finfo(kind).max
    return base64.b64encode(np.clip(numbers, -largest, largest).astype(kind).tobytes()).decode("ascii")
