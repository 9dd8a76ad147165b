"""Positions of wordpieces in the text, for tasks that answer with a part of the text or label parts of it.

`FullTokenizer.encode` forgets where a wordpiece stood. `FullTokenizer.encode_with_offsets` keeps, with each wordpiece,
the range of characters that it was made from, so that the text of an answer can be cut out of the original, capitals,
accents and spaces included. This module says what that method makes, aligns a single word, and finds the wordpieces of
an answer.
"""

import bisect
import itertools
import re
from typing import NamedTuple

from official_bert.config.text_settings import TextSettings
from official_bert.tokenization import characters
from official_bert.tokenization.vocab import CONTINUATION
from official_bert.tokenization.wordpiece import WordpieceTokenizer

_PARTS = re.compile(r"\S+")


class EncodingWithOffsets(NamedTuple):
    """The wordpieces of a text; the one with `ids[i]` was made from `text[starts[i]:ends[i]]`, which is never empty.

    Neither `starts` nor `ends` ever decrease. Wordpieces made from one character share it: the uncased tokenizer takes
    Hangul syllables apart.
    """

    ids: list[int]
    starts: list[int]
    ends: list[int]


def align_word(
    word: str, wordpiece_tokenizer: WordpieceTokenizer, settings: TextSettings
) -> tuple[list[str], list[int], list[int]]:
    """Split a word, which is what white space separates, into wordpieces, with the offsets of each.

    Args:
      word: any string.
      wordpiece_tokenizer: splits what the settings make of the word.
      settings: what is done to text.

    Returns:
      The wordpieces, and of each the index of its first character and the index after its last one.
    """
    rewritten, origins = characters.rewrite_traced(word, settings)
    ends_with_accents = _ends_with_accents(word, origins)
    # Sorted combining characters may stand in another order than in the text: as no wordpiece may start before the one
    # before it, the range of one that moved is that of all that it passed.
    first_characters = list(itertools.accumulate(reversed(origins), min))[::-1]
    after_last = list(itertools.accumulate((ends_with_accents[origin] for origin in origins), max))

    tokens: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for match in _PARTS.finditer(rewritten):
        first = match.start()
        split = wordpiece_tokenizer.split_word(match.group())
        is_unknown = split == [wordpiece_tokenizer.unk_token]
        for token in split:
            if is_unknown:
                after = match.end()
            else:
                after = first + len(token) - (len(CONTINUATION) if first > match.start() else 0)
            tokens.append(token)
            starts.append(first_characters[first])
            ends.append(after_last[after - 1])
            first = after
    return tokens, starts, ends


def wordpieces_in_range(encoding: EncodingWithOffsets, start: int, end: int) -> tuple[int, int] | None:
    """Find the wordpieces that a range of characters overlaps.

    Args:
      encoding: the wordpieces of the text.
      start: index of the first character.
      end: index after the last one.

    Returns:
      The indices of the first and the last wordpiece, both included, or None if none overlaps the range.
    """
    first = bisect.bisect_right(encoding.ends, start)
    last = bisect.bisect_left(encoding.starts, end) - 1
    return (first, last) if start < end and first <= last else None


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
