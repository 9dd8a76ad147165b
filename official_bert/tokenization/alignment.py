"""Wordpieces with their places in the text, for tasks that answer with a part of the text or label parts of it.

`FullTokenizer.encode` forgets where a piece stood. Here each piece keeps the range of characters that it was made from,
so that the text of an answer can be cut out of the original, capitals, accents and spaces included.
"""

import bisect
import itertools
import re
import weakref
from typing import NamedTuple

from official_bert.tokenization import characters
from official_bert.tokenization.wordpiece import CONTINUATION, DELETED_SEPARATORS, FullTokenizer

# Together they bound the memory of each tokenizer, at some 110 MB for English. Text without spaces is one long "word",
# which hardly comes again.
MAX_REMEMBERED_WORDS = 1 << 18
MAX_REMEMBERED_LENGTH = 40  # characters

# What `FullTokenizer.encode` takes for a word before any rule.
_WORDS = re.compile(rf"[\S{DELETED_SEPARATORS}]+")
_PARTS = re.compile(r"\S+")


class AlignedPieces(NamedTuple):
    """The pieces of a text; piece `i` was made from `text[starts[i]:ends[i]]`, which is never empty.

    Neither `starts` nor `ends` ever decrease. Pieces made from one character share it: the uncased tokenizer takes
    Hangul syllables apart.
    """

    ids: list[int]
    starts: list[int]
    ends: list[int]


_remembered_words: weakref.WeakKeyDictionary[FullTokenizer, dict[str, AlignedPieces]] = weakref.WeakKeyDictionary()


def align(text: str, tokenizer: FullTokenizer) -> AlignedPieces:
    r"""Splits a text into wordpieces and tells where each stands.

    Args:
      text: any string.
      tokenizer: gives the pieces; `ids` are those of `tokenizer.encode(text)`.

    Returns:
      Pieces with the smallest ranges that hold all they were made from. An accent that the tokenizer drops belongs to
      the character before it, an unknown piece is its whole word, and characters that the tokenizer deletes (white
      space, controls) are in no range unless they stand inside it. `"Zoe\u0301's"` may give `zo`, `##e`, `'` and `s`
      at `Zo`, `e\u0301`, `'` and `s`.
    """
    remembered = _remembered_words.setdefault(tokenizer, {})
    ids: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    for match in _WORDS.finditer(text):
        word, offset = match.group(), match.start()
        pieces = remembered.get(word)
        if pieces is None:
            pieces = _align_word(word, tokenizer)
            if len(remembered) >= MAX_REMEMBERED_WORDS:
                remembered.clear()
            if len(word) <= MAX_REMEMBERED_LENGTH:
                remembered[word] = pieces
        ids += pieces.ids
        starts += [offset + start for start in pieces.starts]
        ends += [offset + end for end in pieces.ends]
    return AlignedPieces(ids, starts, ends)


def pieces_of_range(aligned: AlignedPieces, start: int, end: int) -> tuple[int, int] | None:
    """Finds the pieces that a range of characters touches.

    Args:
      aligned: the pieces of the text.
      start: index of the first character.
      end: index after the last one.

    Returns:
      The indices of the first and the last piece, both included, or None if no piece overlaps the range.
    """
    first = bisect.bisect_right(aligned.ends, start)
    last = bisect.bisect_left(aligned.starts, end) - 1
    return (first, last) if start < end and first <= last else None


def _align_word(word: str, tokenizer: FullTokenizer) -> AlignedPieces:
    do_lower_case = tokenizer.basic_tokenizer.do_lower_case
    rewritten, origins = characters.rewrite_traced(word, do_lower_case=do_lower_case)
    ends_with_accents = _ends_with_accents(word, origins)
    # Sorted combining characters may stand in another order than in the text: as no piece may start before the one
    # before it, the range of one that moved is that of all that it passed.
    starts = list(itertools.accumulate(reversed(origins), min))[::-1]
    ends = list(itertools.accumulate((ends_with_accents[origin] for origin in origins), max))

    aligned = AlignedPieces([], [], [])
    for match in _PARTS.finditer(rewritten):
        part, first = match.group(), match.start()
        for piece in tokenizer.wordpiece_tokenizer.split_word(part):
            if piece == tokenizer.wordpiece_tokenizer.unk_token:
                after = match.end()
            else:
                after = first + len(piece) - (len(CONTINUATION) if first > match.start() else 0)
            aligned.ids.append(tokenizer.vocab[piece])
            aligned.starts.append(starts[first])
            aligned.ends.append(ends[after - 1])
            first = after
    return aligned


def _ends_with_accents(word: str, origins: list[int]) -> dict[int, int]:
    """For each character of a word that the rewriting keeps, the index after it and the accents dropped behind it."""
    ends = {origin: origin + 1 for origin in origins}
    if len(ends) < len(word):
        last = None
        for index, character in enumerate(word):
            if index in ends:
                last = index
            elif last is not None and characters.clean(character):  # dropped, but not by cleaning: an accent
                ends[last] = index + 1
    return ends
