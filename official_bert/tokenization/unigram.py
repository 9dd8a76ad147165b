"""Conversion of a `tokenizer.json` of type Unigram, as written by `transformers` 5, to a SentencePiece model.

The file has the pieces with their scores and the normalization rules. It lacks the special pieces and the treatment of
spaces, which are the same in all models of fairseq.
"""

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

from official_bert.support import text_files
from official_bert.support.errors import UserError
from official_bert.support.extras import require

UNIGRAM = "Unigram"
_OWN_PIECES = ("<unk>", "<s>", "</s>")  # the first pieces of every fairseq model
_SPACES = {"Strip", "Replace"}  # strip ends and collapse spaces, as in every model


class Unigram(NamedTuple):
    """The contents of a `tokenizer.json`.

    Attributes:
      pieces: all tokens with their scores, in the order of their ids.
      charsmap: the normalization rules, as SentencePiece compiles them.
    """

    pieces: list[tuple[str, float]]
    charsmap: bytes

    def to_sentencepiece(self, num_specials: int, own_pieces: int) -> bytes:
        """Return the SentencePiece model.

        Args:
          num_specials: number of tokens before the model's pieces.
          own_pieces: number of these that the model itself defines. The last token is not a piece of the
            model.
        """
        require("sentencepiece", "sentencepiece")
        from sentencepiece.sentencepiece_model_pb2 import ModelProto

        own = [(name, 0.0) for name in _OWN_PIECES[:own_pieces]]
        kinds = dict.fromkeys(_OWN_PIECES, ModelProto.SentencePiece.CONTROL)
        kinds[_OWN_PIECES[0]] = ModelProto.SentencePiece.UNKNOWN
        proto = ModelProto()
        for piece, score in [*own, *self.pieces[num_specials:-1]]:
            proto.pieces.add(piece=piece, score=score, type=kinds.get(piece, ModelProto.SentencePiece.NORMAL))
        proto.normalizer_spec.precompiled_charsmap = self.charsmap
        return proto.SerializeToString(deterministic=True)


def read_unigram(tokenizer_file: str) -> Unigram:
    """Read a `tokenizer.json` of this type.

    Raises:
      UserError: the file is damaged, or the tokenizer differs from fairseq's SentencePiece models.
    """
    content = text_files.read_json(tokenizer_file, "tokenizer", max_bytes=text_files.MAX_VOCAB_BYTES)
    try:
        model = content["model"]
        pieces = [(str(piece), float(score)) for piece, score in model["vocab"]]
        rules, spaces = (_steps(content.get(name)) for name in ("normalizer", "pre_tokenizer"))
        charsmap = base64.b64decode(rules.pop("Precompiled", {}).get("precompiled_charsmap", ""))
        metaspace = spaces["Metaspace"]
        is_usual = (
            rules.keys() <= _SPACES
            and not model.get("byte_fallback")
            and metaspace.get("prepend_scheme", "always") == "always"
            and metaspace.get("add_prefix_space", True)
            and all(token["id"] < len(pieces) for token in content.get("added_tokens", []))
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{tokenizer_file} is damaged, or not a tokenizer of type {UNIGRAM}: {error!r:.80}") from error
    if not is_usual:
        raise not_supported(tokenizer_file)
    return Unigram(pieces, charsmap)


def not_supported(tokenizer_file: str) -> UserError:
    """Return the error for a tokenizer that cannot be converted to a SentencePiece model."""
    return UserError(
        f"{tokenizer_file} is a {UNIGRAM} tokenizer, but unlike those of XLM-RoBERTa and CamemBERT; put the "
        "SentencePiece model that it was made from beside it: spiece.model or sentencepiece.bpe.model"
    )


def _steps(part: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """Return the steps of a part of a tokenizer, by type."""
    if part is None:
        return {}
    steps = part.get("normalizers") or part.get("pretokenizers") or [part]
    return {step["type"]: step for step in steps}
