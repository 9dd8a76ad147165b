"""Image of the training curves of runs; needs the extra "plots"."""

import itertools
import math
from collections.abc import Sequence
from typing import IO

from official_bert.support.errors import require
from official_bert.visualization.curves import Run, panels, smoothed

_NUM_COLUMNS = 3
_PANEL_INCHES = (4.6, 3.1)
_LEGEND_ROW_INCHES = 0.2
_CHARACTERS_PER_INCH = 13  # in the legend
_DOTS_PER_INCH = 100
_MOST_DOTS = 40  # maximum number of points of a curve with markers
# The palette of Okabe and Ito, as in the page; further runs have dashed lines.
_COLORS = ("#0072b2", "#c25500", "#00805e", "#b0578a", "#b07d00", "#2f9bd8", "#1b2430")
_DASHES = ("-", (0, (7, 3)), (0, (2, 3)), (0, (9, 3, 2, 3)))


def draw(runs: Sequence[Run], sink: IO[bytes], *, smoothing: float) -> None:
    """Draw all metrics of runs as PNG, smoothed, with the raw values in a lighter shade."""
    require("matplotlib", extra="plots")
    from matplotlib.figure import Figure

    shown = panels(runs)
    num_columns = min(_NUM_COLUMNS, len(shown))
    num_rows = math.ceil(len(shown) / num_columns)
    width = _PANEL_INCHES[0] * num_columns
    longest = max(len(run.name) for run in runs)
    legend_columns = max(1, min(len(runs), int(width * _CHARACTERS_PER_INCH / (longest + 8))))
    legend_height = _LEGEND_ROW_INCHES * math.ceil(len(runs) / legend_columns)
    figure = Figure((width, _PANEL_INCHES[1] * num_rows + legend_height), layout="constrained")
    all_axes = figure.subplots(num_rows, num_columns, squeeze=False).flat
    for panel, axes in itertools.zip_longest(shown, all_axes):
        if panel is None:
            axes.set_axis_off()
            continue
        axes.set_title(panel.title, fontsize="medium")
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        for number, run in enumerate(runs):
            if (panel.split, panel.name) in run.series:
                series = run.series[panel.split, panel.name]
                _draw_curve(axes, number, *series, smoothing if panel.is_smoothed else 0)
    handles = [_line([], [], number, label=run.name) for number, run in enumerate(runs)]
    legend = figure.legend(handles=handles, loc="outside lower left", ncols=legend_columns, fontsize="small")
    for text in legend.get_texts():
        text.set_parse_math(False)  # "$" is literal text
    figure.savefig(sink, format="png", dpi=_DOTS_PER_INCH)


def _draw_curve(axes, number: int, steps: Sequence[int], values: Sequence[float], smoothing: float) -> None:
    marker = "." if len(steps) <= _MOST_DOTS else ""
    if smoothing:
        axes.add_line(_line(steps, values, number, alpha=0.3, linewidth=1, marker=marker))
        values = smoothed(values, smoothing)
    axes.add_line(_line(steps, values, number, marker=marker))
    axes.autoscale_view()


def _line(steps: Sequence[int], values: Sequence[float], number: int, **options):
    from matplotlib.lines import Line2D

    dash = _DASHES[number // len(_COLORS) % len(_DASHES)]
    return Line2D(steps, values, color=_COLORS[number % len(_COLORS)], linestyle=dash, **options)
