"""Tokenizers of SentencePiece models: ALBERT's and KoBERT's with rules for text, XLM-RoBERTa's, CamemBERT's, DeBERTa's.

The ids of XLM-RoBERTa and CamemBERT are not the piece numbers of the model: fairseq, which trained them, puts its own
special tokens first and numbers the pieces after them. DeBERTa's [MASK] follows the pieces. The text of these three is
not normalized here: the rules in the model file do that.
"""

import base64
import bisect
import hashlib
import itertools
import math
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import Self

from official_bert import lazy
from official_bert.config.text_settings import TextSettings
from official_bert.support import files
from official_bert.support.errors import UserError, folder_of_tensorflow_text, install_command, require
from official_bert.support.text_files import check_declared
from official_bert.tokenization.characters import TranslationTable
from official_bert.tokenization.hf_tokenizer import (
    KOBERT_FILE,
    SPECIALS,
    UNIGRAM,
    VOCAB_FILE,
    check_folder,
    not_supported,
    read_added_tokens,
    read_tokenizer_config,
    read_unigram,
    tokenizer_json,
)
from official_bert.tokenization.tokenizer import EncodingWithOffsets, Tokenizer, encodable, to_unicode
from official_bert.tokenization.vocab import CLS, LAYOUT, MASK, NAMES, PAD, SEP, UNK, Vocabulary, read_content

MODEL_FILE = "spiece.model"
SPACE = "\u2581"  # represents a space; a piece that starts with it begins a word
# Since this version of the package, ties between equally likely splits may be resolved differently.
_FIRST_OTHER_VERSION = (0, 2, 2)
_MAX_BYTES = 32 << 20  # of trained models up to 18 MB, for 900,000 pieces
_LONGEST_PIECE = _LONGEST_RULE = 256  # characters, and bytes; of trained models about 20
_MOST_RULE_BYTES = 4 << 20  # of trained models up to 0.4 MB
_MOST_MATCHES = 32  # for the beginnings of a text, as the library has room for
_METASPACE = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always"}
_SPACE_OPTIONS = ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces")
_WHITE_SPACE = "".join(f"\\x{{{code:x}}}" for code in range(0x10000) if chr(code).isspace())
_NAMES = {PAD: "<pad>", UNK: "<unk>"}
_PUNCTUATION = frozenset('!"#$%&"()*+,-./:;?@[\\]^_`{|}~€£')
_INSIDE_WORDS = frozenset("abcdefghijklmnopqrstuvwxyz") | _PUNCTUATION


class TracedText(NamedTuple):
    text: str  # the text
    starts: list[int]  # for each of its characters, the index of its source character
    ends: list[int]  # for each, the index after that character and the dropped accents that follow it


def decompose(character: str) -> str:
    """Decompose a character and drop the accents of the result: `"ﬁ"` becomes `"fi"`, `"é"` `"e"`, U+0301 nothing.

    Lone surrogates, which UTF-8 cannot encode, are dropped too.
    """
    if unicodedata.category(character) == "Cs":
        return ""
    return "".join(part for part in unicodedata.normalize("NFKD", character) if not unicodedata.combining(part))


# Characters are decomposed independently, except for the order of combining characters, which are dropped.
_DECOMPOSED = TranslationTable(decompose)


