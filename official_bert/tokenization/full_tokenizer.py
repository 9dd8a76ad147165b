"""BERT's WordPiece tokenizer: text to words, words to wordpieces, and the added tokens between them.

Added tokens are found as the library `tokenizers` does. A token that is not `normalized` is found in the text as it is;
the others are found in the remaining parts after normalization. At each place the longest token counts, from left to
right. White space around a token makes no wordpieces, so `lstrip` and `rstrip` have no effect on ids.
"""

import dataclasses
import itertools
import os
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from official_bert import lazy
from official_bert.config.text_settings import TextSettings
from official_bert.support.errors import UserError
from official_bert.tokenization import characters
from official_bert.tokenization.hf_tokenizer import BERT_SPLIT, SPLIT_AT_WHITE_SPACE, AddedToken, tokenizer_json
from official_bert.tokenization.tokenizer import EncodingWithOffsets, Tokenizer, to_unicode
from official_bert.tokenization.vocab import CLS, CONTINUATION, MAX_CHARACTERS_PER_WORD, SEP, UNK, Vocabulary
from official_bert.tokenization.word_splitters import WordSplitter

# These limit a tokenizer's memory to about 200 MB for any corpus, plus 110 MB for words with offsets.
MAX_CACHED_WORDS = 1 << 20
MAX_ALIGNED_WORDS = 1 << 18
MAX_ALIGNED_LENGTH = 40  # characters; text without spaces is one long "word" that rarely repeats

# `str.split` splits at these control characters, but the tokenizer deletes them first: "a\x0bb" is one word.
_DELETED = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_DELETED_SEPARATORS = re.compile(f"[{_DELETED}]")
# A word to align; where the separators are not deleted, aligning splits at them.
_WORDS = re.compile(rf"[\S{_DELETED}]+")
_ALL = re.compile(".+", re.DOTALL)
_PARTS, _WHOLE = re.compile(r"\S+"), re.compile(r"\S(?:.*\S)?", re.DOTALL)
_SUSPICIOUS_SHARE = 0.2  # fraction of the wordpieces; below 1% for texts that suit a published vocabulary
# Other_Alphabetic of Unicode that is not a mark: circled and squared letters.
_CIRCLED = frozenset(
    chr(code) for first, last in ((0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))
    for code in range(first, last + 1)
)  # fmt: skip
_JOINERS = "\u200c\u200d"


@dataclasses.dataclass(eq=False)
class BasicTokenizer:
    """Splits text into words: it cleans text, separates punctuation and CJK characters, and optionally lowercases."""

    do_lower_case: bool = True  # whether to lowercase and strip accents
    strip_accents: bool = True  # whether lowercasing strips accents; for this and the others see `TextSettings`
    tokenize_chinese_chars: bool = True
    strip_accents_only: bool = False
    basic_tokenize: bool = True

    def __post_init__(self):
        self._settings = TextSettings(**vars(self)).check()

    def tokenize(self, text: str | bytes) -> list[str]:
        """Split a text into words."""
        return characters.rewrite(to_unicode(text), self._settings).split()


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


def is_of_word(character: str) -> bool:
    r"""Return True for the characters of `\w` in the regular expressions of `tokenizers`."""
    category = unicodedata.category(character)
    return category[0] in "LM" or category in ("Nd", "Nl", "Pc") or character in _CIRCLED or character in _JOINERS


class TokenFinder:
    """Splits text at tokens, if there are any."""

    def __init__(self, tokens: Mapping[str, AddedToken], *, is_spaced: bool):
        self.tokens = tokens  # what to find, and the token that it is
        self._is_spaced = is_spaced
        self._pattern = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))))

    def split(self, text: str) -> Iterator[tuple[str | None, int, int]]:
        """Return the parts of a text in order: an added token or None, start and end."""
        last = 0
        for match in self._pattern.finditer(text) if self.tokens else ():
            token, (start, end) = self.tokens[match.group()], match.span()
            if token["single_word"] and (
                self._is_word(text[max(start - 2, 0) : start][::-1]) or self._is_word(text[end : end + 2])
            ):
                continue
            if last < start:
                yield None, last, start
            yield token["content"], start, end
            last = end
        if last < len(text):
            yield None, last, len(text)

    def _is_word(self, beside: str) -> bool:
        """Return True if the character beside a match is of a word; the nearest comes first."""
        if self._is_spaced and beside[1:] and beside[0] == " " and unicodedata.category(beside[1]) == "Pc":
            return True  # the space is that of the punctuation
        return beside != "" and is_of_word(beside[0])


