"""The reference's three tokenizers: text to words, words to wordpieces, and both in one."""

import re
from collections.abc import Collection, Iterable

from official_bert.tokenization import characters
from official_bert.tokenization.vocab import CLASSIFIER, SEPARATOR, UNKNOWN, Vocabulary

MAX_CHARACTERS_PER_WORD = 200  # reference value; a longer word is unknown
CONTINUATION = "##"  # begins every piece of a word but the first
MAX_REMEMBERED_WORDS = 1 << 20  # bounds the memory of a tokenizer at some 200 MB, whatever the corpus

# Control characters at which `str.split` splits but which the tokenizer deletes first: "a\x0bb" is one word.
DELETED_SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_DELETED_SEPARATORS = re.compile(f"[{DELETED_SEPARATORS}]")


class BasicTokenizer:
    """Splits text into words: cleaning, spaces around punctuation and CJK, and lower-casing if wished."""

    def __init__(self, do_lower_case: bool = True):
        self.do_lower_case = do_lower_case

    def tokenize(self, text: str | bytes) -> list[str]:
        """Splits a text into words.

        Args:
          text: a string, or UTF-8 bytes, whose undecodable bytes are dropped.

        Returns:
          Words without white space; `"Don't!"` gives `["don", "'", "t", "!"]`.
        """
        return characters.rewrite(_to_unicode(text), do_lower_case=self.do_lower_case).split()


class WordpieceTokenizer:
    """Splits words into the longest pieces that the vocabulary holds, from left to right."""

    def __init__(
        self,
        vocab: Collection[str],
        unk_token: str = UNKNOWN,
        max_input_chars_per_word: int = MAX_CHARACTERS_PER_WORD,
    ):
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word
        self._longest_piece = max(map(len, vocab), default=0)

    def tokenize(self, text: str | bytes) -> list[str]:
        """Splits white-space separated words into pieces.

        Args:
          text: the words, as `BasicTokenizer` leaves them.

        Returns:
          Pieces; `"unaffable"` gives for example `["un", "##aff", "##able"]`. A word that cannot be built from the
          vocabulary, or is too long, is one unknown piece.
        """
        pieces = []
        for word in _to_unicode(text).split():
            pieces.extend(self.split_word(word))
        return pieces

    def split_word(self, word: str) -> list[str]:
        """Splits a single word; see `tokenize`."""
        if len(word) > self.max_input_chars_per_word:
            return [self.unk_token]
        pieces = []
        start, prefix = 0, ""
        while start < len(word):
            # No piece is longer than the longest one, prefix included: start the search there.
            end = min(len(word), start + self._longest_piece - len(prefix))
            while end > start and prefix + word[start:end] not in self.vocab:
                end -= 1
            if end <= start:
                return [self.unk_token]
            pieces.append(prefix + word[start:end])
            start, prefix = end, CONTINUATION
        return pieces


class FullTokenizer:
    """The whole way from text to wordpieces.

    Splitting a text at white space first and remembering what each of these words became makes it fast: nothing in the
    rules looks across white space.

    Raises:
      UserError: the vocabulary is missing, empty, not UTF-8, or lacks [UNK], [CLS] or [SEP].
    """

    def __init__(self, vocab_file: str, do_lower_case: bool = True):
        self.vocabulary = Vocabulary.from_file(vocab_file)
        self.vocabulary.require(UNKNOWN, CLASSIFIER, SEPARATOR)
        self.basic_tokenizer = BasicTokenizer(do_lower_case=do_lower_case)
        self.wordpiece_tokenizer = WordpieceTokenizer(vocab=self.vocabulary.pieces)
        self._ids_of_word: dict[str, tuple[int, ...]] = {}

    @property
    def vocab(self) -> dict[str, int]:
        """Piece to id."""
        return self.vocabulary.pieces

    @property
    def inv_vocab(self) -> dict[int, str]:
        """Id to piece."""
        return self.vocabulary.inverse

    def tokenize(self, text: str | bytes) -> list[str]:
        """Splits a text into wordpieces; bytes are UTF-8, undecodable ones are dropped."""
        return self.vocabulary.pieces_of(self.encode(text))

    def encode(self, text: str | bytes) -> list[int]:
        """Splits a text into wordpieces and returns their ids."""
        text = _to_unicode(text)
        if _DELETED_SEPARATORS.search(text):
            text = _DELETED_SEPARATORS.sub("", text)
        remembered = self._ids_of_word
        ids: list[int] = []
        for word in text.split():
            try:
                ids += remembered[word]
            except KeyError:
                ids += self._encode_word(word)
        return ids

    def _encode_word(self, word: str) -> tuple[int, ...]:
        if len(self._ids_of_word) >= MAX_REMEMBERED_WORDS:
            self._ids_of_word.clear()
        split_word = self.wordpiece_tokenizer.split_word
        pieces = [piece for part in self.basic_tokenizer.tokenize(word) for piece in split_word(part)]
        ids = self._ids_of_word[word] = tuple(self.vocabulary.ids(pieces))
        return ids

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Looks up pieces; KeyError if one is not in the vocabulary."""
        return self.vocabulary.ids(tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Looks up ids; KeyError if one is not in the vocabulary."""
        return self.vocabulary.pieces_of(ids)


def _to_unicode(text: str | bytes) -> str:
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    if isinstance(text, str):
        return text
    raise TypeError(f"text must be str or bytes, not {type(text).__name__}")