class SentencePieceVocabulary(Vocabulary):
    """The pieces of a SentencePiece model, and the model that splits text into them."""

    file_name = their_file_name = MODEL_FILE
    other_classes = ()
    flag = "spm_model_file"
    can_grow = False
    marker = SPACE
    special_names = _NAMES
    advice = (
        "is this a model for ALBERT? spm_train makes one with pad_id=0, unk_id=1, bos_id=-1, eos_id=-1 and "
        "control_symbols=[CLS],[SEP],[MASK]"
    )
    # pattern of quotation marks, and their replacement
    quotes: ClassVar[tuple[str, str] | None] = None
    specials_first: ClassVar[tuple[str, ...]] = ()  # tokens that the model has not in these places: with the first ids
    specials_last: ClassVar[tuple[str, ...]] = ()  # with the last ids
    own_pieces: ClassVar[tuple[str, ...]] = ()  # the model's first pieces, whose ids come from `specials_first`
    # steps of a `tokenizer.json` that the tokenizer of this vocabulary does before the model
    text_steps: ClassVar[frozenset[str]] = frozenset({"quotes", "NFKD", "StripAccents", "Lowercase"})

    def __init__(self, model: bytes, source: str):
        require("sentencepiece", "sentencepiece")
        import sentencepiece

        if tuple(map(int, re.findall(r"\d+", sentencepiece.__version__)[:3])) >= _FIRST_OTHER_VERSION:
            raise UserError(
                f"sentencepiece {sentencepiece.__version__} splits some texts differently from ALBERT's and "
                f"TensorFlow's; run: {install_command('sentencepiece')}"
            )
        from google.protobuf.message import DecodeError
        from sentencepiece.sentencepiece_model_pb2 import ModelProto

        self.model = model  # the content of the file
        try:
            _check_model(ModelProto.FromString(model), source)
            # `sentencepiece.SentencePieceProcessor`
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=model or b"\0")
        except (DecodeError, RuntimeError) as error:
            raise UserError(f"{source} is not a SentencePiece model; give the file that spm_train wrote") from error
        pieces = [self.processor.id_to_piece(index) for index in range(self.processor.get_piece_size())]
        if any(self.processor.is_byte(index) for index in range(len(pieces))):
            raise UserError(
                f"{source} represents unknown characters by bytes (byte_fallback), which have no position in the text; "
                "train it without byte_fallback"
            )
        last = [token for token in self.specials_last if token not in pieces]
        tokens = (*self.specials_first, *pieces[len(self.own_pieces) :], *last)
        super().__init__({token: index for index, token in enumerate(tokens)}, source)
        self._ids = [self.token_to_id.get(piece, 0) for piece in pieces]

    def ids_of(self, numbers: Sequence[int]) -> list[int]:
        return [self._ids[number] for number in numbers] if self.specials_first else list(numbers)

    @classmethod
    def from_file(cls, vocab_file: str) -> "SentencePieceVocabulary":
        """Read a model, or the `tokenizer.json` that was made of one; for errors see the constructor."""
        unigram = read_unigram(vocab_file) if vocab_file.endswith(".json") else None
        if unigram is not None and not unigram.is_of(cls):
            raise not_supported(vocab_file)
        content = (
            unigram.to_sentencepiece(cls) if unigram else read_content(vocab_file, "SentencePiece model", _MAX_BYTES)
        )
        made, folder = cls(content, vocab_file), os.path.dirname(vocab_file)
        if cls is SentencePieceVocabulary and made.processor.id_to_piece(made.processor.unk_id()) == UNK:
            made = KobertVocabulary(content, vocab_file)
        made.declared = {} if unigram is None else {"do_lower_case": "Lowercase" in unigram.steps}
        check_folder(made, unigram and unigram.content)
        names = made.names_of_specials
        for token in read_added_tokens(folder, unigram and unigram.content):
            name = token["content"]
            is_found = name not in names and unigram is not None  # before a text is split, which a piece is not
            if is_found or made.token_to_id.get(name) != token.get("id"):
                raise UserError(
                    f"{vocab_file}: the added token {name!r:.80} with the id {token.get('id')} cannot be part of a "
                    "SentencePiece model; use a model without it"
                )
        return made

    @property
    def names_of_specials(self) -> set[str]:
        return super().names_of_specials | {*self.specials_first, *self.specials_last}  # unused ones included

    @property
    def contents(self) -> list[Any]:
        """The bytes that determine the ids of a text: the whole file, with the scores."""
        return [hashlib.sha256(self.model).hexdigest()]

    @property
    def file_content(self) -> bytes:
        return self.model

    def continues_word(self, token: str) -> bool:
        """Return True if a token continues the previous token's word, as in ALBERT's whole-word masking.

        A piece with non-English letters, or of one punctuation character, is always a separate word.
        """
        begins = token.startswith((SPACE, "<")) or token in _PUNCTUATION or token in (CLS, SEP, MASK)
        return not begins and set(token.lower()) <= _INSIDE_WORDS

    def joined(self, tokens: Iterable[str]) -> str:
        """Return the text of tokens; special tokens are set off by spaces."""
        specials = {self.name_of(special) for special in (PAD, UNK, CLS, SEP)}
        marked = (SPACE + token if token in specials else token for token in tokens)
        return " ".join("".join(marked).replace(SPACE, " ").split())