def _normalized_tokens(added: Sequence[AddedToken], settings: TextSettings, source: str) -> dict[str, AddedToken]:
    """Return the tokens to find in rewritten text, keyed by what they are there: `" < e1 > "` for `"<E1>"`."""
    found: dict[str, AddedToken] = {}
    for token in added:
        if not token["normalized"]:
            continue
        content = token["content"]
        rewritten = characters.rewrite(content, settings)
        is_exact = all(characters.clean(end).strip() for end in (content[0], content[-1])) and rewritten.strip()
        if not (is_exact if settings.basic_tokenize else len(content.split()) == 1):
            raise UserError(f"{source}: the added token {content!r:.80} is not supported with {settings}")
        if rewritten in found:
            raise UserError(
                f"{source}: the added tokens {found[rewritten]['content']!r:.80} and {content!r:.80} are the same with "
                f"{settings}"
            )
        found[rewritten] = token
    return found


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

    def __init__(
        self,
        vocab_file: str | os.PathLike[str] | Vocabulary,
        do_lower_case: bool = True,
        *,
        strip_accents: bool = True,
        basic_tokenize: bool = True,
        tokenize_chinese_chars: bool = True,
        strip_accents_only: bool = False,
        morphemes: str | None = None,
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
          morphemes: what splits a text into words first: "kiwi" (Korean), "mecab-unidic_lite" or "mecab-ipadic"
            (Japanese, with `basic_tokenize=False`).

        Raises:
          UserError: the vocabulary is missing, empty, not UTF-8, or lacks [UNK], [CLS] or [SEP]; or the settings
            contradict each other.
        """
        self.settings = TextSettings(
            do_lower_case, strip_accents, basic_tokenize, tokenize_chinese_chars, strip_accents_only, morphemes
        ).check()
        self._splitter = WordSplitter(morphemes) if morphemes else None
        self.vocabulary = vocabulary = self.vocabulary_class.loaded(vocab_file)
        vocabulary.require(UNK, CLS, SEP)
        self.basic_tokenizer = BasicTokenizer(**self.settings._replace(morphemes=None).recorded)
        raw = {token["content"]: token for token in vocabulary.added if not token["normalized"]}
        self.raw_finder = TokenFinder(raw, is_spaced=False)
        normalized = _normalized_tokens(vocabulary.added, self.settings, vocabulary.source)
        self.finder = TokenFinder(normalized, is_spaced=basic_tokenize)
        self.wordpiece_tokenizer = WordpieceTokenizer(vocabulary.wordpieces, keeps_long_words=not basic_tokenize)
        self.max_cached_words = MAX_CACHED_WORDS
        self._ids_of_word: dict[str, tuple[int, ...]] = {}
        self._aligned_words: dict[str, EncodingWithOffsets] = {}

    def split_text(self, text: str | bytes) -> str:
        """Split a text into words, as `morphemes` says, for an export: the words are separated by blanks."""
        text = to_unicode(text)
        return self._splitter.split(text)[0] if self._splitter else text

    def of_split_text(self) -> "FullTokenizer":
        """Return the tokenizer of the results of `split_text`."""
        return type(self)(self.vocabulary, **self.settings._replace(morphemes=None)._asdict())

    def in_graph(self) -> Any:
        """See `Tokenizer`; morphemes are split by Python."""
        return super().in_graph() if self.settings.morphemes else lazy.GraphTokenizer(self)

    def to_tokenizer_json(self) -> dict[str, Any] | None:
        """Make the content of a `tokenizer.json` with which `tokenizers` gives the same ids; None if it cannot."""
        settings = self.settings
        if "mecab_kwargs" in self._their_settings():
            return None
        normalizer = {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": settings.tokenize_chinese_chars,
            "strip_accents": settings.strips_accents,
            "lowercase": settings.do_lower_case,
        }
        return tokenizer_json(
            **self.vocabulary.tokenizer_json,
            normalizer=normalizer if settings.basic_tokenize else None,
            pre_tokenizer=BERT_SPLIT if settings.basic_tokenize else SPLIT_AT_WHITE_SPACE,
            post_processor=self.vocabulary.template,
            decoder={"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True},
        )

    def _their_settings(self) -> dict[str, Any]:
        names = {"basic_tokenize": "do_basic_tokenize", "strip_accents_only": "strip_accents"}
        added = {
            str(token["id"]): {name: value for name, value in token.items() if name != "id"}
            for token in self.vocabulary.added
        }
        settings = {names.get(name, name): value for name, value in self.settings.changed.items()}
        if morphemes := settings.pop("morphemes", None):
            settings = WordSplitter(morphemes).to_hugging_face() or settings
        return settings | ({"added_tokens_decoder": added} if added else {})

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, without the word cache."""
        return {**self.__dict__, "_ids_of_word": {}, "_aligned_words": {}}

    def encode(self, text: str | bytes) -> list[int]:
        """Split a text into wordpieces and return their ids, without [CLS] and [SEP]; see `Tokenizer.encode`."""
        text = to_unicode(text)
        if not self.vocabulary.added:
            return self._encode_part(self.split_text(text) if self._splitter else text)
        ids: list[int] = []
        for added, start, end in self.raw_finder.split(text):
            part = text[start:end] if added else self.split_text(text[start:end])
            rewritten = characters.rewrite(part, self.settings) if self.finder.tokens and not added else ""
            found = [*self.finder.split(rewritten)]
            if added:
                ids.append(self.vocabulary.token_to_id[added])
            elif all(token is None for token, _, _ in found):
                ids += self._encode_part(part)
            else:
                for token, first, last in found:
                    tokens = [token] if token else self.wordpiece_tokenizer.tokenize(rewritten[first:last])
                    ids += self.vocabulary.ids(tokens)
        return ids

    def _encode_part(self, text: str) -> list[int]:
        if self.settings.basic_tokenize and _DELETED_SEPARATORS.search(text):
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
        for added, begin, finish in self.raw_finder.split(text):
            if added:
                ids.append(self.vocabulary.token_to_id[added])
                starts.append(begin)
                ends.append(finish)
                continue
            part, first, size = text, begin, len(ids)
            if self._splitter:
                part, firsts, lasts = self._splitter.split(text[begin:finish], begin)
                first, finish = 0, len(part)
            # An added token may contain spaces.
            for match in (_ALL if self.finder.tokens else _WORDS).finditer(part, first, finish):
                word, offset = match.group(), match.start()
                aligned = self._aligned_words.get(word) or self._align_word(word)
                ids += aligned.ids
                starts += [offset + start for start in aligned.starts]
                ends += [offset + end for end in aligned.ends]
            if self._splitter:
                starts[size:] = [firsts[place] for place in starts[size:]]
                ends[size:] = [lasts[place - 1] for place in ends[size:]]
        return EncodingWithOffsets(ids, starts, ends)

    def _align_word(self, word: str) -> EncodingWithOffsets:
        """Split a word, or text in which added tokens are to be found, into wordpieces with their offsets."""
        rewritten, origins = characters.rewrite_traced(word, self.settings)
        ends_with_accents = _ends_with_accents(word, origins)
        # Sorting may move combining characters. Since no wordpiece may start before its predecessor, a character that
        # moved gets the range of all characters that it passed.
        first_characters = list(itertools.accumulate(reversed(origins), min))[::-1]
        after_last = list(itertools.accumulate((ends_with_accents[origin] for origin in origins), max))

        aligned = EncodingWithOffsets([], [], [])
        for added, begin, finish in self.finder.split(rewritten):
            for match in (_WHOLE if added else _PARTS).finditer(rewritten, begin, finish):
                first = match.start()
                split = [added] if added else self.wordpiece_tokenizer.split_word(match.group())
                is_whole = added or split == [UNK]
                for token in split:
                    length = len(token) - (len(CONTINUATION) if first > match.start() else 0)
                    after = match.end() if is_whole else first + length
                    aligned.ids.append(self.vocabulary.token_to_id[token])
                    aligned.starts.append(first_characters[first])
                    aligned.ends.append(after_last[after - 1])
                    first = after
        if len(self._aligned_words) >= MAX_ALIGNED_WORDS:
            self._aligned_words.clear()
        if len(word) <= MAX_ALIGNED_LENGTH:
            self._aligned_words[word] = aligned
        return aligned


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


def warn_of_unknown(path: str, tokenizer: FullTokenizer, *, num_unknown: int, num_wordpieces: int) -> None:
    """Warn if so many wordpieces were [UNK] that the vocabulary is probably wrong."""
    if num_unknown > _SUSPICIOUS_SHARE * num_wordpieces:
        logging.warning(
            "%s: %.0f%% of the wordpieces are [UNK]; is %s the vocabulary of the checkpoint and of these texts' "
            "language, and does %s fit it?",
            path,
            100 * num_unknown / num_wordpieces,
            tokenizer.vocabulary.source,
            tokenizer.settings,
        )
