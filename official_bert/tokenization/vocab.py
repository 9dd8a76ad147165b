"""The vocabulary of a WordPiece model: tokens and their ids, read from `vocab.txt` or a Hugging Face folder.

What a Hugging Face folder declares about its tokenizer must be BERT's; added tokens are part of the vocabulary.
"""

import hashlib
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from typing_extensions import Self

from official_bert.support import files, text_files
from official_bert.support.errors import UserError
from official_bert.tokenization.hf_tokenizer import (
    JAPANESE,
    VOCAB_FILE,
    WORDPIECE,
    WORDPIECE_FILE,
    AddedToken,
    added_tokens,
    complete_token,
    read_tokenizer_json,
    template_of,
    type_of,
)

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
# RoBERTa's names of these, and its sequences `<s> first </s></s> second </s>` of one segment.
NAMES = {PAD: "<pad>", UNK: "<unk>", CLS: "<s>", SEP: "</s>", MASK: "<mask>"}
LAYOUT = {"num_between": 2, "second_segment": 0}
_UNUSED = "[unused"  # prefix of the placeholder tokens of released vocabularies
CONTINUATION = "##"  # prefix of every wordpiece of a word except the first
MAX_CHARACTERS_PER_WORD = 200  # reference value; a longer word is unknown
_BYTES_OF_A_PIECE = 64  # enough for the first piece of a SentencePiece model, whose score of 0 is binary
# Models with BERT's tokenizer that are no families here.
_OTHER_MODELS = (
    *("MobileBert", "ConvBert", "SqueezeBert", "RetriBert", "LayoutLM", "Lxmert"),
    *("DPRContextEncoder", "DPRQuestionEncoder", "DPRReader"),
)


def load_vocab(vocab_file: str) -> dict[str, int]:
    r"""Read a vocabulary file: one token per line; ids are line numbers, from 0.

    As in the reference, only `\n` ends a line, and lines are stripped of white space, so a line of only U+2028 (the
    released Chinese vocabulary has one) is the empty token. A Hugging Face `tokenizer.json` can be read as well.
    """
    if vocab_file.endswith(".json"):
        return number_tokens(_tokens_of_json(vocab_file), vocab_file)
    content = read_content(vocab_file, "vocabulary")
    if content.startswith(b"\n") and b"\0" in content[:_BYTES_OF_A_PIECE]:
        raise UserError(f"{vocab_file} is a SentencePiece model, not a list of wordpieces; give it as spm_model_file")
    return number_tokens(text_files.LineReader(vocab_file, io.BytesIO(content)), vocab_file)


def read_content(path: str, what: str, max_bytes: int = text_files.MAX_VOCAB_BYTES) -> bytes:
    if files.is_folder(path):
        raise UserError(f"{path} is a folder; give the {what} in it, or use official_bert.load_tokenizer in Python")
    return text_files.read_limited(path, what, max_bytes)


def _tokens_of_json(path: str) -> list[str]:
    model = read_tokenizer_json(path)["model"]
    ids = model["vocab"]
    if type_of(model) != WORDPIECE or not isinstance(ids, dict):
        raise UserError(f"{path} has no WordPiece vocabulary; only that of a BERT model can be used")
    for token in ids:
        if set(token) & set("\r\n"):
            raise UserError(f"{path}: the token {token!r:.80} cannot be a line of a vocab.txt")
    if sorted(ids.values()) != list(range(len(ids))):
        raise UserError(f"{path}: the ids of the {len(ids)} tokens are not 0 to {len(ids) - 1}, each exactly once")
    return sorted(ids, key=ids.get)


def number_tokens(lines: Iterable[str], source: str) -> dict[str, int]:
    """Return the ids of the lines of a vocabulary; `source` is for messages."""
    token_to_id: dict[str, int] = {}
    repeated = []
    for index, line in enumerate(lines):
        token = line.strip()
        if token in token_to_id:
            repeated.append(f"{token!r} (lines {token_to_id[token] + 1} and {index + 1})")
        token_to_id[token] = index
    if not token_to_id:
        raise UserError(f"the vocabulary {source} is empty; it must have one wordpiece per line")
    if repeated:
        raise UserError(
            f"{source} contains {len(repeated)} wordpiece(s) twice: {', '.join(repeated[:5])}; tokens must be unique: "
            "use the published file, or rename the line that no text needs, for example to [unused0]"
        )
    return token_to_id


