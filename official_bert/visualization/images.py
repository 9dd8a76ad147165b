"""Images of attention weights and of vectors; needs the extra "plots"."""

from collections.abc import Sequence
from typing import IO

import numpy as np

from official_bert.support.errors import require
from official_bert.visualization.attention import AttentionView, merge_words

_INCHES_OF_TOKEN = 0.22
_FEWEST_INCHES = 4.0
_INCHES_OF_HEAD = 0.8
_DOTS_PER_INCH = 100
_MOST_DOTS = 10000  # maximum height or width of an image, in pixels
_GAP = 0.1  # between the heads of the overview, as a fraction of their width
_COLORS = "Blues"
_SHOWN_CHARACTERS = 50  # per text


def draw_head(view: AttentionView, sink: IO[bytes], *, layer: int, head: int, merges_words: bool) -> None:
    """Draw the attention of a head as a heat map, as PNG."""
    weights, texts = view.attention[layer, head], view.tokens
    if merges_words:
        weights, texts = merge_words(weights, view.word_indices), view.words
    inches = max(_FEWEST_INCHES, _INCHES_OF_TOKEN * len(texts))
    figure, axes = _figure(inches, inches)
    image = axes.imshow(weights, cmap=_COLORS, vmin=0)
    axes.set_title(f"layer {layer}, head {head}: from each row to each column")
    _label(axes.xaxis, np.arange(len(texts)), texts, rotation=90)
    _label(axes.yaxis, np.arange(len(texts)), texts)
    figure.colorbar(image, shrink=0.5)
    _save(figure, sink)


def draw_overview(view: AttentionView, sink: IO[bytes], *, merges_words: bool) -> None:
    """Draw the attention of all heads, a row for each layer, as PNG; colors show the square root, as in the page."""
    weights = merge_words(view.attention, view.word_indices) if merges_words else view.attention
    num_layers, num_heads, length, _ = weights.shape
    gap = max(1, round(_GAP * length))
    step = length + gap
    tiles = np.pad(np.sqrt(weights), [(0, 0), (0, 0), (0, gap), (0, gap)], constant_values=np.nan)
    tiles = tiles.transpose(0, 2, 1, 3).reshape(num_layers * step, num_heads * step)[:-gap, :-gap]
    figure, axes = _figure(_INCHES_OF_HEAD * num_heads + 1, _INCHES_OF_HEAD * num_layers + 1)
    axes.imshow(tiles, cmap=_COLORS, vmin=0, vmax=1, interpolation="nearest")
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    for axis, count in ((axes.xaxis, num_heads), (axes.yaxis, num_layers)):
        _label(axis, step * np.arange(count) + (length - 1) / 2, [str(number) for number in range(count)])
    _save(figure, sink)


def _figure(width: float, height: float):
    """Return a figure of a size in inches, and its axes."""
    require("matplotlib", extra="plots")
    from matplotlib.figure import Figure

    figure = Figure((width, height), layout="constrained")
    return figure, figure.add_subplot()


def _label(axis, places: np.ndarray, texts: Sequence[str], rotation: int = 0) -> None:
    for label in axis.set_ticks(places, texts, rotation=rotation):
        label.label1.set_parse_math(False)  # "$" is literal text
    axis.set_tick_params(length=0)


def _save(figure, sink: IO[bytes]) -> None:
    dots_per_inch = min(_DOTS_PER_INCH, _MOST_DOTS / max(figure.get_size_inches()))
    figure.savefig(sink, format="png", dpi=dots_per_inch)


def draw(points: np.ndarray, shares: np.ndarray, texts: Sequence[str], title: str, sink: IO[bytes]) -> None:
    """Draw a point for each text, labelled with its number and first characters, as PNG.

    Args:
      points: float [N, 2], the first two principal components.
      shares: float [2], fraction of the variance that each component explains.
    """
    figure, axes = _figure(9, 6)
    axes.scatter(points[:, 0], points[:, 1])
    for number, (text, point) in enumerate(zip(texts, points, strict=True), start=1):
        shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
        is_left = point[0] < np.mean(points[:, 0])
        axes.annotate(
            f"{number}  {shown}".replace("$", r"\$"),
            point,
            xytext=(6 if is_left else -6, 4),
            textcoords="offset points",
            ha="left" if is_left else "right",
        )
    axes.set_xlabel(f"first principal component ({shares[0]:.0%} of the variance)")
    axes.set_ylabel(f"second principal component ({shares[1]:.0%})")
    axes.set_title(title)
    figure.savefig(sink, format="png", dpi=120)
