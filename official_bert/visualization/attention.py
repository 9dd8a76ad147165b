"""The attention weights of a text, as an HTML page and as JSON.

`inference/attention_reader.py` computes the weights; `images.py` draws them.
"""

import base64
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from official_bert.visualization.report_page import filled

_TEMPLATE = "attention.html"
_LARGEST_UINT16 = 65535  # an attention weight of 1 in the page

# L: layers, N: heads, S: wordpieces, W: words, [CLS] and [SEP] included.


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
    """Merge attention between wordpieces into attention between words; rows still sum to 1.

    Attention to a word is the sum over its wordpieces; attention from a word is the mean over them. With the words
    `the` and `har ##bour`, rows `[.6 .3 .1]`, `[0 .5 .5]` and `[.2 .6 .2]` become `[.6 .4]` and `[.1 .9]`.

    Args:
      attention: float [..., S, S], from wordpieces (rows) to wordpieces (columns).

    Returns:
      float [..., W, W].

    Source: BertViz; Clark et al., "What Does BERT Look At?", section 4.1.
    """
    firsts = _first_pieces(word_indices)
    num_wordpieces = np.bincount(word_indices).astype(attention.dtype)
    to_words = np.add.reduceat(attention, firsts, axis=-1)  # [..., S, W]
    return np.add.reduceat(to_words, firsts, axis=-2) / num_wordpieces[:, np.newaxis]  # [..., W, W]


def _first_pieces(word_indices: Sequence[int]) -> np.ndarray:
    """Return the index of the first wordpiece of each word, int [W]."""
    return np.flatnonzero(np.diff(word_indices, prepend=-1))


def as_json(view: AttentionView, *, merges_words: bool) -> dict[str, Any]:
    """Return the content as JSON values; numbers are the exact float32 values.

    Args:
      merges_words: whether to add `word_attention`, [L, N, W, W]; see `merge_words`.
    """
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

    Attention is rounded to steps of 1/65535; the page shows three decimals. The page's script inserts the input text as
    plain text, so it cannot become markup.
    """
    num_layers, num_heads = view.attention.shape[:2]
    rounded = np.rint(view.attention * _LARGEST_UINT16).astype("<u2")
    data = {
        "numLayers": num_layers,
        "numHeads": num_heads,
        "layer": layer,
        "head": head,
        "mergesWords": merges_words,
        "tokens": {"texts": list(view.tokens), "segments": list(view.segment_ids)},
        "words": {"texts": list(view.words), "segments": view.word_segment_ids},
        "wordIndices": list(view.word_indices),
        "attention": base64.b64encode(rounded.tobytes()).decode("ascii"),
        "largest": _LARGEST_UINT16,
        "predictions": view.predictions,
        "notes": list(view.notes),
        "attributions": view.attributions and view.attributions.as_json(),
    }
    return filled(_TEMPLATE, data)
