"""The attention weights of a text, as an HTML page, as JSON and, like vectors, as images (with the extra "plots").

`inference/attention_reader.py` computes the weights.
"""

import base64
import dataclasses
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
from absl import logging

from official_bert.support.errors import require
from official_bert.visualization.report_page import filled

_TEMPLATE = "attention.html"
_LARGEST_UINT16 = 65535  # an attention weight of 1 in the page
_MOST_BYTES = 7 << 20  # of the weights in a page, which has 10 MB then

# L: layers, N: heads, S: wordpieces, W: words, [CLS] and [SEP] included.
_INCHES_OF_TOKEN = 0.22
_FEWEST_INCHES = 4.0
_INCHES_OF_HEAD = 0.8
_DOTS_PER_INCH = 100
_MOST_DOTS = 10000  # maximum height or width of an image, in pixels
_GAP = 0.1  # between the heads of the overview, as a fraction of their width
_COLORS = "Blues"


@dataclasses.dataclass(frozen=True)
class Attributions:
    """The contribution of each wordpiece to a prediction; positive numbers speak for it, negative ones against it."""

    prediction: str  # the predicted label, number or answer
    gradient_times_input: np.ndarray  # float32 [S], gradient of the prediction's score times the word embedding
    # float32 [S], gradients averaged between the text and the same number of [MASK], times the difference of the
    # embeddings. They sum to the difference of the scores of both texts. Sources: Simonyan et al., "Deep Inside
    # Convolutional Networks" (2014); Sundararajan et al., "Axiomatic Attribution for Deep Networks" (2017),
    # equation 3
    integrated_gradients: np.ndarray

    def as_json(self) -> dict[str, Any]:
        """Return the content as JSON values."""
        return {
            "prediction": self.prediction,
            "gradient_times_input": self.gradient_times_input.tolist(),
            "integrated_gradients": self.integrated_gradients.tolist(),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionView:
    """The attention of an encoder's heads over a text."""

    tokens: Sequence[str]  # the S wordpieces, including [CLS] and [SEP]
    segment_ids: Sequence[int]  # segment of each wordpiece, 0 for the first text and 1 for the second
    words: Sequence[str]  # the W words, as they appear in the text
    word_indices: Sequence[int]  # index of each wordpiece's word; never decreases
    attention: np.ndarray  # float32 [L, N, S, S], the attention from each wordpiece to every other; each row sums to 1
    # for each wordpiece, the most likely wordpieces and their probabilities when it is masked; None for [CLS] and
    # [SEP]. None if the checkpoint has no masked-LM head
    predictions: Sequence[Sequence[tuple[str, float]] | None] | None
    notes: Sequence[str] = ()  # remarks for the reader, for example that the text was truncated
    # of the prediction of a classifier, of question answering or of a tagger; None for other models
    attributions: Attributions | None = None

    @property
    def word_segment_ids(self) -> list[int]:
        """Segment of each word, 0 for the first text and 1 for the second."""
        return [self.segment_ids[first] for first in _first_pieces(self.word_indices)]


def merge_words(attention: np.ndarray, word_indices: Sequence[int]) -> np.ndarray:
    """Merge attention between wordpieces, float [..., S, S], to words, [..., W, W]; rows still sum to 1.

    Attention to a word (columns) is the sum over its wordpieces; attention from a word (rows) is the mean over them.
    With the words `the` and `har ##bour`, rows `[.6 .3 .1]`, `[0 .5 .5]` and `[.2 .6 .2]` become `[.6 .4]` and `[.1
    .9]`. Source: BertViz; Clark et al., "What Does BERT Look At?", section 4.1.
    """
    firsts = _first_pieces(word_indices)
    num_wordpieces = np.bincount(word_indices).astype(attention.dtype)
    to_words = np.add.reduceat(attention, firsts, axis=-1)  # [..., S, W]
    return np.add.reduceat(to_words, firsts, axis=-2) / num_wordpieces[:, np.newaxis]  # [..., W, W]


def _first_pieces(word_indices: Sequence[int]) -> np.ndarray:
    """Return the index of the first wordpiece of each word, int [W]."""
    return np.flatnonzero(np.diff(word_indices, prepend=-1))


def as_json(view: AttentionView, *, merges_words: bool) -> dict[str, Any]:
    """Return the content as JSON values, exactly, on request with `word_attention`, [L, N, W, W]; see `merge_words`."""
    values = {
        "tokens": list(view.tokens),
        "segment_ids": list(view.segment_ids),
        "words": list(view.words),
        "word_indices": list(view.word_indices),
        "attention": view.attention.tolist(),
        "predictions": view.predictions,
        "notes": list(view.notes),
    }
    if view.attributions:
        values["attributions"] = view.attributions.as_json()
    if merges_words:
        values["word_attention"] = merge_words(view.attention, view.word_indices).tolist()
    return values


def page(view: AttentionView, *, layer: int, head: int, merges_words: bool) -> str:
    """Create an HTML page that needs no other file and no network.

    Attention is rounded to steps of 1/65535; the page shows three decimals. Of long texts, it has only the largest
    weights from each wordpiece, as many as keep it small, and says so. The page's script inserts the input text as
    plain text, so it cannot become markup.
    """
    num_layers, num_heads = view.attention.shape[:2]
    weights, columns, notes = view.attention, None, list(view.notes)
    num_kept = max(_MOST_BYTES // (4 * num_layers * num_heads * len(view.tokens)), 1)
    if 2 * weights.size > _MOST_BYTES:
        largest = [np.argpartition(-layer, num_kept - 1)[..., :num_kept].astype("<u2") for layer in weights]
        columns = np.stack(largest)  # [L, N, S, kept]
        weights = np.stack(list(map(np.take_along_axis, weights, columns, [-1] * num_layers)))
        notes.append(
            f"This page has the {num_kept} largest weights from each wordpiece in each head and shows the others as 0; "
            "give a smaller max_seq_length for a page with all of them, or format=json."
        )
        logging.warning(notes[-1])
    data = {
        "numLayers": num_layers,
        "numHeads": num_heads,
        "layer": layer,
        "head": head,
        "mergesWords": merges_words,
        "tokens": {"texts": list(view.tokens), "segments": list(view.segment_ids)},
        "words": {"texts": list(view.words), "segments": view.word_segment_ids},
        "wordIndices": list(view.word_indices),
        "attention": _base64(np.rint(weights * _LARGEST_UINT16)),
        "columns": None if columns is None else _base64(columns),
        "numKept": num_kept,
        "largest": _LARGEST_UINT16,
        "predictions": view.predictions,
        "notes": notes,
        "attributions": view.attributions and view.attributions.as_json(),
    }
    return filled(_TEMPLATE, data)


def _base64(numbers: np.ndarray) -> str:
    return base64.b64encode(numbers.astype("<u2").tobytes()).decode("ascii")


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
