"""Image of text vectors projected to two dimensions; needs the extra "plots"."""

from collections.abc import Sequence
from typing import IO

import numpy as np

_SHOWN_CHARACTERS = 50  # per text


def draw(points: np.ndarray, shares: np.ndarray, texts: Sequence[str], title: str, sink: IO[bytes]) -> None:
    """Draw a point for each text, labelled with its number and first characters, as PNG.

    Args:
      points: float [N, 2], the first two principal components.
      shares: float [2], fraction of the variance that each component explains.
      texts: the N texts.
      title: title of the image.
      sink: binary file to write to.
    """
    from matplotlib.figure import Figure  # needs an extra

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
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
