"""The character rules of BERT's basic tokenizer, compiled into one table.

Every step of the reference's basic tokenizer (cleaning, spaces around CJK and punctuation, lowercasing, accent
stripping) handles one character at a time, with two exceptions that `rewrite` detects. The steps therefore compose into
a map from characters to strings, which `str.translate` applies in C; splitting the result at white space gives the
words.
"""

import bisect
import enum
import functools
import itertools
import unicodedata
from collections.abc import Callable, Iterator

from official_bert.config.text_settings import TextSettings

_CJK_RANGES = (
    (0x3400, 0x4DBF),  # Extension A
    (0x4E00, 0x9FFF),  # Unified Ideographs
    (0xF900, 0xFAFF),  # Compatibility Ideographs
    (0x20000, 0x2A6DF),  # Extension B
    (0x2A700, 0x2B73F),  # Extension C
    (0x2B740, 0x2B81F),  # Extension D
    (0x2B820, 0x2CEAF),  # Extension E
    (0x2F800, 0x2FA1F),  # Compatibility Ideographs Supplement
)
_CJK_BOUNDARIES = [boundary for first, last in _CJK_RANGES for boundary in (first, last + 1)]
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def is_punctuation(character: str) -> bool:
    """Return True if a character forms a separate word: Unicode punctuation and every ASCII symbol (`$`, `+`, `~`)."""
    return character in _ASCII_PUNCTUATION or unicodedata.category(character).startswith("P")


def is_cjk(character: str) -> bool:
    """Return True for a CJK ideograph; Hangul, Hiragana and Katakana are not."""
    # Inside a range, an odd number of boundaries lie at or before the character.
    return bisect.bisect(_CJK_BOUNDARIES, ord(character)) % 2 == 1


def cjk_blocks() -> Iterator[str]:
    """Return all characters that `is_cjk` accepts, assigned or not, in strings of consecutive ones."""
    return ("".join(map(chr, range(first, last + 1))) for first, last in _CJK_RANGES)


def clean(character: str, *, spaces_cjk: bool = True) -> str:
    """Apply the reference's first pass: delete the character, make it a space, or put spaces around a CJK one."""
    category = unicodedata.category(character)
    if character in " \t\n\r" or category == "Zs":
        return " "
    if character == "\ufffd" or category in ("Cc", "Cf"):
        return ""
    return f" {character} " if spaces_cjk and is_cjk(character) else character


# Characters, each with the index of the source character in the text.
_Traced = list[tuple[str, int]]


def _plain_rewrite(text: str, settings: TextSettings) -> _Traced:
    """Apply the rules one after the other to a whole text; `rewrite` gives the same result faster."""
    spaces_cjk = settings.tokenize_chinese_chars
    traced = [(part, index) for index, char in enumerate(text) for part in clean(char, spaces_cjk=spaces_cjk)]
    if settings.do_lower_case:
        traced = lower_traced(traced)
    if settings.strips_accents:
        traced = _strip_accents(traced)
    return [
        (part, index)
        for character, index in traced
        for part in (f" {character} " if is_punctuation(character) else character)
    ]


def lower_traced(traced: _Traced) -> _Traced:
    """Lowercase; one character may become two (`"İ"`), but the number does not depend on its neighbours."""
    lowered = iter(_untraced(traced).lower())
    return [(next(lowered), index) for character, index in traced for _ in character.lower()]


def _strip_accents(traced: _Traced) -> _Traced:
    """Decompose characters (Unicode's form D) and drop the combining marks: `"é"` becomes `"e"`."""
    decomposed = [(part, index) for character, index in traced for part in unicodedata.normalize("NFD", character)]
    in_order: _Traced = []
    for _, run in itertools.groupby(decomposed, key=lambda pair: unicodedata.combining(pair[0]) > 0):
        in_order += sorted(run, key=lambda pair: unicodedata.combining(pair[0]))  # the canonical order
    return [(part, index) for part, index in in_order if unicodedata.category(part) != "Mn"]


def _untraced(traced: _Traced) -> str:
    return "".join(character for character, _ in traced)


_NEEDS_NEIGHBOURS = "\0"  # placeholder for such a character; it cannot occur in text, since `clean` deletes it


