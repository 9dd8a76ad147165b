"""SentencePiece tokenizers of XLM-RoBERTa and CamemBERT, whose ids are not the piece numbers of the model.

fairseq, which trained these models, puts its own special tokens first and numbers the pieces after them. Text is not
normalized here: the rules in the model file do that.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from official_bert.config.text_settings import TextSettings
from official_bert.tokenization.sentencepiece_tokenizer import (
    SPACE,
    SentencePieceTokenizer,
    SentencePieceVocabulary,
    TracedText,
)
from official_bert.tokenization.sequences import LAYOUT, NAMES, RobertaSequences
from official_bert.tokenization.vocab import CLS, MASK, PAD, SEP, UNK


class XlmRobertaVocabulary(SentencePieceVocabulary):
    """The pieces of XLM-RoBERTa's model, after four special tokens and before `<mask>`.

    Source: transformers 4, `XLMRobertaTokenizer`.
    """

    file_name: ClassVar[str] = "sentencepiece.bpe.model"
    changes_text: ClassVar[bool] = False
    specials_first: ClassVar[tuple[str, ...]] = (NAMES[CLS], NAMES[PAD], NAMES[SEP], NAMES[UNK])
    specials_last: ClassVar[tuple[str, ...]] = (NAMES[MASK],)
    own_pieces: ClassVar[tuple[str, ...]] = (NAMES[UNK], NAMES[CLS], NAMES[SEP])
    text_steps: ClassVar[frozenset[str]] = frozenset()
    layout: ClassVar[Mapping[str, int]] = LAYOUT
    their_class: ClassVar[str] = "XLMRobertaTokenizer"

    def numbered(self, pieces: Sequence[str]) -> dict[str, int]:
        """Return the ids of the pieces, given those of the model in order."""
        following = pieces[len(self.own_pieces) :]
        return {piece: index for index, piece in enumerate((*self.specials_first, *following, *self.specials_last))}

    def ids_of(self, numbers: Sequence[int]) -> list[int]:
        """Return the ids of pieces, given their numbers in the model."""
        unknown, shift = self.specials_first.index(NAMES[UNK]), len(self.specials_first) - len(self.own_pieces)
        return [number + shift if number else unknown for number in numbers]

    def name_of(self, special: str) -> str:
        return NAMES.get(special, special)

    def continues_word(self, token: str) -> bool:
        """Return True if a token continues the previous token's word: it does not begin with a space."""
        return not token.startswith(SPACE) and token not in NAMES.values()

    def _advice_on(self, missing: str) -> str:
        return "is this the SentencePiece model of XLM-RoBERTa or CamemBERT?"


class CamembertVocabulary(XlmRobertaVocabulary):
    """The pieces of CamemBERT's model, after four special tokens, two of them unused, and before `<mask>`.

    Source: transformers 4, `CamembertTokenizer`.
    """

    file_name: ClassVar[str] = "camembert.bpe.model"
    their_file_name: ClassVar[str] = XlmRobertaVocabulary.file_name
    their_class: ClassVar[str] = "CamembertTokenizer"
    specials_first: ClassVar[tuple[str, ...]] = ("<s>NOTUSED", NAMES[PAD], "</s>NOTUSED", NAMES[UNK], "<unk>NOTUSED")
    own_pieces: ClassVar[tuple[str, ...]] = (NAMES[UNK],)


class XlmRobertaTokenizer(RobertaSequences, SentencePieceTokenizer):
    """XLM-RoBERTa's tokenizer: text to pieces, ids and model inputs, and back."""

    vocabulary_class = XlmRobertaVocabulary

    def __init__(self, spm_model_file, do_lower_case: bool = False):
        """Read the model; see `SentencePieceTokenizer`, but text is never lowercased."""
        if isinstance(spm_model_file, SentencePieceVocabulary):
            vocabulary = spm_model_file
        else:
            vocabulary = self.vocabulary_class.from_file(spm_model_file)
        super().__init__(vocabulary, do_lower_case)

    @classmethod
    def with_settings(cls, vocabulary: Any, settings: TextSettings) -> "XlmRobertaTokenizer":
        """Make a tokenizer; UserError for settings that change the text."""
        settings.require_unchanged_text("this SentencePiece model")
        return cls(vocabulary)

    def _their_settings(self) -> dict[str, Any]:
        return {}

    def _their_steps(self) -> list:
        return []

    def _split_pieces(self) -> list:
        return []

    def prepare(self, text: str) -> str:
        """Return the text without lone surrogates, which UTF-8 cannot encode."""
        return text if text.isascii() else text.encode("utf-8", "ignore").decode()

    def prepare_traced(self, text: str) -> TracedText:
        """Return the text with the source of each character."""
        places = [place for place, character in enumerate(text) if not "\ud800" <= character <= "\udfff"]
        return TracedText("".join(text[place] for place in places), places, [place + 1 for place in places])


class CamembertTokenizer(XlmRobertaTokenizer):
    """CamemBERT's tokenizer: like XLM-RoBERTa's, with other ids."""

    vocabulary_class = CamembertVocabulary