def _replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def _rules_of(spec: Any) -> list[dict[str, Any]]:
    charsmap = base64.b64encode(spec.precompiled_charsmap).decode()
    # `tokenizers` applies the rules to few characters at a time, and so composes no Hangul.
    rules = [{"type": "NFC"}, {"type": "Precompiled", "precompiled_charsmap": charsmap}] if charsmap else []
    spaces = [(rf"\A +|[ {SPACE}]+\z", ""), (" {2,}", " "), (rf"\A{SPACE}", 2 * SPACE)]
    return [*rules, *(_replace(pattern, content) for pattern, content in spaces)]


def _check_model(proto: Any, source: str) -> None:
    """Raise UserError for a model that the library would accept, but that could end the process."""
    for piece in proto.pieces:
        if len(piece.piece) > _LONGEST_PIECE or not math.isfinite(piece.score):
            raise UserError(
                f"{source}: the piece {piece.piece:.40} has {len(piece.piece)} characters and the score {piece.score}; "
                f"there must be at most {_LONGEST_PIECE}, and a finite score"
            )
    for rules in (proto.normalizer_spec.precompiled_charsmap, proto.denormalizer_spec.precompiled_charsmap):
        if rules and not _can_be_searched(rules):
            raise UserError(f"{source}: the normalization rules (precompiled_charsmap) are damaged")


