"""`FullTokenizer`: BERT's WordPiece tokenizer."""

import os
import re
from typing import Any

from official_bert.config.text_settings import TextSettings
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.tokenization.alignment import EncodingWithOffsets, align_word
from official_bert.tokenization.tokenizer import Tokenizer
from official_bert.tokenization.vocab import CLS, SEP, UNK, Vocabulary
from official_bert.tokenization.wordpiece import WordpieceTokenizer, to_unicode, word_tokenizer

# These limit a tokenizer's memory to about 200 MB for any corpus, plus 110 MB for words with offsets.
MAX_CACHED_WORDS = 1 << 20
MAX_ALIGNED_WORDS = 1 << 18
MAX_ALIGNED_LENGTH = 40  # characters; text without spaces is one long "word" that rarely repeats

# `str.split` splits at these control characters, but the tokenizer deletes them first: "a\x0bb" is one word.
_DELETED = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_DELETED_SEPARATORS = re.compile(f"[{_DELETED}]")
# A word to align; where the separators are not deleted, `align_word` splits at them.
_WORDS = re.compile(rf"[\S{_DELETED}]+")


class FullTokenizer(Tokenizer):
    """BERT's tokenizer: text to wordpieces, ids and model inputs, and back.

    Examples:
      >>> tokenizer = FullTokenizer.from_folder("uncased_L-12_H-768_A-12")
      >>> tokenizer.tokenize("The harbour slept.")
      ['the', 'harbour', 'slept', '.']
      >>> batch = tokenizer(["a text", ("a question", "its text")], max_seq_length=128)
      >>> batch["input_ids"].shape
      (2, 7)

    No rule depends on characters beyond white space. Text is therefore split at white space first, and the result of
    each word is cached, which makes it fast.
    """

    graph_class = "official_bert.tokenization.graph_tokenizer.GraphTokenizer"

    def __init__(
        self,
        vocab_file: str | os.PathLike[str] | Vocabulary,
        do_lower_case: bool = True,
        *,
        strip_accents: bool = True,
        basic_tokenize: bool = True,
    ):
        """Read the vocabulary; `from_folder` finds all arguments in the folder of a model.

        Args:
          vocab_file: a `vocab.txt`, or a vocabulary that is already loaded.
          do_lower_case: whether to lowercase text and strip accents; true for uncased models.
          strip_accents: whether lowercasing decomposes characters and drops accents; otherwise `"É"` becomes `"é"`, and
            a Hangul syllable stays one character.
          basic_tokenize: whether to clean text and split it at punctuation and CJK characters. False is for
            pretokenized text, such as the output of a morphological analyser: words are separated by white space,
            looked up unchanged and, if not in the vocabulary, split into wordpieces. Special tokens spelled out in the
            text, such as [SEP], are looked up like other words.

        Raises:
          UserError: the vocabulary is missing, empty, not UTF-8, or lacks [UNK], [CLS] or [SEP]; or the settings
            contradict each other.
        """
        self.settings = TextSettings(do_lower_case, strip_accents, basic_tokenize).check()
        vocabulary = vocab_file if isinstance(vocab_file, Vocabulary) else _read_file(os.fspath(vocab_file))
        vocabulary.require(UNK, CLS, SEP)
        self.vocabulary = vocabulary
        self.basic_tokenizer = word_tokenizer(self.settings)
        self.wordpiece_tokenizer = WordpieceTokenizer(vocabulary.token_to_id, keeps_long_words=not basic_tokenize)
        self._deletes_separators = basic_tokenize
        self.max_cached_words = MAX_CACHED_WORDS
        self._ids_of_word: dict[str, tuple[int, ...]] = {}
        self._aligned_words: dict[str, EncodingWithOffsets] = {}

    @classmethod
    def with_settings(cls, vocabulary: str | Vocabulary, settings: TextSettings) -> "FullTokenizer":
        """Make a tokenizer; for errors see the constructor."""
        return cls(vocabulary, **settings._asdict())

    def _their_settings(self) -> dict[str, Any]:
        names = {"basic_tokenize": "do_basic_tokenize"}
        return {names.get(name, name): value for name, value in self.settings.changed.items()}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, without the word cache."""
        return {**self.__dict__, "_ids_of_word": {}, "_aligned_words": {}}

    def encode(self, text: str | bytes) -> list[int]:
        """Split a text into wordpieces and return their ids, without [CLS] and [SEP].

        Raises:
          TypeError: `text` is not a string, but a list, for example; for several texts call the tokenizer:
            `tokenizer([...])`.
        """
        text = to_unicode(text)
        if self._deletes_separators and _DELETED_SEPARATORS.search(text):
            text = _DELETED_SEPARATORS.sub("", text)
        cached = self._ids_of_word
        ids: list[int] = []
        for word in text.split():
            try:
                ids += cached[word]
            except KeyError:
                ids += self._encode_word(word)
        return ids

    def _encode_word(self, word: str) -> tuple[int, ...]:
        if len(self._ids_of_word) >= self.max_cached_words:
            self._ids_of_word.clear()
        split_word = self.wordpiece_tokenizer.split_word
        tokens = [token for part in self.basic_tokenizer.tokenize(word) for token in split_word(part)]
        ids = self._ids_of_word[word] = tuple(self.vocabulary.ids(tokens))
        return ids

    def encode_with_offsets(self, text: str | bytes) -> EncodingWithOffsets:
        r"""Split a text into wordpieces with their offsets in the text.

        Args:
          text: a string or UTF-8 bytes; undecodable bytes are dropped, and offsets count characters.

        Returns:
          `ids` are those of `encode`. Each range is the smallest that covers the wordpiece's characters. An
          accent that the tokenizer drops belongs to the character before it, an unknown token covers its whole word,
          and characters that the tokenizer deletes (white space, controls) belong to no range unless inside one.
          `"Zoe\u0301's"` may give `zo`, `##e`, `'` and `s` at `Zo`, `e\u0301`, `'` and `s`.
        """
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        for match in _WORDS.finditer(to_unicode(text)):
            word, offset = match.group(), match.start()
            aligned = self._aligned_words.get(word) or self._align_word(word)
            ids += aligned.ids
            starts += [offset + start for start in aligned.starts]
            ends += [offset + end for end in aligned.ends]
        return EncodingWithOffsets(ids, starts, ends)

    def _align_word(self, word: str) -> EncodingWithOffsets:
        tokens, starts, ends = align_word(word, self.wordpiece_tokenizer, self.settings)
        aligned = EncodingWithOffsets(self.vocabulary.ids(tokens), starts, ends)
        if len(self._aligned_words) >= MAX_ALIGNED_WORDS:
            self._aligned_words.clear()
        if len(word) <= MAX_ALIGNED_LENGTH:
            self._aligned_words[word] = aligned
        return aligned


def _read_file(vocab_file: str) -> Vocabulary:
    if files.is_folder(vocab_file):
        raise UserError(f"{vocab_file} is a folder; give its vocab.txt, or use FullTokenizer.from_folder in Python")
    return Vocabulary.from_file(vocab_file)
