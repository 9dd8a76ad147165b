"""Character offsets of wordpieces, for tasks that extract or label spans of the text.

`FullTokenizer.encode` does not record positions. `FullTokenizer.encode_with_offsets` keeps the character range of each
wordpiece, so that an answer can be cut out of the original text with its capitals, accents and spaces. This module
defines the result of that method, aligns single words, and finds the wordpieces of an answer.
"""

import bisect
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from official_bert.config.text_settings import TextSettings
from official_bert.tokenization import characters
from official_bert.tokenization.added_tokens import TokenFinder
from official_bert.tokenization.vocab import CONTINUATION
from official_bert.tokenization.wordpiece import WordpieceTokenizer

_PARTS, _WHOLE = re.compile(r"\S+"), re.compile(r"\S(?:.*\S)?", re.DOTALL)


class EncodingWithOffsets(NamedTuple):
    """The wordpieces of a text: `ids[i]` was made from `text[starts[i]:ends[i]]`, which is never empty.

    `starts` and `ends` never decrease. Wordpieces made from one character share its range: the uncased tokenizer
    decomposes Hangul syllables, for example.
    """

    ids: list[int]
    starts: list[int]
    ends: list[int]


def align_word(
    word: str, wordpiece_tokenizer: WordpieceTokenizer, settings: TextSettings, finder: TokenFinder | None = None
) -> tuple[list[str], list[int], list[int]]:
    """Split a word, or several, into wordpieces, with the offsets of each.

    Args:
      word: any string.
      wordpiece_tokenizer: splits the normalized word.
      settings: the text settings.
      finder: finds added tokens in the rewritten text.

    Returns:
      The wordpieces, and for each the index of its first character and the index after its last one.
    """
    rewritten, origins = characters.rewrite_traced(word, settings)
    ends_with_accents = _ends_with_accents(word, origins)
    # Sorting may move combining characters. Since no wordpiece may start before its predecessor, a character that moved
    # gets the range of all characters that it passed.
    first_characters = list(itertools.accumulate(reversed(origins), min))[::-1]
    after_last = list(itertools.accumulate((ends_with_accents[origin] for origin in origins), max))

    tokens: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for added, begin, finish in finder.split(rewritten) if finder else [(None, 0, len(rewritten))]:
        for match in (_WHOLE if added else _PARTS).finditer(rewritten, begin, finish):
            first = match.start()
            split = [added] if added else wordpiece_tokenizer.split_word(match.group())
            is_whole = added or split == [wordpiece_tokenizer.unk_token]
            for token in split:
                if is_whole:
                    after = match.end()
                else:
                    after = first + len(token) - (len(CONTINUATION) if first > match.start() else 0)
                tokens.append(token)
                starts.append(first_characters[first])
                ends.append(after_last[after - 1])
                first = after
    return tokens, starts, ends


def word_beginnings(text: str, encoding: EncodingWithOffsets, are_continuations: Sequence[bool]) -> list[bool]:
    """Return for each wordpiece whether it is the first one of a word.

    Args:
      text: the text.
      encoding: its wordpieces.
      are_continuations: for each, whether it looks like the continuation of a word. Words of pretokenized text may look
        like that, too, so a wordpiece after a space always begins a word.
    """
    beginnings, last_end = [], 0
    for is_continuation, start, end in zip(are_continuations, encoding.starts, encoding.ends, strict=True):
        has_space = any(character.isspace() for character in text[last_end:start])
        beginnings.append(not (is_continuation and last_end and not has_space))
        last_end = end
    return beginnings


def wordpieces_in_range(encoding: EncodingWithOffsets, start: int, end: int) -> tuple[int, int] | None:
    """Find the wordpieces that overlap a range of characters.

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
    """Map each kept character of a word to the index after it and the dropped accents that follow it."""
    ends = {origin: origin + 1 for origin in origins}
    if len(ends) < len(word):
        last = None
        for index, character in enumerate(word):
            if index in ends:
                last = index
            elif last is not None and characters.clean(character):  # an accent: dropped, but not by cleaning
                ends[last] = index + 1
    return ends
