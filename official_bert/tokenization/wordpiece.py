"""The two steps of `FullTokenizer`: text to words, and words to wordpieces."""

import dataclasses
from collections.abc import Collection

from official_bert.config.text_settings import TextSettings
from official_bert.support.errors import UserError
from official_bert.tokenization import characters
from official_bert.tokenization.vocab import CONTINUATION, MAX_CHARACTERS_PER_WORD, UNK


@dataclasses.dataclass(eq=False)
class BasicTokenizer:
    """Splits text into words: it cleans text, separates punctuation and CJK characters, and optionally lowercases.

    Attributes:
      do_lower_case: whether to lowercase and strip accents.
      strip_accents: whether lowercasing strips accents; for this and the others see `TextSettings`.
    """

    do_lower_case: bool = True
    strip_accents: bool = True
    tokenize_chinese_chars: bool = True
    strip_accents_only: bool = False

    def __post_init__(self):
        self._settings = TextSettings(**vars(self)).check()

    def tokenize(self, text: str | bytes) -> list[str]:
        """Split a text into words.

        Args:
          text: a string or UTF-8 bytes; undecodable bytes are dropped.

        Returns:
          Words without white space; `"Don't!"` gives `["don", "'", "t", "!"]`.
        """
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
    """Splits words into wordpieces, greedily taking the longest match from left to right.

    Attributes:
      vocab: the wordpieces, such as the keys of the result of `load_vocab`.
      unk_token: token for a word that cannot be split into wordpieces.
      max_input_chars_per_word: maximum number of characters of a word; a longer one is unknown.
      keeps_long_words: whether a longer word is kept if the vocabulary contains it.
    """

    vocab: Collection[str] = dataclasses.field(repr=False)
    unk_token: str = UNK
    max_input_chars_per_word: int = MAX_CHARACTERS_PER_WORD
    keeps_long_words: bool = False

    def __post_init__(self):
        self._max_wordpiece_length = max(map(len, self.vocab), default=0)

    def tokenize(self, text: str | bytes) -> list[str]:
        """Split words that are separated by white space.

        Args:
          text: the words, from `BasicTokenizer`.

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