def _can_be_searched(rules: bytes) -> bool:
    """Return True if every search in compiled rules stays in them.

    They are the size of a tree in bytes, the tree as a double array (Darts), and texts that end in zeros. The children
    of a unit at `place` are at `place ^ offset ^ byte`; a unit with a leaf has its text's index at `place ^ offset`.
    """
    size, texts = int.from_bytes(rules[:4], "little"), rules[4 + int.from_bytes(rules[:4], "little") :]
    if len(rules) > _MOST_RULE_BYTES or not size or size % 1024 or not texts.endswith(b"\0"):
        return False
    if max(map(len, texts.split(b"\0"))) > _LONGEST_RULE:
        return False
    units = np.frombuffer(rules, np.dtype("<u4"), size // 4, 4)
    places = np.arange(len(units), dtype=np.uint32)
    parents = np.where(units >> 31, len(units), places ^ (units & 255))  # `place ^ offset` of a unit's parent
    nodes, matches = places[:1], np.zeros(1, int)
    for _ in range(_LONGEST_RULE):  # the nodes for the first bytes of a text, then for the second ones; none in the end
        has_leaf = (units[nodes] >> 8) & 1
        bases = nodes ^ ((units[nodes] >> 10) << ((units[nodes] & 512) >> 6))
        matches = matches + has_leaf
        if bases.max() >= len(units) or matches.max() > _MOST_MATCHES:
            return False
        if (units[bases[has_leaf == 1]] & 0x7FFFFFFF >= len(texts)).any():
            return False
        matches_at = np.full(len(units) + 1, -1)
        np.maximum.at(matches_at, bases, matches)  # equal subtrees may be shared
        nodes = places[matches_at[parents] >= 0]
        matches = matches_at[parents[nodes]]
        if not len(nodes):
            return True
    return False


class PieceParts(NamedTuple):
    ids: tuple[int, ...]  # ids of its parts
    ends: tuple[int, ...]  # for each part, the number of the piece's characters up to its end, without spaces


class SentencePieceTokenizer(Tokenizer):
    """ALBERT's tokenizer: text to SentencePiece pieces, ids and model inputs, and back.

    Text is normalized by `prepare` and split by the model. A piece that ends in a digit and a comma is split
    again, so that the comma is separate: `"▁2000,"` becomes `"▁2000"` and `","`.
    Source: google-research/albert, `tokenization.py`.

    Examples:
      >>> tokenizer = SentencePieceTokenizer("albert_base_v2/30k-clean.model")
      >>> tokenizer.tokenize("The harbour slept.")
      ['▁the', '▁harbour', '▁slept', '.']
    """

    vocabulary_class = SentencePieceVocabulary
    is_of_words = False
    vocabulary: SentencePieceVocabulary

    def __init__(self, spm_model_file: str | os.PathLike[str] | SentencePieceVocabulary, do_lower_case: bool = True):
        """Read the model.

        Args:
          spm_model_file: a file that `spm_train` wrote, or a vocabulary that is already loaded.
          do_lower_case: whether to lowercase text; true for ALBERT's released models.

        Raises:
          UserError: the file is missing, is not a SentencePiece model, or lacks [CLS] or [SEP]; or the package
            sentencepiece is not installed.
        """
        self.settings = TextSettings(do_lower_case and self.vocabulary_class.changes_text)
        self.vocabulary = self.vocabulary_class.loaded(spm_model_file)
        self.vocabulary.require(UNK, CLS, SEP)
        self.parts_of_piece = dict(self._split_pieces() if self.vocabulary.changes_text else ())

    @classmethod
    def with_settings(cls, vocabulary: str | SentencePieceVocabulary, settings: TextSettings) -> Self:
        """Make a tokenizer; UserError for settings that do not apply to a SentencePiece model."""
        if not cls.vocabulary_class.changes_text:
            return super().with_settings(vocabulary, settings)
        for name, value in settings.check().changed.items():
            if name != "do_lower_case":
                raise UserError(f"{name}={str(value).lower()} cannot be used with a SentencePiece model")
        return cls(vocabulary, settings.do_lower_case)

    def in_graph(self) -> Any:
        """Return the tokenizer as TensorFlow operations; UserError if tensorflow-text is not installed."""
        folder_of_tensorflow_text("the graph of a SentencePiece model")
        return lazy.GraphSentencePieceTokenizer(self)

    def to_tokenizer_json(self) -> dict[str, Any] | None:
        """Make the content of a `tokenizer.json` with the same ids; None if `tokenizers` cannot produce them."""
        from sentencepiece.sentencepiece_model_pb2 import ModelProto, NormalizerSpec, TrainerSpec

        vocabulary, proto = self.vocabulary, ModelProto.FromString(self.vocabulary.model)
        spec, usual = proto.normalizer_spec, NormalizerSpec()
        is_usual = all(getattr(spec, name) == getattr(usual, name) for name in _SPACE_OPTIONS)
        if self.parts_of_piece or not is_usual or proto.trainer_spec.treat_whitespace_as_suffix:
            return None
        if proto.trainer_spec.model_type != TrainerSpec.UNIGRAM:
            return None
        types = ModelProto.SentencePiece
        best = max((piece.score for piece in proto.pieces if piece.type == types.NORMAL), default=0.0)
        scores = {}
        for piece in proto.pieces:
            is_chosen = piece.type == types.USER_DEFINED  # wherever it occurs, as the library computes
            scores[piece.piece] = len(piece.piece.encode()) * best - 0.1 if is_chosen else piece.score
        tokens = sorted(vocabulary.token_to_id, key=vocabulary.token_to_id.get)
        return tokenizer_json(
            added_tokens=vocabulary.specials_as_added,
            normalizer={"type": "Sequence", "normalizers": [*self._their_steps(), *_rules_of(spec)]},
            pre_tokenizer={**_METASPACE, "split": not any(SPACE in token[1:] for token in tokens)},
            post_processor=vocabulary.template,
            decoder={**_METASPACE, "split": True},
            model={
                "type": UNIGRAM,
                "unk_id": self.unk_id,
                "vocab": [[token, scores.get(token, 0.0)] for token in tokens],
                "byte_fallback": False,
            },
        )

    def _their_steps(self) -> list[dict[str, Any]]:
        """Return the steps of `prepare` as a normalizer of `tokenizers`."""
        if not self.vocabulary.changes_text:
            return []
        final_sigma = r"(?<=\p{Cased}|\p{Cased}\p{Case_Ignorable})Σ(?!\p{Case_Ignorable}*\p{Cased})"
        lower = [_replace(final_sigma, "ς"), {"type": "Lowercase"}]
        accents = "".join(f"\\x{{{code:x}}}" for code in range(sys.maxunicode + 1) if unicodedata.combining(chr(code)))
        steps = [_replace(f"[{_WHITE_SPACE}]+", " "), {"type": "NFKD"}]
        if self.vocabulary.quotes:
            steps.insert(0, _replace(*self.vocabulary.quotes))
        return [*steps, _replace(f"[{accents}]", ""), *(lower if self.settings.do_lower_case else [])]

    def _their_settings(self) -> dict[str, Any]:
        settings = {"do_lower_case": self.settings.do_lower_case, "keep_accents": False, "remove_space": True}
        if not self.vocabulary.special_names:  # XLNet's class would put [CLS] at the end
            inputs = ["input_ids", "token_type_ids", "attention_mask"]
            settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs, **SPECIALS}
        return settings if self.vocabulary.changes_text else {}

    def _split_pieces(self) -> Iterable[tuple[int, PieceParts]]:
        processor = self.vocabulary.processor
        for piece, index in self.vocabulary.token_to_id.items():
            if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
                continue
            text = piece[:-1].replace(SPACE, "")
            parts = processor.encode(text, out_type=str)
            if not piece.startswith(SPACE) and parts[0].startswith(SPACE):
                parts = parts[1:] if parts[0] == SPACE else [parts[0][1:], *parts[1:]]
            parts.append(",")
            ends = itertools.accumulate(len(part.replace(SPACE, "")) for part in parts)
            yield index, PieceParts(tuple(map(processor.piece_to_id, parts)), tuple(ends))

    def _with_one_quote(self, text: str) -> str:
        return re.sub(*self.vocabulary.quotes, text) if self.vocabulary.quotes else text

    def prepare(self, text: str) -> str:
        """Return the normalized text that the model splits."""
        text = " ".join(self._with_one_quote(text).split())
        if not text.isascii():
            text = text.translate(_DECOMPOSED)
        return text.lower() if self.settings.do_lower_case else text

    def prepare_traced(self, text: str) -> TracedText:
        """Return the normalized text with the source of each character."""
        text = self._with_one_quote(text)
        characters: list[str] = []
        starts: list[int] = []
        ends: list[int] = []
        first_of_last = 0  # index of the first result of the last kept character
        for index, character in enumerate(text):
            if character.isspace():
                replacement = " " if index and not text[index - 1].isspace() else ""
            elif not (replacement := _DECOMPOSED[ord(character)]):
                ends[first_of_last:] = [index + 1] * (len(ends) - first_of_last)  # an accent
                continue
            first_of_last = len(characters)
            characters += replacement
            starts += [index] * len(replacement)
            ends += [index + 1] * len(replacement)
        if 0 < len(text.rstrip()) < len(text):  # the space after the last word
            del characters[-1], starts[-1], ends[-1]
        prepared = "".join(characters)
        # Once decomposed, every character has one lowercase letter.
        return TracedText(prepared.lower() if self.settings.do_lower_case else prepared, starts, ends)

    def encode(self, text: str | bytes) -> list[int]:
        """Split a text into pieces and return their ids, without [CLS] and [SEP]; see `Tokenizer.encode`."""
        ids = self.vocabulary.ids_of(self.vocabulary.processor.encode(self.prepare(to_unicode(text)), out_type=int))
        if self.parts_of_piece.keys().isdisjoint(ids):
            return ids
        parts = self.parts_of_piece
        return [part for index in ids for part in (parts[index].ids if index in parts else (index,))]

    def encode_with_offsets(self, text: str | bytes) -> EncodingWithOffsets:
        """Split a text into pieces with their offsets in the text.

        Returns:
          `ids` are those of `encode`. The range of a piece covers its characters without surrounding spaces; a dropped
          accent belongs to the character before it. A piece that is only the word-start marker has the range of the
          character after it.
        """
        traced = self.prepare_traced(to_unicode(text))
        visible = [index for index, character in enumerate(traced.text) if not character.isspace()]
        visible = visible or list(range(len(traced.text)))

        ids: list[int] = []
        firsts: list[int] = []  # indices of visible characters
        lasts: list[int] = []
        for piece in self.vocabulary.processor.encode(traced.text, out_type="immutable_proto").pieces:
            first, after = (bisect.bisect_left(visible, place) for place in (piece.begin, piece.end))
            parts = self.parts_of_piece.get(piece.id, PieceParts((piece.id,), (after - first,)))
            begin = 0
            for part, end in zip(parts.ids, parts.ends, strict=True):
                if parts.ends[-1] != after - first:  # the model rewrote characters: their positions are unknown
                    begin, end = 0, after - first
                ids.append(part)
                firsts.append(min(first + begin, len(visible) - 1))
                lasts.append(max(first + end - 1, firsts[-1]))
                begin = end
        starts = [traced.starts[visible[first]] for first in firsts]
        ends = [traced.ends[visible[last]] for last in lasts]
        return EncodingWithOffsets(self.vocabulary.ids_of(ids), starts, ends)


