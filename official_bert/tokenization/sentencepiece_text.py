"""ALBERT's text normalization, applied before its SentencePiece model splits the text.

White space becomes single spaces, characters are decomposed (Unicode's form KD), accents are dropped, and text is
optionally lowercased. Like `characters` for BERT, this module can map each character to its source.
"""

import unicodedata
from typing import NamedTuple


class TracedText(NamedTuple):
    """Normalized text of N characters.

    Attributes:
      text: the text.
      starts: for each of its characters, the index of its source character.
      ends: for each, the index after that character and the dropped accents that follow it.
    """

    text: str
    starts: list[int]
    ends: list[int]


def decompose(character: str) -> str:
    """Decompose a character and drop the accents of the result: `"ﬁ"` becomes `"fi"`, `"é"` `"e"`, U+0301 nothing.

    Lone surrogates, which UTF-8 cannot encode, are dropped too.
    """
    if unicodedata.category(character) == "Cs":
        return ""
    return "".join(part for part in unicodedata.normalize("NFKD", character) if not unicodedata.combining(part))


class _DecompositionTable(dict):
    """A `str.translate` table that computes the entry of a code point on first use.

    Decomposition treats characters independently, except for the order of combining characters, which are dropped.
    """

    def __missing__(self, code_point: int) -> str:
        self[code_point] = replacement = decompose(chr(code_point))
        return replacement


_DECOMPOSED = _DecompositionTable()


def prepare(text: str, *, do_lower_case: bool) -> str:
    """Normalize a text, which may be any string."""
    text = " ".join(text.split())
    if not text.isascii():
        text = text.translate(_DECOMPOSED)
    return text.lower() if do_lower_case else text


def prepare_traced(text: str, *, do_lower_case: bool) -> TracedText:
    """Normalize a text as `prepare` does, and map each character of the result to its source."""
    characters: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    first_of_last = 0  # index of the first result of the last kept character
    for index, character in enumerate(text):
        if character.isspace():
            replacement = " " if index and not text[index - 1].isspace() else ""
        elif not (replacement := _DECOMPOSED[ord(character)]):
            ends[first_of_last:] = [index + 1] * (len(ends) - first_of_last)  # an accent
            continue
        first_of_last = len(characters)
        characters += replacement
        starts += [index] * len(replacement)
        ends += [index + 1] * len(replacement)
    if 0 < len(text.rstrip()) < len(text):  # the space after the last word
        del characters[-1], starts[-1], ends[-1]
    prepared = "".join(characters)
    # Once decomposed, every character has one lowercase letter.
    return TracedText(prepared.lower() if do_lower_case else prepared, starts, ends)
