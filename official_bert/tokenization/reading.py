"""Reads the tokenizer that flags name, or that lies beside a model: one of wordpieces, or a SentencePiece model."""

import os
from typing import Protocol

from official_bert.config.text_settings import TextSettings
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.tokenization.folder import find_settings
from official_bert.tokenization.full_tokenizer import FullTokenizer
from official_bert.tokenization.sentencepiece_tokenizer import (
    MODEL_FILE,
    SentencePieceTokenizer,
    SentencePieceVocabulary,
)
from official_bert.tokenization.tokenizer import Tokenizer
from official_bert.tokenization.vocab import Vocabulary


class TokenizerFlags(Protocol):
    """The flags that name a tokenizer; one of the two files is None."""

    vocab_file: str | None
    spm_model_file: str | None
    text_settings: TextSettings


def read_vocabulary(flags: TokenizerFlags) -> Vocabulary:
    """Reads the vocabulary that flags name.

    Raises:
      UserError: the file is missing or damaged.
    """
    if flags.spm_model_file is not None:
        return SentencePieceVocabulary.from_file(flags.spm_model_file)
    return Vocabulary.from_file(flags.vocab_file)


def read_vocabulary_file(path: str) -> Vocabulary:
    """Reads the vocabulary file of a model's folder, a SentencePiece model or a list of wordpieces, by its name.

    Raises:
      UserError: the file is missing or damaged.
    """
    kind = SentencePieceVocabulary if os.path.basename(path) == MODEL_FILE else Vocabulary
    return kind.from_file(path)


def read_tokenizer(flags: TokenizerFlags) -> Tokenizer:
    """Reads the tokenizer that flags name.

    Raises:
      UserError: the file is missing or damaged, or the flags contradict each other.
    """
    if flags.spm_model_file is not None:
        return SentencePieceTokenizer(flags.spm_model_file, _casing(flags.text_settings))
    return FullTokenizer(flags.vocab_file, **flags.text_settings._asdict())


def load_tokenizer(folder: str | os.PathLike, **settings: bool) -> Tokenizer:
    """Reads the tokenizer of a model.

    Args:
      folder: folder of a released checkpoint, output folder of a run, or a Hugging Face folder; it contains
        `vocab.txt`, `tokenizer.json` or `spiece.model`.
      **settings: fields of `TextSettings`, where another value than the folder's is wanted.

    Returns:
      A `FullTokenizer` or, if there is only a `spiece.model`, a `SentencePieceTokenizer`.

    Raises:
      UserError: the folder or its vocabulary is missing or damaged, or the settings do not fit them.
    """
    folder = os.fspath(folder)
    model_file = os.path.join(folder, MODEL_FILE)
    if not files.exists(model_file) or files.exists(os.path.join(folder, Vocabulary.file_name)):
        return FullTokenizer.from_folder(folder, **settings)
    vocabulary = SentencePieceVocabulary.from_file(model_file)
    return SentencePieceTokenizer(vocabulary, _casing(find_settings(folder, vocabulary, settings)))


def _casing(settings: TextSettings) -> bool:
    """The only setting that a SentencePiece model leaves open.

    Raises:
      UserError: another one is given.
    """
    for name in settings.check().changed:
        if name != "do_lower_case":
            raise UserError(f"{name}=false cannot be used with a SentencePiece model")
    return settings.do_lower_case