class KobertVocabulary(SentencePieceVocabulary):
    """The pieces of KoBERT's model, which has BERT's names of special tokens.

    Source: SKTBrain/KoBERT, `kobert_tokenizer.py`, and monologg/KoBERT-Transformers, `tokenization_kobert.py`.
    """

    other_classes = ("XLNetTokenizer", "KoBERTTokenizer", "KoBertTokenizer")
    special_names = Vocabulary.special_names
    quotes = ("``|''", '"\u0301')  # the accent, which is dropped later, stands for the second character in offsets

    def __init__(self, model: bytes, source: str):
        super().__init__(model, source)
        folder, name = os.path.split(source)
        path = os.path.join(folder, VOCAB_FILE)
        if name != KOBERT_FILE or not files.exists(path):
            return
        lines = read_content(path, "vocabulary").decode(errors="replace").split("\n")
        if [line.strip() for line in lines if line] != [*self.token_to_id]:
            raise UserError(
                f"{path} does not list the pieces of the {name} beside it, by which ids are given; restore it"
            )

    def continues_word(self, token: str) -> bool:
        """Return True if a token continues the previous token's word: it does not begin with a space."""
        return not token.startswith(SPACE) and token not in SPECIALS.values()


class XlmRobertaVocabulary(SentencePieceVocabulary):
    """The pieces of XLM-RoBERTa's model, after four special tokens and before `<mask>`.

    Source: transformers 4, `XLMRobertaTokenizer`.
    """

    file_name = their_file_name = "sentencepiece.bpe.model"
    changes_text = False
    special_names = NAMES
    layout = LAYOUT
    advice = "is this the SentencePiece model of XLM-RoBERTa or CamemBERT?"
    specials_first = (NAMES[CLS], NAMES[PAD], NAMES[SEP], NAMES[UNK])
    specials_last = (NAMES[MASK],)
    own_pieces = (NAMES[UNK], NAMES[CLS], NAMES[SEP])
    text_steps = frozenset()

    def continues_word(self, token: str) -> bool:
        """Return True if a token continues the previous token's word: it does not begin with a space."""
        return not token.startswith(SPACE) and token not in NAMES.values()


