"""The two steps of `FullTokenizer`, text to words and words to wordpieces, and the places of wordpieces in a text."""

import bisect
import dataclasses
import itertools
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from official_bert.config.text_settings import TextSettings
from official_bert.support.errors import UserError
from official_bert.tokenization import characters
from official_bert.tokenization.added_tokens import TokenFinder
from official_bert.tokenization.vocab import CONTINUATION, MAX_CHARACTERS_PER_WORD, UNK

_PARTS, _WHOLE = re.compile(r"\S+"), re.compile(r"\S(?:.*\S)?", re.DOTALL)


@dataclasses.dataclass(eq=False)
class BasicTokenizer:
    """Splits text into words: it cleans text, separates punctuation and CJK characters, and optionally lowercases."""

    do_lower_case: bool = True  # whether to lowercase and strip accents
    strip_accents: bool = True  # whether lowercasing strips accents; for this and the others see `TextSettings`
    tokenize_chinese_chars: bool = True
    strip_accents_only: bool = False

    def __post_init__(self):
        self._settings = TextSettings(**vars(self)).check()

    def tokenize(self, text: str | bytes) -> list[str]:
        """Split a text into words."""
        return characters.rewrite(to_unicode(text), self._settings).split()


class WhitespaceTokenizer:
    """Splits pretokenized text at whitespace, without other changes."""

    def tokenize(self, text: str | bytes) -> list[str]:
        """Split a text, a string or UTF-8 bytes, at white space, as `str.split` does."""
        return to_unicode(text).split()


def word_tokenizer(settings: TextSettings) -> BasicTokenizer | WhitespaceTokenizer:
    """Create the word splitter for these settings."""
    if settings.basic_tokenize:
        values = settings._asdict()
        del values["basic_tokenize"]
        return BasicTokenizer(**values)
    return WhitespaceTokenizer()


@dataclasses.dataclass(eq=False)
class WordpieceTokenizer:
    """Splits words into wordpieces, greedily taking the longest match from left to right."""

    # the wordpieces, such as the keys of the result of `load_vocab`
    vocab: Collection[str] = dataclasses.field(repr=False)
    unk_token: str = UNK  # token for a word that cannot be split into wordpieces
    # maximum number of characters of a word; a longer one is unknown
    max_input_chars_per_word: int = MAX_CHARACTERS_PER_WORD
    keeps_long_words: bool = False  # whether a longer word is kept if the vocabulary contains it

    def __post_init__(self):
        self._max_wordpiece_length = max(map(len, self.vocab), default=0)

    def tokenize(self, text: str | bytes) -> list[str]:
        """Split words that are separated by white space.

        Returns:
          Wordpieces; a vocabulary with "harbour", "##mast" and "##ers" gives `["harbour", "##mast", "##ers"]` for
          `"harbourmasters"`, and without "##ers" only `["[UNK]"]`.
        """
        return [token for word in to_unicode(text).split() for token in self.split_word(word)]

    def split_word(self, word: str, *, is_continuation: bool = False) -> list[str]:
        """Split a single word, or the remainder of a word; see `tokenize`."""
        if len(word) > self.max_input_chars_per_word:
            return [word if self.keeps_long_words and word in self.vocab else self.unk_token]
        tokens = []
        start, prefix = 0, CONTINUATION if is_continuation else ""
        while start < len(word):
            # No match can be longer than the longest wordpiece: start the search there.
            end = min(len(word), start + self._max_wordpiece_length - len(prefix))
            while end > start and prefix + word[start:end] not in self.vocab:
                end -= 1
            if end <= start:
                return [self.unk_token]
            tokens.append(prefix + word[start:end])
            start, prefix = end, CONTINUATION
        return tokens


def to_unicode(text: str | bytes) -> str:
    """Decode bytes as UTF-8, dropping undecodable ones; return a string unchanged."""
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    if isinstance(text, str):
        return text
    refuse_symbolic(text)
    raise TypeError(f"text must be str or bytes, not {type(text).__name__}; for several texts, call tokenizer([...])")


def refuse_symbolic(texts: object) -> None:
    """Raise UserError for symbolic tensors, which have no values yet."""
    if type(texts).__name__ == "SymbolicTensor":
        raise UserError(
            "this tokenizer cannot read the symbolic tensors of dataset.map and tf.function; use the graph tokenizer: "
            "tokenize = official_bert.DatasetTokenizer(tokenizer), then dataset.map(tokenize)"
        )


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
    """Split a word, or several, into wordpieces, with the offsets of each."""
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
    """Find the wordpieces that overlap a range of characters."""
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
