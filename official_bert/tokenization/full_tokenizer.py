"""`FullTokenizer`: BERT's WordPiece tokenizer."""

import os
import re
from collections.abc import Iterable
from typing import Any

from absl import logging

from official_bert.config.text_settings import TextSettings
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.tokenization import characters
from official_bert.tokenization.added_tokens import TokenFinder, normalized_tokens, raw_tokens
from official_bert.tokenization.hf_wordpiece import (
    BERT_SPLIT,
    SPLIT_AT_WHITE_SPACE,
    bert_normalizer,
    bert_post_processor,
)
from official_bert.tokenization.tokenizer import Tokenizer
from official_bert.tokenization.vocab import CLS, CONTINUATION, SEP, UNK, Vocabulary
from official_bert.tokenization.wordpiece import (
    EncodingWithOffsets,
    WordpieceTokenizer,
    align_word,
    to_unicode,
    word_tokenizer,
)

# These limit a tokenizer's memory to about 200 MB for any corpus, plus 110 MB for words with offsets.
MAX_CACHED_WORDS = 1 << 20
MAX_ALIGNED_WORDS = 1 << 18
MAX_ALIGNED_LENGTH = 40  # characters; text without spaces is one long "word" that rarely repeats

# `str.split` splits at these control characters, but the tokenizer deletes them first: "a\x0bb" is one word.
_DELETED = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_DELETED_SEPARATORS = re.compile(f"[{_DELETED}]")
# A word to align; where the separators are not deleted, `align_word` splits at them.
_WORDS = re.compile(rf"[\S{_DELETED}]+")
_ALL = re.compile(".+", re.DOTALL)
_SUSPICIOUS_SHARE = 0.2  # fraction of the wordpieces; below 1% for texts that suit a published vocabulary


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
        tokenize_chinese_chars: bool = True,
        strip_accents_only: bool = False,
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
          tokenize_chinese_chars: whether each CJK character is a word.
          strip_accents_only: whether to strip accents without lowercasing; needs `do_lower_case=False`.

        Raises:
          UserError: the vocabulary is missing, empty, not UTF-8, or lacks [UNK], [CLS] or [SEP]; or the settings
            contradict each other.
        """
        self.settings = TextSettings(
            do_lower_case, strip_accents, basic_tokenize, tokenize_chinese_chars, strip_accents_only
        ).check()
        vocabulary = vocab_file if isinstance(vocab_file, Vocabulary) else _read_file(os.fspath(vocab_file))
        vocabulary.require(UNK, CLS, SEP)
        self.vocabulary = vocabulary
        self.basic_tokenizer = word_tokenizer(self.settings)
        raw, normalized = (
            raw_tokens(vocabulary.added),
            normalized_tokens(vocabulary.added, self.settings, vocabulary.source),
        )
        self.raw_finder = TokenFinder(raw, is_spaced=False) if raw else None
        self.finder = TokenFinder(normalized, is_spaced=basic_tokenize) if normalized else None
        self.wordpiece_tokenizer = WordpieceTokenizer(vocabulary.wordpieces, keeps_long_words=not basic_tokenize)
        self._deletes_separators = basic_tokenize
        self.max_cached_words = MAX_CACHED_WORDS
        self._ids_of_word: dict[str, tuple[int, ...]] = {}
        self._aligned_words: dict[str, EncodingWithOffsets] = {}

    @classmethod
    def with_settings(cls, vocabulary: str | Vocabulary, settings: TextSettings) -> "FullTokenizer":
        """Make a tokenizer; for errors see the constructor."""
        return cls(vocabulary, **settings._asdict())

    def to_tokenizer_json(self) -> dict[str, Any]:
        """Make the content of a `tokenizer.json` with which `tokenizers` gives the same ids."""
        settings = self.settings
        normalizer = bert_normalizer(
            strip_accents=settings.strips_accents,
            lowercase=settings.do_lower_case,
            handle_chinese_chars=settings.tokenize_chinese_chars,
        )
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "normalizer": normalizer if settings.basic_tokenize else None,
            "pre_tokenizer": BERT_SPLIT if settings.basic_tokenize else SPLIT_AT_WHITE_SPACE,
            "post_processor": bert_post_processor(self.vocab),
            "decoder": {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True},
            **self.vocabulary.tokenizer_json,
        }

    def _their_settings(self) -> dict[str, Any]:
        names = {"basic_tokenize": "do_basic_tokenize", "strip_accents_only": "strip_accents"}
        added = {
            str(token["id"]): {name: value for name, value in token.items() if name != "id"}
            for token in self.vocabulary.added
        }
        settings = {names.get(name, name): value for name, value in self.settings.changed.items()}
        return settings | ({"added_tokens_decoder": added} if added else {})

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
        if not self.vocabulary.added:
            return self._encode_part(text)
        ids: list[int] = []
        for added, start, end in self._parts(text):
            part = text[start:end]
            rewritten = characters.rewrite(part, self.settings) if self.finder and not added else ""
            found = [*self.finder.split(rewritten)] if rewritten else []
            if added:
                ids.append(self.vocabulary.token_to_id[added])
            elif all(token is None for token, _, _ in found):
                ids += self._encode_part(part)
            else:
                for token, first, last in found:
                    tokens = [token] if token else self.wordpiece_tokenizer.tokenize(rewritten[first:last])
                    ids += self.vocabulary.ids(tokens)
        return ids

    def _parts(self, text: str) -> Iterable[tuple[str | None, int, int]]:
        return self.raw_finder.split(text) if self.raw_finder else [(None, 0, len(text))]

    def _encode_part(self, text: str) -> list[int]:
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
        text = to_unicode(text)
        for added, begin, finish in self._parts(text):
            if added:
                ids.append(self.vocabulary.token_to_id[added])
                starts.append(begin)
                ends.append(finish)
                continue
            # An added token may contain spaces.
            for match in (_ALL if self.finder else _WORDS).finditer(text, begin, finish):
                word, offset = match.group(), match.start()
                aligned = self._aligned_words.get(word) or self._align_word(word)
                ids += aligned.ids
                starts += [offset + start for start in aligned.starts]
                ends += [offset + end for end in aligned.ends]
        return EncodingWithOffsets(ids, starts, ends)

    def _align_word(self, word: str) -> EncodingWithOffsets:
        tokens, starts, ends = align_word(word, self.wordpiece_tokenizer, self.settings, self.finder)
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


def warn_of_unknown(path: str, tokenizer: FullTokenizer, *, num_unknown: int, num_wordpieces: int) -> None:
    """Warn if so many wordpieces were [UNK] that the vocabulary is probably wrong.

    Args:
      num_unknown: number of [UNK] wordpieces.
    """
    if num_unknown > _SUSPICIOUS_SHARE * num_wordpieces:
        logging.warning(
            "%s: %.0f%% of the wordpieces are [UNK]; is %s the vocabulary of the checkpoint and of these texts' "
            "language, and does %s fit it?",
            path,
            100 * num_unknown / num_wordpieces,
            tokenizer.vocabulary.source,
            tokenizer.settings,
        )