class CamembertVocabulary(XlmRobertaVocabulary):
    """The pieces of CamemBERT's model, after four special tokens, two of them unused, and before `<mask>`.

    Source: transformers 4, `CamembertTokenizer`.
    """

    file_name = "camembert.bpe.model"
    specials_first = ("<s>NOTUSED", NAMES[PAD], "</s>NOTUSED", NAMES[UNK], "<unk>NOTUSED")
    own_pieces = (NAMES[UNK],)


class DebertaVocabulary(SentencePieceVocabulary):
    """The pieces of DeBERTa's model, with BERT's names of special tokens, and [MASK] after them.

    Source: transformers 4, `DebertaV2Tokenizer`.
    """

    file_name = their_file_name = "spm.model"
    changes_text = False
    special_names = Vocabulary.special_names
    advice = "is this the SentencePiece model of a DeBERTa-v2 or -v3?"
    specials_last = (MASK,)
    text_steps = frozenset()
    continues_word = KobertVocabulary.continues_word

    @classmethod
    def from_file(cls, vocab_file: str) -> "DebertaVocabulary":
        """Read a model; UserError if the files beside it say that text is changed before."""
        config = read_tokenizer_config(os.path.dirname(vocab_file))
        unchanged = {key: config.get(key) for key in ("do_lower_case", "split_by_punct")}
        check_declared(unchanged, dict.fromkeys(unchanged, (None, False)), vocab_file)
        return super().from_file(vocab_file)


class XlmRobertaTokenizer(SentencePieceTokenizer):
    """XLM-RoBERTa's tokenizer: text to pieces, ids and model inputs, and back."""

    vocabulary_class = XlmRobertaVocabulary

    def prepare(self, text: str) -> str:
        """Return the text without lone surrogates."""
        return text if text.isascii() else encodable(text)[0]

    def prepare_traced(self, text: str) -> TracedText:
        """Return the text with the source of each character."""
        kept, places = encodable(text)
        return TracedText(kept, places, [place + 1 for place in places])


class DebertaTokenizer(XlmRobertaTokenizer):
    """DeBERTa's tokenizer: like XLM-RoBERTa's, with the ids of the model's pieces."""

    vocabulary_class = DebertaVocabulary


class CamembertTokenizer(XlmRobertaTokenizer):
    """CamemBERT's tokenizer: like XLM-RoBERTa's, with other ids."""

    vocabulary_class = CamembertVocabulary
