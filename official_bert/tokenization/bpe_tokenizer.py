"""`BpeTokenizer`: the byte-level BPE of RoBERTa and ModernBERT."""

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

from official_bert.config.model_formats import MERGES_FILE, model_folder
from official_bert.config.text_settings import TextSettings
from official_bert.support import files, text_files
from official_bert.support.errors import UserError, require
from official_bert.tokenization.hf_tokenizer import (
    BPE_FILE,
    SPECIALS,
    TOKENIZER_FILE,
    AddedToken,
    TokenizerConfig,
    TokenizerJson,
    check_folder,
    complete_token,
    read_added_tokens,
    read_steps,
    read_tokenizer_config,
    tokenizer_json,
)
from official_bert.tokenization.tokenizer import EncodingWithOffsets, Tokenizer, encodable, to_unicode
from official_bert.tokenization.vocab import CLS, LAYOUT, MASK, NAMES, PAD, SEP, UNK, Vocabulary

_PREFIX_KEY = "add_prefix_space"
_FOR_UNKNOWN = ("unk_token", "fuse_unk", "byte_fallback")
_MODEL = {
    "type": ("BPE",),
    "vocab": None,
    "merges": None,
    "dropout": (None, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "ignore_merges": (False,),
    "unk_token": (None,),
    "fuse_unk": None,
    "byte_fallback": (False,),
}
_STEPS = {
    "normalizer": {"NFC": {}},
    "pre_tokenizer": {"ByteLevel": {"add_prefix_space": (True, False), "trim_offsets": None, "use_regex": (True,)}},
}
_SPACE = "\u0120"  # represents a space in a token


def _bytes_of_characters() -> dict[str, int]:
    """Map each character used in tokens to its byte: printable ones to themselves, others to the remaining bytes."""
    visible = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(visible)]
    return {chr(byte): byte for byte in visible} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES = _bytes_of_characters()


class _Preset(TypedDict, total=False):
    config: TokenizerConfig


