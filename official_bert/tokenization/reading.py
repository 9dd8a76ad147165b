"""Reads the tokenizer that flags name, or that lies beside a model: one of wordpieces, or a SentencePiece model."""

import os
from typing import Protocol

from official_bert.config.sentence_modules import encoder_folder
from official_bert.config.text_settings import TextSettings
from official_bert.support import hub
from official_bert.tokenization.tokenizer import Tokenizer
from official_bert.tokenization.tokenizer_files import kind_of_file, try_find_vocabulary
from official_bert.tokenization.vocab import Vocabulary


class TokenizerFlags(Protocol):
    """The flags that name a tokenizer; one of the two files is None."""

    vocab_file: str | None
    spm_model_file: str | None
    text_settings: TextSettings


def read_vocabulary(flags: TokenizerFlags) -> Vocabulary:
    """Read the vocabulary that flags name.

    Raises:
      UserError: the file is missing or damaged.
    """
    kind, path = _named(flags)
    return kind.vocabulary_class.from_file(path)


def read_vocabulary_file(path: str) -> Vocabulary:
    """Read the vocabulary file of a model's folder, a SentencePiece model or a list of wordpieces, by its name.

    Raises:
      UserError: the file is missing or damaged.
    """
    return kind_of_file(path).vocabulary_class.from_file(path)


def read_tokenizer(flags: TokenizerFlags) -> Tokenizer:
    """Read the tokenizer that flags name.

    Raises:
      UserError: the file is missing or damaged, or the flags contradict each other.
    """
    kind, path = _named(flags)
    return kind.with_settings(path, flags.text_settings)


def _named(flags: TokenizerFlags) -> tuple[type[Tokenizer], str]:
    """Return the class of tokenizers whose vocabulary flags name, and its file."""
    given = {flag: getattr(flags, flag) for flag in ("vocab_file", "spm_model_file")}
    flag, path = next((flag, path) for flag, path in given.items() if path is not None)
    return kind_of_file(path, flag), path


def load_tokenizer(folder: str | os.PathLike, **settings: bool) -> Tokenizer:
    """Read the tokenizer of a model.

    Args:
      folder: folder of a released checkpoint, output folder of a run, or a Hugging Face folder, also
        `hf://owner/name`; it contains `vocab.txt`, `tokenizer.json`, `vocab.json` with `merges.txt`,
        `spiece.model` or `sentencepiece.bpe.model`.
      **settings: fields of `TextSettings`, where another value than the folder's is wanted.

    Returns:
      A `FullTokenizer`, a `BpeTokenizer`, or one with a SentencePiece model: the files decide.

    Raises:
      UserError: the folder or its vocabulary is missing or damaged, or the settings do not fit them.
    """
    folder = encoder_folder(hub.local_folder(os.fspath(folder)))
    return kind_of_file(try_find_vocabulary(folder) or "").from_folder(folder, **settings)
