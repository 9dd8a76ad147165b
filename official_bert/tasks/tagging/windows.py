"""Windows of sentences: the wordpieces that the model reads together, and the position that tags each word.

Each word is tagged once, at its first wordpiece. A word that the tokenizer removes entirely, such as a lone control
character, is read as [UNK], which keeps its place. `servable.py` does the same in TensorFlow operations.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.tokenization import Tokenizer
from official_bert.tokenization.windows import SlidingWindow


class Window(NamedTuple):
    """A window: the wordpieces that the model reads at once.

    Attributes:
      sentence: index of the sentence whose words it tags.
      ids: wordpiece ids, without [CLS] and [SEP].
      words: indices of the words tagged in this window.
      positions: index in `ids` of the first wordpiece of each of these words.
    """

    sentence: int
    ids: list[int]
    words: Sequence[int]
    positions: Sequence[int]


class _Pieces(NamedTuple):
    """Wordpieces of a sentence, with the index of each word's first wordpiece."""

    ids: list[int]
    firsts: list[int]


def make_windows(
    sentences: Sequence[Sequence[str]],
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    documents: Sequence[int] | None = None,
) -> Iterator[Window]:
    """Split sentences into windows: one per sentence, or several overlapping windows if it does not fit.

    A word in two windows is tagged in the one where its shorter side has more context, the first if they are equal. For
    example, `["a", "b", "c", "d"]` in windows of three wordpieces has `a b c`, which tags a, b and c (c has no context
    on one side in either window), and `c d`, which tags d.

    Args:
      sentences: the words of each sentence.
      tokenizer: splits words.
      max_seq_length: wordpieces per window, including [CLS] and [SEP].
      documents: document number of each sentence, in ascending order. If given, a window is filled with neighbouring
        sentences of the document, half of the room on each side, as far as available; a sentence that needs several
        windows gets no neighbours.

    Yields:
      The windows, in sentence order.
    """
    max_tokens = max_seq_length - 2
    if documents is None:
        for number, words in enumerate(sentences):
            yield from _own_windows(number, _split(words, tokenizer), max_tokens)
        return
    for first, last in _runs(documents):
        parts = [_split(words, tokenizer) for words in sentences[first:last]]
        document = [piece for part in parts for piece in part.ids]
        start = 0
        for number, part in enumerate(parts, start=first):
            end = start + len(part.ids)
            if len(part.ids) > max_tokens:
                yield from _own_windows(number, part, max_tokens)
            else:
                begin, stop = _with_context(start, end, len(document), max_tokens)
                positions = [start - begin + piece for piece in part.firsts]
                yield Window(number, document[begin:stop], range(len(positions)), positions)
            start = end


def _split(words: Sequence[str], tokenizer: Tokenizer) -> _Pieces:
    ids: list[int] = []
    firsts: list[int] = []
    for word in words:
        firsts.append(len(ids))
        ids += tokenizer.encode_word(word) or [tokenizer.unk_id]
    return _Pieces(ids, firsts)


def _own_windows(number: int, wordpieces: _Pieces, max_tokens: int) -> Iterator[Window]:
    """Return the windows of a sentence without its neighbours."""
    cut = SlidingWindow.from_lengths(len(wordpieces.ids), max_tokens)
    best = cut.best_windows(wordpieces.firsts)
    for window, own in enumerate(cut.windows()):
        words = np.flatnonzero(best == window).tolist()
        yield Window(
            number, wordpieces.ids[own.start : own.stop], words, [wordpieces.firsts[word] - own.start for word in words]
        )


def _with_context(start: int, end: int, num_wordpieces: int, max_tokens: int) -> tuple[int, int]:
    """Extend a range of a document's wordpieces to both sides; room unused on one side goes to the other."""
    spare = max_tokens - (end - start)
    before = min(start, max(spare // 2, spare - (num_wordpieces - end)))
    return start - before, min(num_wordpieces, end + spare - before)


def _runs(documents: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Find the starts and ends of runs of equal numbers."""
    first = 0
    for place in range(1, len(documents) + 1):
        if place == len(documents) or documents[place] != documents[first]:
            yield first, place
            first = place
