"""`FullTokenizer`: the whole way from text to wordpieces and their ids, and back."""

import numbers
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from official_bert.config.text_settings import TextSettings
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.tokenization import folder as model_folder
from official_bert.tokenization.alignment import EncodingWithOffsets, align_word
from official_bert.tokenization.batch import Text, TextOrPair, pad, paired_texts
from official_bert.tokenization.casing import check_casing
from official_bert.tokenization.joining import JoinedSequence, truncate_and_join
from official_bert.tokenization.vocab import CLS, MASK, PAD, SEP, UNK, Vocabulary
from official_bert.tokenization.wordpiece import CONTINUATION, WordpieceTokenizer, to_unicode, word_tokenizer

# They limit the memory of a tokenizer to about 200 MB for any corpus, and 110 MB more for words with offsets.
MAX_CACHED_WORDS = 1 << 20
MAX_ALIGNED_WORDS = 1 << 18
MAX_ALIGNED_LENGTH = 40  # characters; text without spaces is one long "word", which hardly comes again

# Control characters at which `str.split` splits but which the tokenizer deletes first: "a\x0bb" is one word.
_DELETED = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_DELETED_SEPARATORS = re.compile(f"[{_DELETED}]")
# What may be aligned by itself; where they are not deleted, `align_word` splits at them.
_WORDS = re.compile(rf"[\S{_DELETED}]+")

_MIN_SEQ_LENGTH = 3  # [CLS] and two [SEP]