def _needs_neighbours(character: str, settings: TextSettings) -> bool:
    """Return True if lowercasing or decomposing a character depends on its neighbours.

    A capital sigma becomes "ς" at the end of a word and "σ" elsewhere. Decomposition sorts a run of combining
    characters by class; accents (Mn) are dropped anyway, but some spacing marks (such as U+302E) are kept and may move.
    """
    if settings.do_lower_case:
        if character == "Σ":
            return True
        character = character.lower()
    return settings.strips_accents and any(map(combining_class, unicodedata.normalize("NFD", character)))


def is_kept(text: str) -> bool:
    """Return True for text that lowercasing and decomposition leave unchanged."""
    return text.lower() == text and unicodedata.is_normalized("NFD", text)


def combining_class(character: str) -> int:
    """Return the combining class by which decomposition sorts a kept character; 0 for all other characters."""
    return unicodedata.combining(character) if unicodedata.category(character) != "Mn" else 0


class SigmaContext(enum.IntEnum):
    """The effect of a neighbouring character on a capital sigma.

    A sigma ends a word, and becomes "ς", if the nearest unskipped character before it is cased and the nearest one
    after it is not. Accents, full stops and deleted characters are skipped.
    """

    SKIPPED = 0
    CASED = 1
    OTHER = 2


def sigma_context(text: str) -> SigmaContext:
    """Find the effect of a character on a neighbouring capital sigma, by calling `str.lower`."""
    if f"{text}Σ".lower().endswith("ς"):
        return SigmaContext.CASED
    return SigmaContext.SKIPPED if f"Α{text}Σ".lower().endswith("ς") else SigmaContext.OTHER


def blocks_reordering(character: str) -> bool:
    """Return True if combining characters are not reordered across this one, even if it is dropped."""
    return any(not unicodedata.combining(part) for part in unicodedata.normalize("NFD", clean(character).lower()))


class TranslationTable(dict):
    """A `str.translate` table that computes the entry of a code point on first use."""

    def __init__(self, replacement_of: Callable[[str], str]):
        super().__init__()
        self._replacement_of = replacement_of

    def __missing__(self, code_point: int) -> str:
        self[code_point] = replacement = self._replacement_of(chr(code_point))
        return replacement


@functools.cache
def _table(settings: TextSettings) -> TranslationTable:
    def replacement_of(character: str) -> str:
        # Nearly all, for which skipping the full rules is ten times faster.
        category = unicodedata.category(character)
        if category[0] != "M" and not is_punctuation(character) and character.lower() == character:
            cleaned = clean(character, spaces_cjk=settings.tokenize_chinese_chars)
            decomposed = unicodedata.normalize("NFD", cleaned)
            if decomposed == cleaned:
                return cleaned
            if category == "Lo" and all(map(str.isalpha, decomposed.strip())):  # such as Hangul, in its parts
                return decomposed if settings.strips_accents else cleaned
        if _needs_neighbours(character, settings):
            return _NEEDS_NEIGHBOURS
        return _untraced(_plain_rewrite(character, settings))

    return TranslationTable(replacement_of)


def rewrite(text: str, settings: TextSettings) -> str:
    """Rewrite text so that `str.split` gives its words."""
    if not settings.basic_tokenize:
        return text
    rewritten = text.translate(_table(settings))
    if _NEEDS_NEIGHBOURS in rewritten:
        return _untraced(_plain_rewrite(text, settings))
    return rewritten


def rewrite_traced(text: str, settings: TextSettings) -> tuple[str, list[int]]:
    """Rewrite text, and return the index in `text` of the source of each character.

    `"İ'"` gives `"i ' "` and `[0, 1, 1, 1]`. The indices ascend, except where decomposition sorts combining
    characters.
    """
    if not settings.basic_tokenize:
        return text, list(range(len(text)))
    table = _table(settings)
    replacements = [table[ord(character)] for character in text]
    if _NEEDS_NEIGHBOURS in replacements:
        traced = _plain_rewrite(text, settings)
        return _untraced(traced), [index for _, index in traced]
    return "".join(replacements), [index for index, replacement in enumerate(replacements) for _ in replacement]
