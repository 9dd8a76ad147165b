"""Conversion of a `tokenizer.json` of type Unigram, as written by `transformers` 5, to a SentencePiece model.

The file has the pieces with their scores and the normalization rules. It lacks the kinds of pieces and the treatment of
spaces, which are the same in all models of a family.
"""

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

from official_bert.support import text_files
from official_bert.support.errors import UserError
from official_bert.support.extras import require

UNIGRAM = "Unigram"
_UNKNOWN, _CONTROL = "<unk>", {"<s>", "</s>", "<pad>", "[CLS]", "[SEP]", "[MASK]"}
_SPACES = {"Strip", "Replace"}  # strip ends and collapse spaces, as in every model


class Unigram(NamedTuple):
    """The contents of a `tokenizer.json`.

    Attributes:
      pieces: all tokens with their scores, in the order of their ids.
      charsmap: the normalization rules, as SentencePiece compiles them.
      steps: the types of all normalization steps, except for spaces and these rules.
    """

    pieces: list[tuple[str, float]]
    charsmap: bytes
    steps: set[str]

    def is_of(self, kind: Any) -> bool:
        """Return True if the special tokens and normalization steps are those of a vocabulary class."""
        names = tuple(piece for piece, _ in self.pieces)
        first, last = kind.specials_first, kind.specials_last
        has_specials = names[: len(first)] == first and names[len(names) - len(last) :] == last
        return has_specials and self.steps <= kind.text_steps

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
    """Read a `tokenizer.json` of this type.

    Raises:
      UserError: the file is damaged, or the tokenizer differs from a SentencePiece model's.
    """
    content = text_files.read_json(tokenizer_file, "tokenizer", max_bytes=text_files.MAX_VOCAB_BYTES)
    try:
        model = content["model"]
        pieces = [(str(piece), float(score)) for piece, score in model["vocab"]]
        rules, spaces = (_steps(content.get(name)) for name in ("normalizer", "pre_tokenizer"))
        charsmap = base64.b64decode(rules.pop("Precompiled", {}).get("precompiled_charsmap", ""))
        metaspace = spaces["Metaspace"]
        is_usual = (
            not model.get("byte_fallback")
            and metaspace.get("prepend_scheme", "always") == "always"
            and metaspace.get("add_prefix_space", True)
            and all(token["id"] < len(pieces) for token in content.get("added_tokens", []))
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{tokenizer_file} is damaged, or not a tokenizer of type {UNIGRAM}: {error!r:.80}") from error
    if not is_usual:
        raise not_supported(tokenizer_file)
    return Unigram(pieces, charsmap, rules.keys() - _SPACES)


def not_supported(tokenizer_file: str) -> UserError:
    """Return the error for a tokenizer that cannot be converted to a SentencePiece model."""
    return UserError(
        f"{tokenizer_file} is a {UNIGRAM} tokenizer, but unlike those of ALBERT, XLM-RoBERTa and CamemBERT; put the "
        "SentencePiece model that it was made from beside it: spiece.model or sentencepiece.bpe.model"
    )


def _steps(part: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """Return the steps of a part of a tokenizer, by type."""
    if part is None:
        return {}
    steps = part.get("normalizers") or part.get("pretokenizers") or [part]
    return {step["type"]: step for step in steps}