class FullTokenizer:
    """The whole way from text to wordpieces, their ids, and batches of them that a model reads.

    Example:
      >>> tokenizer = FullTokenizer.from_folder("uncased_L-12_H-768_A-12")
      >>> tokenizer.tokenize("The harbour slept.")
      ['the', 'harbour', 'slept', '.']
      >>> batch = tokenizer(["a text", ("a question", "its text")], max_seq_length=128)
      >>> batch["input_ids"].shape
      (2, 7)

    Nothing in the rules looks across white space. So a text is split there first, and what each of these words became
    is cached for when it comes again, which makes it fast.
    """

    def __init__(
        self,
        vocab_file: str | os.PathLike | Vocabulary,
        do_lower_case: bool = True,
        *,
        strip_accents: bool = True,
        basic_tokenize: bool = True,
    ):
        """Reads the vocabulary; `from_folder` finds all arguments in the folder of a model.

        Args:
          vocab_file: a `vocab.txt`, or a vocabulary that has been read already.
          do_lower_case: whether to lowercase text and strip accents; true for uncased models.
          strip_accents: whether lowercasing decomposes characters and drops accents; otherwise `"É"` becomes `"é"`, and
            a Hangul syllable stays one character.
          basic_tokenize: whether to clean text and split it at punctuation and CJK characters. False is for text that
            is split already, by a morphological analyser for example: words are what stands between white space. Each
            is looked up as it is and, if it is not in the vocabulary, split into wordpieces. Special tokens that the
            text spells out, such as [SEP], are looked up like other words.

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
    def from_folder(
        cls,
        folder: str | os.PathLike,
        do_lower_case: bool | None = None,
        *,
        strip_accents: bool | None = None,
        basic_tokenize: bool | None = None,
    ) -> "FullTokenizer":
        """Reads the tokenizer of a model.

        Args:
          folder: folder of a released checkpoint, output folder of a run, or a Hugging Face folder; it contains
            `vocab.txt` or `tokenizer.json`.
          do_lower_case: whether to lowercase text and strip accents; None for what the folder says: its
            `tokenizer_config.json`, else its `run_config.json`, else the vocabulary, which is cased if it has capital
            letters. Which of them it was is logged.
          strip_accents: whether lowercasing strips accents; None for what these files say, else true.
          basic_tokenize: whether to clean and split text; None for what these files say, else true.

        Raises:
          UserError: the folder or its vocabulary is missing or damaged, text would be lowercased for a vocabulary that
            is cased, or the settings contradict each other.
        """
        folder = os.fspath(folder)
        vocabulary = model_folder.read_vocabulary(folder)
        values = zip(TextSettings._fields, (do_lower_case, strip_accents, basic_tokenize), strict=True)
        given = {name: value for name, value in values if value is not None}
        settings = model_folder.find_settings(folder, vocabulary, given)
        check_casing(vocabulary, settings, init_checkpoint=None)
        return cls(vocabulary, **settings._asdict())

    def __getstate__(self) -> dict[str, Any]:
        """What is sent to another process: not the words met so far, which are many and soon found again."""
        return {**self.__dict__, "_ids_of_word": {}, "_aligned_words": {}}

    @property
    def vocab(self) -> dict[str, int]:
        """Token to id."""
        return self.vocabulary.token_to_id

    @property
    def inv_vocab(self) -> dict[int, str]:
        """Id to token."""
        return self.vocabulary.id_to_token

    @property
    def cls_id(self) -> int:
        """Id of [CLS]."""
        return self._special_id(CLS)

    @property
    def sep_id(self) -> int:
        """Id of [SEP]."""
        return self._special_id(SEP)

    @property
    def unk_id(self) -> int:
        """Id of [UNK]."""
        return self._special_id(UNK)

    @property
    def pad_id(self) -> int:
        """Id of [PAD]; UserError if the vocabulary lacks it."""
        return self._special_id(PAD)

    @property
    def mask_id(self) -> int:
        """Id of [MASK]; UserError if the vocabulary lacks it."""
        return self._special_id(MASK)

    def _special_id(self, token: str) -> int:
        return self.vocabulary.require(token)[0]

    def __len__(self) -> int:
        """Number of ids."""
        return self.vocabulary.size

    def __call__(
        self,
        texts: Text | Iterable[TextOrPair],
        text_pairs: Text | Iterable[Text | None] | None = None,
        *,
        max_seq_length: int = 512,
        padding: Literal["longest", "max_length"] = "longest",
    ) -> dict[str, np.ndarray]:
        """Turns texts and pairs of texts into the inputs of a model, exactly as for training.

        Args:
          texts: B texts, each a string or UTF-8 bytes; a tuple `(first, second)` among them is a pair. Or a single
            string, for which B is 1.
          text_pairs: a second text (or None) for each text, as another way to give pairs; a single string for a single
            string.
          max_seq_length: maximum length of a sequence, including [CLS] and [SEP]. Longer texts are truncated at their
            end; of a pair, always the one that is longer. The default is that of the released models.
          padding: "longest" pads to the longest sequence of the batch, "max_length" to `max_seq_length`.

        Returns:
          input_ids, input_mask and segment_ids, int32 [B, S]: `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`,
          followed by zeros. The mask is 1 but for the padding, the segment is 1 for the second text with its [SEP].

        Raises:
          UserError: an argument is not of this kind.
        """
        if padding not in ("longest", "max_length"):
            raise UserError(f"padding={padding!r:.80} must be 'longest' or 'max_length'")
        sequences = self.sequences(texts, text_pairs, max_seq_length=max_seq_length)
        return pad(sequences, max_seq_length if padding == "max_length" else None)

    def sequences(
        self,
        texts: Text | Iterable[TextOrPair],
        text_pairs: Text | Iterable[Text | None] | None = None,
        *,
        max_seq_length: int = 512,
    ) -> list[JoinedSequence]:
        """Makes what a call makes, one by one and not padded; for arguments and errors see there."""
        if not isinstance(max_seq_length, numbers.Integral) or max_seq_length < _MIN_SEQ_LENGTH:
            raise UserError(
                f"max_seq_length={max_seq_length!r:.80} must be a whole number of {_MIN_SEQ_LENGTH} or more"
            )
        settings = {"max_seq_length": max_seq_length, "cls_id": self.cls_id, "sep_id": self.sep_id}
        return [
            truncate_and_join(self.encode(first), self.encode(second or ""), **settings)
            for first, second in paired_texts(texts, text_pairs)
        ]

    def tokenize(self, text: str | bytes) -> list[str]:
        """Splits a text into wordpieces; bytes are UTF-8, undecodable ones are dropped."""
        return self.vocabulary.tokens(self.encode(text))

    def encode(self, text: str | bytes) -> list[int]:
        """Splits a text into wordpieces and returns their ids, without [CLS] and [SEP].

        Raises:
          TypeError: `text` is a list, say; for several texts call the tokenizer: `tokenizer([...])`.
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
        r"""Splits a text into wordpieces with their offsets in the text.

        Args:
          text: a string, or UTF-8 bytes, whose undecodable bytes are dropped; offsets count characters.

        Returns:
          `ids` are those of `encode`. Each range is the smallest that holds all that the wordpiece was made from. An
          accent that the tokenizer drops belongs to the character before it, an unknown wordpiece is its whole word,
          and characters that the tokenizer deletes (white space, controls) are in no range unless they stand inside
          it. `"Zoe\u0301's"` may give `zo`, `##e`, `'` and `s` at `Zo`, `e\u0301`, `'` and `s`.
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

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Looks up tokens; KeyError if one is not in the vocabulary."""
        return self.vocabulary.ids(tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Looks up ids; KeyError if one is not in the vocabulary."""
        return self.vocabulary.tokens(ids)

    def decode(self, ids: Sequence[int] | np.ndarray, skip_special_tokens: bool = True) -> str:
        """Turns ids into text, though not into exactly the text that they came from.

        Wordpieces of a word are joined, and words are separated by one space each: capital letters and accents that
        were dropped do not come back, and neither do missing or repeated spaces. `"Don't  stop"` becomes
        `"don ' t stop"`.

        Args:
          ids: int [S], those of one sequence.
          skip_special_tokens: whether to leave out [CLS], [SEP] and [PAD]. [UNK] and [MASK] stand for words and remain.

        Raises:
          KeyError: an id is not in the vocabulary.
          UserError: `ids` are those of several sequences, or a single one.
        """
        ids = np.asarray(ids)
        if ids.ndim != 1:
            raise UserError(
                f"decode takes the ids of one sequence, not an array of shape {list(ids.shape)}; "
                "for a batch: [tokenizer.decode(row) for row in ids]"
            )
        tokens = self.vocabulary.tokens(ids.tolist())
        if skip_special_tokens:
            tokens = [token for token in tokens if token not in (CLS, SEP, PAD)]
        return " ".join(tokens).replace(f" {CONTINUATION}", "")


def _read_file(vocab_file: str) -> Vocabulary:
    if files.is_folder(vocab_file):
        raise UserError(f"{vocab_file} is a folder; give its vocab.txt, or in Python use FullTokenizer.from_folder")
    return Vocabulary.from_file(vocab_file)
