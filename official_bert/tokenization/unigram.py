"""Conversion of a `tokenizer.json` of type Unigram, as written by `transformers` 5, to a SentencePiece model.

The file has the pieces with their scores and the normalization rules. It lacks the kinds of pieces and the treatment of
spaces, which are the same in all models of a family.
"""

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

from official_bert.support.errors import UserError
from official_bert.support.extras import require
from official_bert.tokenization.hf_tokenizer import TokenizerJson, check_declared, read_tokenizer_json, steps_of

UNIGRAM = "Unigram"
_UNKNOWN, _CONTROL = "<unk>", {"<s>", "</s>", "<pad>", "[CLS]", "[SEP]", "[MASK]"}
# Replacements of quotation marks, and of several spaces, by one.
_QUOTES, _SPACES = "quotes", "spaces"
_CHANGING, _OPTIONAL = {_QUOTES, "NFKD", "StripAccents", "Lowercase"}, {_QUOTES, "Lowercase"}
# Known steps and their options, in the order in which they may occur.
_STEPS = {
    _QUOTES: {"pattern": ({"String": "``"}, {"String": "''"}), "content": ('"',)},
    "NFKD": {},
    "StripAccents": {},
    "Lowercase": {},
    "Precompiled": {"precompiled_charsmap": None},
    "Strip": {"strip_left": (True, False), "strip_right": (True,)},
    _SPACES: {"pattern": ({"Regex": " {2,}"},), "content": (" ", "\u2581")},
    "WhitespaceSplit": {},
    "Metaspace": {
        "replacement": ("\u2581",),
        "str_rep": ("\u2581",),
        "prepend_scheme": ("always",),
        "add_prefix_space": (True,),
        "split": (True,),
    },
}
_MODEL = {"type": (UNIGRAM,), "vocab": None, "byte_fallback": (False,)}


class Unigram(NamedTuple):
    """The contents of a `tokenizer.json`.

    Attributes:
      pieces: all tokens with their scores, in the order of their ids.
      charsmap: the normalization rules, as SentencePiece compiles them.
      steps: the types of the steps before these rules.
      content: the content of the file.
    """

    pieces: list[tuple[str, float]]
    charsmap: bytes
    steps: frozenset[str]
    content: TokenizerJson

    def is_of(self, kind: Any) -> bool:
        """Return True if the special tokens and normalization steps are those of a vocabulary class."""
        names = tuple(piece for piece, _ in self.pieces)
        first, last = kind.specials_first, kind.specials_last
        has_specials = names[: len(first)] == first and names[len(names) - len(last) :] == last
        has_steps = kind.text_steps - _OPTIONAL <= self.steps <= kind.text_steps
        return has_specials and has_steps and bool(self.charsmap or kind.changes_text)

    def to_sentencepiece(self, kind: Any) -> bytes:
        """Return the SentencePiece model of a vocabulary class."""
        require("sentencepiece", "sentencepiece")
        from sentencepiece.sentencepiece_model_pb2 import ModelProto

        own = [(name, 0.0) for name in kind.own_pieces]
        types = ModelProto.SentencePiece
        named = {_UNKNOWN: types.UNKNOWN, **dict.fromkeys(_CONTROL, types.CONTROL)}
        proto = ModelProto()
        for piece, score in [*own, *self.pieces[len(kind.specials_first) : len(self.pieces) - len(kind.specials_last)]]:
            proto.pieces.add(piece=piece, score=score, type=named.get(piece, types.NORMAL))
        proto.normalizer_spec.precompiled_charsmap = self.charsmap
        return proto.SerializeToString(deterministic=True)


def read_unigram(tokenizer_file: str) -> Unigram:
    """Read a `tokenizer.json` of this type; UserError if its tokenizer differs from a SentencePiece model's."""
    content = read_tokenizer_json(tokenizer_file)
    model = content["model"]
    pieces = model["vocab"]
    if not isinstance(pieces, list) or not all(_is_piece(piece) for piece in pieces):
        raise UserError(f"{tokenizer_file}: model.vocab must be a list of tokens with their scores")
    names = [name for name, _ in pieces]
    unknown = names.index(_UNKNOWN) if _UNKNOWN in names else None
    check_declared(model, {**_MODEL, "unk_id": (unknown,)}, tokenizer_file, "model")
    found: dict[str, Mapping[str, Any]] = {}
    for part in ("normalizer", "pre_tokenizer"):
        for place, step in steps_of(content, part, tokenizer_file):
            kind = str(step.get("type"))
            if kind == "Replace":
                kind = _SPACES if "Regex" in str(step.get("pattern")) else _QUOTES
            known = (
                {"type": ("Replace" if kind in (_QUOTES, _SPACES) else kind,), **_STEPS[kind]} if kind in _STEPS else {}
            )
            check_declared(step, known, tokenizer_file, place)
            if any([*_STEPS].index(other) > [*_STEPS].index(kind) for other in found):
                raise UserError(f"{tokenizer_file}: {place} ({kind}) comes too late for a SentencePiece model")
            found[kind] = step
    if "Metaspace" not in found or not ("WhitespaceSplit" in found or {"Strip", _SPACES} <= found.keys()):
        raise UserError(f"{tokenizer_file}: pre_tokenizer does not treat spaces as a SentencePiece model does")
    rules = found.get("Precompiled", {}).get("precompiled_charsmap") or ""
    try:
        charsmap = base64.b64decode(rules, validate=True)
    except (TypeError, ValueError) as error:
        raise UserError(f"{tokenizer_file}: the precompiled_charsmap of the normalizer is damaged: {error}") from error
    return Unigram(pieces, charsmap, frozenset(found) & _CHANGING, content)


def _is_piece(piece: Any) -> bool:
    return type(piece) is list and len(piece) == 2 and type(piece[0]) is str and type(piece[1]) in (int, float)


def not_supported(tokenizer_file: str) -> UserError:
    """Return the error for a tokenizer that cannot be converted to a SentencePiece model."""
    return UserError(
        f"{tokenizer_file} is a {UNIGRAM} tokenizer, but unlike those of ALBERT, XLM-RoBERTa and CamemBERT; put the "
        "SentencePiece model that it was made from beside it: spiece.model or sentencepiece.bpe.model"
    )
