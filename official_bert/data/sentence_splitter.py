"""Splits running text into sentences, with blingfire, an optional package.

Of the well-known splitters it is by far the fastest and the only one that knows the punctuation of all scripts without
being told the language: see docs/scaling.md.
"""

import itertools
from collections.abc import Sequence
from types import ModuleType

from official_bert.support.errors import UserError


def load_splitter() -> ModuleType:
    """Imports blingfire.

    Raises:
      UserError: it is not installed.
    """
    try:
        import blingfire
    except ImportError as error:
        raise UserError(
            "splitting sentences needs the package blingfire: pip install 'official-bert[sentences]'"
        ) from error
    return blingfire


def split_sentences(text: str) -> list[str]:
    """Splits a paragraph into sentences.

    Args:
      text: a string without lone surrogates; runs of white space, line ends among them, count as one space.

    Returns:
      The sentences, which have the characters of the text but for white space: `"Dr. Wu left.  Why?"` gives
      `"Dr. Wu left."` and `"Why?"`. A text in which no end of a sentence is found, or of which the splitter cannot tell
      the places (one of millions of characters), is one sentence.
    """
    blingfire = load_splitter()
    text = " ".join(text.split())
    if not text:
        return []
    split = blingfire.text_to_sentences(text)
    if "".join(split.split()) == text.replace(" ", ""):
        return split.split("\n")
    try:  # it changed a character, such as NUL: cut the text itself, which takes longer
        _, ranges = blingfire.text_to_sentences_and_offsets(text)
    except AssertionError:  # how it says that a text is too long
        return [text]
    return _cut(text, [start for start, _ in ranges[1:]])


def _cut(text: str, starts: Sequence[int]) -> list[str]:
    edges = [0, *starts, len(text)]
    parts = (text[start:stop].strip() for start, stop in itertools.pairwise(edges))
    return [part for part in parts if part]