class Vocabulary:
    """Tokens (wordpieces and special tokens such as [CLS]) and their ids."""

    file_name: str = VOCAB_FILE  # its file name beside a model; `wordpiece.json` for wordpieces with added tokens
    their_file_name: ClassVar[str] = VOCAB_FILE  # its file name in a Hugging Face folder
    # further classes in `transformers` with this vocabulary, beside those of families
    other_classes: ClassVar[tuple[str, ...]] = (*(f"{name}Tokenizer" for name in _OTHER_MODELS), JAPANESE)
    their_class: ClassVar[str | None] = None  # its tokenizer in `transformers`, if no family's
    flag: ClassVar[str] = "vocab_file"  # the flag for such a file
    changes_text: ClassVar[bool] = True  # whether its tokenizers may normalize text, for example lowercase it
    # whether the first word of a text is marked as the beginning of a word, too
    marks_first_word: ClassVar[bool] = True
    can_grow: ClassVar[bool] = True  # whether texts are split as before when words are added
    marker: ClassVar[str] = CONTINUATION  # prefix of the tokens that continue a word, or of those that begin one
    special_names: ClassVar[Mapping[str, str]] = {}  # the names of special tokens, where they are not BERT's
    layout: ClassVar[Mapping[str, int]] = {"num_between": 1, "second_segment": 1}  # of sequences; see `Specials`
    has_segments: ClassVar[bool] = True  # whether its models tell the second text of a pair by its segment
    advice: ClassVar[str] = "is this a BERT vocabulary?"  # what to do if it lacks a special token

    def __init__(self, token_to_id: dict[str, int], source: str = "the vocabulary", added: Sequence[AddedToken] = ()):
        self.wordpieces = token_to_id  # without the added tokens that are no wordpieces
        self.added = added  # the tokens that are found before a text is split
        self.token_to_id = token_to_id | {token["content"]: token["id"] for token in added}  # dict
        self.id_to_token = {index: token for token, index in self.token_to_id.items()}  # dict
        self.source = source  # the file, for messages
        self.declared: dict[str, bool] = {}  # text settings in the file
        self.mask_takes_space = self.marker != CONTINUATION  # whether a mask in a text includes the space before it
        if added:
            self.file_name = WORDPIECE_FILE

    @classmethod
    def from_file(cls, vocab_file: str) -> "Vocabulary":
        """Read a file, and the added tokens in the Hugging Face folder that it belongs to, if any; see `load_vocab`."""
        token_to_id = load_vocab(vocab_file)
        kind = MPNetVocabulary if tuple(token_to_id)[:3] == MPNetVocabulary.first_tokens else cls
        plain = kind(token_to_id, vocab_file)
        added = added_tokens(plain)
        return kind(plain.wordpieces, vocab_file, added) if added else plain

    @classmethod
    def loaded(cls, vocabulary: "str | os.PathLike[str] | Vocabulary") -> Self:
        """Return a vocabulary that is already loaded, or read its file."""
        return vocabulary if isinstance(vocabulary, Vocabulary) else cls.from_file(os.fspath(vocabulary))

    @property
    def size(self) -> int:
        """Number of ids: the highest id plus 1."""
        return max(self.id_to_token) + 1

    @property
    def pad_id(self) -> int | None:
        return self.token_to_id.get(self.name_of(PAD))

    @property
    def fingerprint(self) -> str:
        """A hash of all tokens and their ids; equal hashes mean equal ids for every text."""
        return hashlib.sha256(json.dumps(self.contents).encode()).hexdigest()

    def continues(self, trained: "Vocabulary") -> bool:
        """Return True if a model trained with another vocabulary can be used with this one.

        New words may replace `[unused...]` tokens or follow the last token.
        """
        if not self.can_grow:
            return self.fingerprint == trained.fingerprint
        return all(token in self.added for token in trained.added) and all(
            self.id_to_token.get(index) == token or (token.startswith(_UNUSED) and index in self.id_to_token)
            for index, token in trained.id_to_token.items()
        )

    @property
    def contents(self) -> list[Any]:
        """The settings that determine the ids of a text, as JSON values."""
        return [*self.token_to_id.items(), *self.added]

    @property
    def file_content(self) -> bytes:
        """The content of a file that defines the same vocabulary."""
        if self.added:
            return (json.dumps(self.tokenizer_json, indent=1, ensure_ascii=False) + "\n").encode()
        return self._lines

    @property
    def their_files(self) -> dict[str, bytes]:
        """The contents of its files in a Hugging Face folder, where other files hold added tokens."""
        if self.file_name == WORDPIECE_FILE:
            return {VOCAB_FILE: self._lines}
        return {self.their_file_name: self.file_content}

    @property
    def _lines(self) -> bytes:
        return "".join(f"{token}\n" for token in sorted(self.wordpieces, key=self.wordpieces.get)).encode()

    @property
    def tokenizer_json(self) -> dict[str, Any]:
        """The tokens in the form of a `tokenizer.json`."""
        return {
            "added_tokens": sorted([*self.specials_as_added, *self.added], key=lambda token: token["id"]),
            "model": {
                "type": WORDPIECE,
                "unk_token": UNK,
                "continuing_subword_prefix": CONTINUATION,
                "max_input_chars_per_word": MAX_CHARACTERS_PER_WORD,
                "vocab": self.wordpieces,
            },
        }

    @property
    def names_of_specials(self) -> set[str]:
        return {*map(self.name_of, (PAD, UNK, CLS, SEP, MASK))}

    @property
    def specials_as_added(self) -> list[dict[str, Any]]:
        """The special tokens in the form of a `tokenizer.json`; a mask may include the space before it."""
        mask = self.name_of(MASK) if self.mask_takes_space else None
        return [
            {"id": self.token_to_id[name], **complete_token({"content": name}, lstrip=name == mask, special=True)}
            for name in sorted(self.names_of_specials & self.token_to_id.keys(), key=self.token_to_id.get)
        ]

    @property
    def ends(self) -> list[list]:
        """[CLS] and [SEP], each by its name and id."""
        return [[name, self.token_to_id.get(name)] for name in map(self.name_of, (CLS, SEP))]

    @property
    def template(self) -> dict[str, Any]:
        """The post-processor of its `tokenizer.json`."""
        return template_of(*self.ends, **self.layout)

    def name_of(self, special: str) -> str:
        return self.special_names.get(special, special)

    def continues_word(self, token: str) -> bool:
        """Return True if a token continues the previous token's word."""
        return token.startswith(self.marker)

    def characters_of(self, token: str) -> str:
        """Return a token without its word-start or continuation marker."""
        return token.removeprefix(self.marker)

    def shown(self, token: str) -> str:
        return token

    def joined(self, tokens: Iterable[str]) -> str:
        """Return the text of tokens: wordpieces of a word are joined, words are separated by one space each."""
        return " ".join(tokens).replace(f" {CONTINUATION}", "")

    def require(self, *specials: str) -> list[int]:
        names = [self.name_of(special) for special in specials]
        missing = [name for name in names if name not in self.token_to_id]
        if missing:
            in_capitals = {token.upper(): token for token in self.token_to_id}.get(missing[0])
            advice = self.advice
            if in_capitals is not None:
                line = self.token_to_id[in_capitals] + 1
                advice = f"line {line} holds {in_capitals!r}: special tokens must be in capitals"
            raise UserError(f"{self.source} lacks {', '.join(missing)}; {advice}")
        return [self.token_to_id[name] for name in names]

    def ids(self, tokens: Iterable[str]) -> list[int]:
        return self._look_up(self.token_to_id, tokens)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return self._look_up(self.id_to_token, ids)

    def _look_up(self, table: dict, keys: Iterable) -> list:
        if isinstance(keys, (str, int)):
            raise UserError(f"{keys!r:.80} is not a list of tokens or ids; write [{keys!r:.80}]")
        try:
            return [table[key] for key in keys]
        except KeyError as error:
            raise KeyError(f"{error.args[0]!r} is not in {self.source}") from None


class MPNetVocabulary(Vocabulary):
    """Wordpieces after special tokens that are RoBERTa's, except for [UNK]. Source: transformers, `MPNetTokenizer`."""

    their_class = "MPNetTokenizer"
    other_classes = (their_class,)
    special_names: ClassVar[Mapping[str, str]] = {**NAMES, UNK: UNK}
    first_tokens = (NAMES[CLS], NAMES[PAD], NAMES[SEP])  # as in fairseq's dictionaries; no BERT's vocabulary has them
    layout = LAYOUT
    advice = "is this an MPNet vocabulary?"