class BpeVocabulary(Vocabulary):
    """Tokens of a byte-level BPE, and the merges that build them from bytes; special tokens are RoBERTa's."""

    file_name = BPE_FILE
    their_file_name = TOKENIZER_FILE
    other_classes = ("LongformerTokenizer", "BartTokenizer")
    changes_text = False
    marks_first_word = False
    can_grow = False
    marker = _SPACE
    special_names = NAMES
    layout = LAYOUT
    advice = "is this a RoBERTa vocabulary?"

    def __init__(
        self,
        token_to_id: dict[str, int],
        merges: Sequence[tuple[str, str]],
        source: str,
        *,
        adds_prefix_space: bool,
        composes: bool = False,
        added: Sequence[AddedToken] = (),
    ):
        super().__init__(token_to_id, source)
        self.merges = [*map(tuple, merges)]  # pairs of tokens to merge, in order of priority
        self.adds_prefix_space = adds_prefix_space  # whether text is encoded as if a space preceded it
        self.composes = composes  # whether text is first put into the normal form NFC
        self.added = added  # found in a text before it is split into words
        self._whole = {*self.names_of_specials, *(token["content"] for token in added)}  # not made of bytes

    @classmethod
    def from_file(cls, vocab_file: str) -> "BpeVocabulary":
        """Read a `tokenizer.json`, or a `vocab.json` with the `merges.txt` beside it."""
        values = text_files.read_json(vocab_file, "vocabulary", max_bytes=text_files.MAX_VOCAB_BYTES)
        folder = os.path.dirname(vocab_file)
        if not isinstance(values.get("model"), dict):  # a `vocab.json`, in which it is the id of a token
            path = os.path.join(folder, MERGES_FILE)
            if not files.exists(path):
                raise UserError(f"{vocab_file} needs {path}, which is missing; models are published with both files")
            lines = text_files.read_text(path, "list of merges", text_files.MAX_VOCAB_BYTES).split("\n")
            merges = [line for line in lines if line and not line.startswith("#version")]
            values = {"model": {"vocab": values, "merges": merges}, "pre_tokenizer": {"type": "ByteLevel"}}
        text_files.check_json(values, TokenizerJson, vocab_file)
        pieces, merges, steps = _read_model(values, vocab_file)
        adds_prefix_space = steps["ByteLevel"].get(_PREFIX_KEY, False)
        added = read_added_tokens(folder, values)
        if (model := model_folder(vocab_file)) == folder:
            said = read_tokenizer_config(folder)
        else:
            path = os.path.join(model, TOKENIZER_FILE)
            preset = text_files.read_json_as(path, "tokenizer", _Preset) if files.exists(path) else {}
            said = preset.get("config", {})
        if (value := said.get(_PREFIX_KEY)) is not None:  # as in `transformers`, it overrides the tokenizer.json
            adds_prefix_space = value
        for token in added:
            if pieces.setdefault(token["content"], token.get("id")) != token.get("id"):
                raise UserError(
                    f"{vocab_file}: the added token {token['content']!r:.80} has another id in the vocabulary"
                )
        _check(vocab_file, pieces, merges)
        kind = ModernBertVocabulary if CLS in pieces and NAMES[CLS] not in pieces else cls
        specials = {special: kind.special_names.get(special, special) for special in NAMES}
        takes_space = [token.get("lstrip", True) for token in added if token["content"] == specials[MASK]]
        added = [complete_token(token) for token in added if token["content"] not in specials.values()]
        composes = "NFC" in steps
        made = kind(pieces, merges, vocab_file, adds_prefix_space=adds_prefix_space, composes=composes, added=added)
        made.mask_takes_space = all(takes_space)
        check_folder(made, values)
        return made

    @property
    def contents(self) -> list:
        return [*self.token_to_id.items(), *self.merges, self.adds_prefix_space, *self.added, *["NFC"] * self.composes]

    @property
    def file_content(self) -> bytes:
        """The content of a `tokenizer.json`, readable by `transformers`."""
        space = {_PREFIX_KEY: self.adds_prefix_space, "trim_offsets": True}
        added = [{"id": self.token_to_id[token["content"]], **token} for token in self.added]
        values = tokenizer_json(
            added_tokens=[*self.specials_as_added, *added],
            normalizer={"type": "NFC"} if self.composes else None,
            pre_tokenizer={"type": "ByteLevel", **space, "use_regex": True},
            post_processor=self._post_processor(space),
            decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            model={
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": "",
                "end_of_word_suffix": "",
                "fuse_unk": False,
                "byte_fallback": False,
                "vocab": self.token_to_id,
                "merges": self.merges,
            },
        )
        return (json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode()

    def _post_processor(self, space: dict[str, bool]) -> dict[str, Any]:
        cls, sep = self.ends
        return {"type": "RobertaProcessing", "sep": sep, "cls": cls, **space}

    def continues_word(self, token: str) -> bool:
        """Return True if a token continues the previous token's word: it does not begin with a space."""
        return token not in self._whole and (not token.startswith((_SPACE, "<")) or token == "<")

    def shown(self, token: str) -> str:
        """Return the text of a token, including its leading space."""
        return token if token in self._whole else _text_of(token).decode("utf-8", "replace")

    def joined(self, tokens: Iterable[str]) -> str:
        """Return the text of tokens; added tokens that are no white space are set off by spaces."""
        parts = (
            (token if token.isspace() else f" {token} ").encode() if token in self._whole else _text_of(token)
            for token in tokens
        )
        return b"".join(parts).decode("utf-8", "replace").strip(" ")


class ModernBertVocabulary(BpeVocabulary):
    """Tokens of a byte-level BPE with BERT's special tokens and sequences. Source: the published `tokenizer.json`."""

    other_classes = ()
    special_names = Vocabulary.special_names
    layout = Vocabulary.layout
    has_segments = False
    advice = "is this a ModernBERT vocabulary?"

    def _post_processor(self, space: dict[str, bool]) -> dict[str, Any]:
        return self.template


class BpeTokenizer(Tokenizer):
    """Tokenizer of a byte-level BPE vocabulary: text to tokens, ids and model inputs, and back.

    Text is not normalized, except to NFC if the vocabulary says so. The `tokenizers` package splits it into words by
    GPT-2's rules, words into bytes, and merges bytes into tokens. A space belongs to the word that follows it. Special
    tokens spelled out in the text are plain text.
    """

    vocabulary_class = BpeVocabulary
    is_of_words = False
    vocabulary: BpeVocabulary

    def __init__(self, vocab_file: str | os.PathLike[str] | BpeVocabulary):
        """Read a `tokenizer.json`, or a `vocab.json` beside a `merges.txt`; or take a vocabulary that is loaded."""
        require("tokenizers", "bpe")
        from tokenizers import AddedToken as Added
        from tokenizers import Tokenizer as Splitter
        from tokenizers import models, normalizers, pre_tokenizers

        self.vocabulary = BpeVocabulary.loaded(vocab_file)
        self.vocabulary.require(UNK, CLS, SEP, PAD)
        self.settings = TextSettings(do_lower_case=False)
        try:
            self._splitter = Splitter(models.BPE(self.vocabulary.token_to_id, self.vocabulary.merges))
        except Exception as error:  # the package raises plain Exception
            raise UserError(f"{self.vocabulary.source} is not a byte-level BPE: {error}") from error
        adds_space = self.vocabulary.adds_prefix_space
        self._splitter.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=adds_space, trim_offsets=False)
        if self.vocabulary.composes:
            self._splitter.normalizer = normalizers.NFC()
        self._splitter.add_tokens([Added(**token) for token in self.vocabulary.added])
        self._added = tuple(token["content"] for token in self.vocabulary.added)

    def to_tokenizer_json(self) -> dict[str, Any]:
        """Make the content of a `tokenizer.json` with the same ids."""
        return json.loads(self.vocabulary.file_content)

    def _their_settings(self) -> dict[str, Any]:
        settings = {_PREFIX_KEY: self.vocabulary.adds_prefix_space}
        if self.vocabulary.has_segments:
            return settings
        return {**settings, **SPECIALS, "model_input_names": ["input_ids", "attention_mask"]}

    def encode(self, text: str | bytes) -> list[int]:
        """Split a text into tokens and return their ids, without special tokens; see `Tokenizer.encode`."""
        text = to_unicode(text)
        text = text if text.isascii() else encodable(text)[0]
        return self._splitter.encode(text, add_special_tokens=False).ids

    def encode_word(self, word: str | bytes) -> list[int]:
        """Encode a word of pretokenized text, as if preceded by a space."""
        word = to_unicode(word)
        return self.encode(word if word.startswith(self._added) else " " + word)

    def encode_with_offsets(self, text: str | bytes) -> EncodingWithOffsets:
        """Split a text into the tokens of `encode`, with their offsets in the text.

        The range of a token covers the characters of its bytes without surrounding white space; a token that is only
        white space covers all of it.
        """
        kept, places = encodable(to_unicode(text))
        found = self._splitter.encode(kept, add_special_tokens=False)
        starts, ends, last = [], [], 0
        for start, end in found.offsets:
            part = kept[start:end]
            if part.strip():
                start, end = start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())
            last = max(last, start)
            starts.append(places[last])
            ends.append(max(places[end - 1] + 1, ends[-1] if ends else 0))
        return EncodingWithOffsets(found.ids, starts, ends)


