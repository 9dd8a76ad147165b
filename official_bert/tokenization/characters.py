"""What BERT's basic tokenizer does to each character, as one table.

Every step of the reference's basic tokenizer (cleaning, spaces around CJK and punctuation, lower-casing, accent
stripping) looks at one character at a time, with two exceptions that `rewrite` notices. So the steps compose into a map
from a character to a string, which `str.translate` applies in C; the words are then what white space separates.
"""

import unicodedata

_CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def is_whitespace(character: str) -> bool:
    """Tells whether the tokenizer turns a character into a space."""
    return character in " \t\n\r" or unicodedata.category(character) == "Zs"


def is_control(character: str) -> bool:
    """Tells whether the tokenizer deletes a character as invisible."""
    return character not in "\t\n\r" and unicodedata.category(character) in ("Cc", "Cf")


def is_punctuation(character: str) -> bool:
    """Tells whether a character is a word of its own: Unicode punctuation and every ASCII symbol (`$`, `+`, `~`)."""
    return character in _ASCII_PUNCTUATION or unicodedata.category(character).startswith("P")


def is_cjk(character: str) -> bool:
    """Tells whether a character is a CJK ideograph; Hangul, Hiragana and Katakana are not."""
    code_point = ord(character)
    return any(first <= code_point <= last for first, last in _CJK_RANGES)


def clean(character: str) -> str:
    """The reference's first pass: deletes, turns into a space, or sets a CJK character between spaces."""
    if character in "\0\ufffd" or is_control(character):
        return ""
    if is_whitespace(character):
        return " "
    return f" {character} " if is_cjk(character) else character


def strip_accents(text: str) -> str:
    """Decomposes characters and drops the combining marks: `"é"` becomes `"e"`."""
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")


def space_punctuation(text: str) -> str:
    """Sets every punctuation character between spaces."""
    return "".join(f" {character} " if is_punctuation(character) else character for character in text)


def plain_rewrite(text: str, *, do_lower_case: bool) -> str:
    """The rules one after the other over a whole text; `rewrite` gives the same, faster."""
    text = "".join(map(clean, text))
    if do_lower_case:
        text = strip_accents(text.lower())
    return space_punctuation(text)


_NEEDS_NEIGHBOURS = "\0"  # stands in for such a character; text cannot hold it any more, `clean` deletes it


def _needs_neighbours(character: str) -> bool:
    """Tells whether lower-casing and decomposition depend on what stands beside a character.

    A capital sigma becomes "ς" at the end of a word and "σ" elsewhere. Decomposition sorts a run of combining
    characters by class; accents (Mn) go anyway, but some spacing marks (U+302E, say) stay and may change places.
    """
    return character == "Σ" or any(
        unicodedata.combining(part) and unicodedata.category(part) != "Mn"
        for part in unicodedata.normalize("NFD", character.lower())
    )


class _RewriteTable(dict):
    """A `str.translate` table that computes the entry of a code point when it is first met."""

    def __init__(self, do_lower_case: bool):
        super().__init__()
        self._do_lower_case = do_lower_case

    def __missing__(self, code_point: int) -> str:
        character = chr(code_point)
        if self._do_lower_case and _needs_neighbours(character):
            replacement = _NEEDS_NEIGHBOURS
        else:
            replacement = plain_rewrite(character, do_lower_case=self._do_lower_case)
        self[code_point] = replacement
        return replacement


_TABLES = {do_lower_case: _RewriteTable(do_lower_case) for do_lower_case in (False, True)}


def rewrite(text: str, *, do_lower_case: bool) -> str:
    """Rewrites text so that its words are what `str.split` finds.

    Args:
      text: any string, lone surrogates included.
      do_lower_case: whether to lower-case and strip accents.

    Returns:
      For example `"don't"` becomes `"don ' t"`.
    """
    rewritten = text.translate(_TABLES[do_lower_case])
    if _NEEDS_NEIGHBOURS in rewritten:
        return plain_rewrite(text, do_lower_case=do_lower_case)
    return rewritten
