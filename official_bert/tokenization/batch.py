"""Batches of texts and pairs of texts, padded to arrays."""

import numbers
from collections.abc import Iterable, Sequence

import numpy as np

from official_bert.support.errors import UserError
from official_bert.tokenization.joining import JoinedSequence
from official_bert.tokenization.wordpiece import refuse_symbolic

Text = str | bytes
TextOrPair = Text | tuple[Text, Text | None]

_MIN_SEQ_LENGTH = 3  # [CLS] and two [SEP]
_SHORTEST_LENGTH = 2  # an empty text: [CLS] and [SEP]


def check_max_seq_length(max_seq_length: int) -> None:
    """Raise UserError unless this is an integer that leaves room for [CLS] and two [SEP]."""
    if not isinstance(max_seq_length, numbers.Integral) or max_seq_length < _MIN_SEQ_LENGTH:
        raise UserError(f"max_seq_length={max_seq_length!r:.80} must be a whole number of at least {_MIN_SEQ_LENGTH}")


def paired_texts(
    texts: Text | Iterable[TextOrPair], text_pairs: Text | Iterable[Text | None] | None
) -> list[tuple[Text, Text | None]]:
    """Normalize the arguments of a tokenizer call to a list of pairs.

    Args:
      texts: one text, or several, each of which may be a tuple of two.
      text_pairs: None, or the second text of each of `texts`, which must then be single texts.

    Returns:
      The first and second text of each example; the second is None for single texts.

    Raises:
      UserError: an argument has another type, or the numbers of texts differ.
    """
    refuse_symbolic(texts)
    if isinstance(texts, Text) and isinstance(text_pairs, Text | None):
        return [(texts, text_pairs)]
    if isinstance(texts, tuple):
        raise UserError(
            "a tuple is ambiguous: write tokenizer([(first, second)]) for a pair of texts, or "
            "tokenizer([first, second]) for two texts"
        )
    firsts = _as_list(texts, "texts")
    if text_pairs is None:
        return [_as_pair(item, number) for number, item in enumerate(firsts)]
    seconds = _as_list(text_pairs, "text_pairs")
    if len(firsts) != len(seconds):
        raise UserError(
            f"there are {len(firsts)} texts, but {len(seconds)} text_pairs; give one for each text, or None"
        )
    for number, first in enumerate(firsts):
        if not isinstance(first, Text):
            raise UserError(f"texts[{number}] is {_shown(first)}; with text_pairs, each must be a single text")
    return [_as_pair(pair, number) for number, pair in enumerate(zip(firsts, seconds, strict=True))]


def _as_list(texts: object, name: str) -> list:
    if isinstance(texts, Text | dict) or not isinstance(texts, Iterable):
        raise UserError(f"{name} is {_shown(texts)}; give one text, or a list of texts or of pairs (first, second)")
    return list(texts)


def _as_pair(item: object, number: int) -> tuple[Text, Text | None]:
    first, second = item if isinstance(item, tuple) and len(item) == 2 else (item, None)
    if not isinstance(first, Text) or not isinstance(second, Text | None):
        raise UserError(f"example {number} is {_shown(item)}; it must be a text or a tuple of two: (first, second)")
    return first, second


def _shown(value: object) -> str:
    return f"{value!r:.80}"


def pad(sequences: Sequence[JoinedSequence], length: int | None, pad_id: int = 0) -> dict[str, np.ndarray]:
    """Pad sequences to one length.

    Args:
      sequences: B sequences.
      length: S; None for the length of the longest sequence.
      pad_id: the id of padding; mask and segment ids are padded with 0.

    Returns:
      input_ids, input_mask and segment_ids, int32 [B, S].
    """
    if length is None:
        length = max([_SHORTEST_LENGTH, *(len(sequence.input_ids) for sequence in sequences)])
    arrays = np.zeros([3, len(sequences), length], np.int32)
    arrays[0] = pad_id
    for row, sequence in enumerate(sequences):
        end = len(sequence.input_ids)
        arrays[0, row, :end] = sequence.input_ids
        arrays[1, row, :end] = 1
        arrays[2, row, :end] = np.frombuffer(sequence.segment_ids, np.uint8)
    return dict(zip(("input_ids", "input_mask", "segment_ids"), arrays, strict=True))