def _text_of(token: str) -> bytes:
    return bytes(_BYTES.get(character, ord("?")) for character in token)


def _read_model(values: TokenizerJson, path: str) -> tuple[dict[str, int], list, dict]:
    """Return the tokens, merges and steps of a `tokenizer.json`; UserError for what is not RoBERTa's."""
    model = values["model"]
    text_files.check_json(model["vocab"], dict[str, int], path, "model.vocab")
    if "merges" not in model:
        raise UserError(f"{path} has no model.merges")
    steps = read_steps(values, _STEPS, path)
    if "ByteLevel" not in steps:
        raise UserError(f"{path} has no pre_tokenizer; that of a byte-level BPE like RoBERTa's is ByteLevel")
    has_all = model["vocab"].keys() >= _BYTES.keys()  # then no text has an unknown part
    text_files.check_declared(model, _MODEL | (dict.fromkeys(_FOR_UNKNOWN) if has_all else {}), path, "model")
    merges = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    return dict(model["vocab"]), merges, steps


def _check(path: str, pieces: dict, merges: Sequence) -> None:
    if not all(type(index) is int for index in pieces.values()) or len(set(pieces.values())) != len(pieces):
        raise UserError(f"{path}: token ids must be distinct whole numbers")
    for pair in merges:
        if type(pair) is not list or len(pair) != 2 or {*map(type, pair)} != {str} or "".join(pair) not in pieces:
            raise UserError(f"{path}: {pair!r:.80} is not a merge of two tokens into a third one")
