"""The vocabulary: wordpieces and their ids, read from `vocab.txt` and validated."""

import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from official_bert.support import text_files
from official_bert.support.errors import UserError
from official_bert.tokenization.hf_tokenizer import AddedToken, read_tokenizer_file
from official_bert.tokenization.hf_wordpiece import VOCAB_FILE, WORDPIECE, WORDPIECE_FILE, added_tokens

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
_UNUSED = "[unused"  # prefix of the placeholder tokens of released vocabularies
CONTINUATION = "##"  # prefix of every wordpiece of a word except the first
MAX_CHARACTERS_PER_WORD = 200  # reference value; a longer word is unknown
_BYTES_OF_A_PIECE = 64  # enough for the first piece of a SentencePiece model, whose score of 0 is binary


def load_vocab(vocab_file: str) -> dict[str, int]:
    r"""Read a vocabulary file: one token per line; ids are line numbers, from 0.

    As in the reference, only `\n` ends a line, and lines are stripped of white space, so a line of only U+2028 (the
    released Chinese vocabulary has one) is the empty token. A Hugging Face `tokenizer.json` can be read as well.
    """
    return number_tokens(vocab_lines(vocab_file), vocab_file)


def vocab_lines(vocab_file: str) -> list[str]:
    """Return the unchanged lines of a vocabulary file, or the tokens of a `tokenizer.json` as lines."""
    if vocab_file.endswith(".json"):
        return read_tokenizer_file(vocab_file)
    content = text_files.read_limited(vocab_file, "vocabulary", text_files.MAX_VOCAB_BYTES)
    if content.startswith(b"\n") and b"\0" in content[:_BYTES_OF_A_PIECE]:
        raise UserError(f"{vocab_file} is a SentencePiece model, not a list of wordpieces; give it as spm_model_file")
    return list(text_files.LineReader(vocab_file, io.BytesIO(content)))


def number_tokens(lines: Iterable[str], source: str) -> dict[str, int]:
    """Return the ids of a vocabulary's lines; see `load_vocab`."""
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
    """Tokens (wordpieces and special tokens such as [CLS]) and their ids.

    Attributes:
      wordpieces: `token_to_id` without the added tokens that are no wordpieces.
      added: the tokens that are found before a text is split.
      source: the file, for messages.
      declared: text settings in the file.
    """

    file_name: str = VOCAB_FILE  # its file name beside a model; `wordpiece.json` for wordpieces with added tokens
    their_file_name: ClassVar[str | None] = None  # its file name in a Hugging Face folder, if different
    flag: ClassVar[str] = "vocab_file"  # the flag for such a file
    changes_text: ClassVar[bool] = True  # whether its tokenizers may normalize text, for example lowercase it
    # whether the first word of a text is marked as the beginning of a word, too
    marks_first_word: ClassVar[bool] = True

    def __init__(self, token_to_id: dict[str, int], source: str = "the vocabulary", added: Sequence[AddedToken] = ()):
        self.wordpieces, self.added = token_to_id, added
        self.token_to_id = token_to_id | {token["content"]: token["id"] for token in added}  # dict
        self.id_to_token = {index: token for token, index in self.token_to_id.items()}  # dict
        self.source, self.declared = source, {}
        if added:
            self.file_name = WORDPIECE_FILE

    @classmethod
    def from_file(cls, vocab_file: str) -> "Vocabulary":
        """Read a file, and the added tokens in the Hugging Face folder that it belongs to, if any; see `load_vocab`."""
        token_to_id = load_vocab(vocab_file)
        return cls(token_to_id, vocab_file, added_tokens(vocab_file, token_to_id))

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
        return {self.their_file_name or self.file_name: self.file_content}

    @property
    def _lines(self) -> bytes:
        return "".join(f"{token}\n" for token in sorted(self.wordpieces, key=self.wordpieces.get)).encode()

    @property
    def tokenizer_json(self) -> dict[str, Any]:
        """The tokens in the form of a `tokenizer.json`."""
        plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        specials = [
            {"id": self.wordpieces[token], "content": token, **plain, "special": True}
            for token in (PAD, UNK, CLS, SEP, MASK)
            if token in self.wordpieces
        ]
        return {
            "added_tokens": sorted([*specials, *self.added], key=lambda token: token["id"]),
            "model": {
                "type": WORDPIECE,
                "unk_token": UNK,
                "continuing_subword_prefix": CONTINUATION,
                "max_input_chars_per_word": MAX_CHARACTERS_PER_WORD,
                "vocab": self.wordpieces,
            },
        }

    def name_of(self, special: str) -> str:
        return special

    def continues_word(self, token: str) -> bool:
        """Return True if a token continues the previous token's word."""
        return token.startswith(CONTINUATION)

    def characters_of(self, token: str) -> str:
        """Return a token without its word-start or continuation marker."""
        return token.removeprefix(CONTINUATION)

    def shown(self, token: str) -> str:
        return token

    def joined(self, tokens: Iterable[str]) -> str:
        """Return the text of tokens: wordpieces of a word are joined, words are separated by one space each."""
        return " ".join(tokens).replace(f" {CONTINUATION}", "")

    def require(self, *specials: str) -> list[int]:
        """Look up special tokens."""
        names = [self.name_of(special) for special in specials]
        missing = [name for name in names if name not in self.token_to_id]
        if missing:
            raise UserError(f"{self.source} lacks {', '.join(missing)}; {self._advice_on(missing[0])}")
        return [self.token_to_id[name] for name in names]

    def _advice_on(self, missing: str) -> str:
        for token, index in self.token_to_id.items():
            if token.upper() == missing:
                return f"line {index + 1} holds {token!r}: special tokens must be in capitals"
        return "is this a BERT vocabulary?"

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """Look up tokens."""
        return self._look_up(self.token_to_id, tokens)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Look up ids."""
        return self._look_up(self.id_to_token, ids)

    def _look_up(self, table: dict, keys: Iterable) -> list:
        try:
            return [table[key] for key in keys]
        except KeyError as error:
            raise KeyError(f"{error.args[0]!r} is not in {self.source}") from None
