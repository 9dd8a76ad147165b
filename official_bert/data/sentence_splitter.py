"""Splits running text into sentences, with blingfire, an optional package.

Of the well-known splitters it is by far the fastest, and it is not told the language: see docs/inputs.md. The full
stops of some scripts, which it does not know, are added here.
"""

import itertools
import re
from types import ModuleType

from official_bert.support.errors import UserError
from official_bert.support.extras import install_command

_WINDOW = 1 << 18  # characters of a long text that are split at a time: blingfire takes some 15 bytes for each

# Full stops that have no other use: Devanagari (Hindi, Bengali and others), Armenian, Ethiopic, Burmese, Khmer.
_MORE_FULL_STOPS = re.compile("(?<=[\u0964\u0965\u0589\u1362\u104b\u17d4]) ")


def load_splitter() -> ModuleType:
    """Imports blingfire.

    Raises:
      UserError: it is not installed, or has no library for this system.
    """
    try:
        import blingfire
    except ImportError as error:
        raise UserError(f"splitting sentences needs the package blingfire: {install_command('sentences')}") from error
    except OSError as error:  # it is installed anywhere, but its libraries are for x86-64 alone
        raise UserError(f"the package blingfire, which splits sentences, cannot be used here: {error}") from error
    return blingfire


def split_sentences(text: str) -> list[str]:
    """Splits a paragraph into sentences.

    Args:
      text: a string without lone surrogates, of any length; runs of white space, line ends among them, count as one
        space.

    Returns:
      The sentences, which have the characters of the text but for white space: `"Dr. Wu left.  Why?"` gives
      `"Dr. Wu left."` and `"Why?"`. A text in which no end of a sentence is found is one sentence.
    """
    text = " ".join(text.split())
    sentences: list[str] = []
    start, size = 0, _WINDOW
    while start + size < len(text):
        complete = _split(text[start : start + size])[:-2]  # the end of the window may have changed the last two
        for sentence in complete:
            start = text.index(sentence, start) + len(sentence)
        sentences += complete
        size = _WINDOW if complete else 2 * size
    return sentences + _split(text[start:])


def _split(text: str) -> list[str]:
    """Splits a text in which single spaces are the only white space."""
    blingfire = load_splitter()
    text = text.strip()
    if not text:
        return []
    split = blingfire.text_to_sentences(text)
    if "".join(split.split()) == text.replace(" ", ""):
        return _cut_at_more_full_stops(split.split("\n"))
    # It changed a character, such as NUL: cut the text itself, which takes longer.
    _, ranges = blingfire.text_to_sentences_and_offsets(text)
    edges = [0, *(start for start, _ in ranges[1:]), len(text)]
    parts = (text[start:stop].strip() for start, stop in itertools.pairwise(edges))
    return _cut_at_more_full_stops([part for part in parts if part])


def _cut_at_more_full_stops(sentences: list[str]) -> list[str]:
    return [part for sentence in sentences for part in _MORE_FULL_STOPS.split(sentence)]
