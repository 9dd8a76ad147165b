"""Loads the tokenizer given by flags or found in a model's folder, of any supported kind."""

import os
from typing import Protocol

from official_bert.config.sentence_modules import encoder_folder
from official_bert.config.text_settings import TextSettings
from official_bert.support import hub
from official_bert.tokenization.tokenizer import Tokenizer
from official_bert.tokenization.tokenizer_files import kind_of_file, try_find_vocabulary
from official_bert.tokenization.vocab import Vocabulary


class TokenizerFlags(Protocol):
    """Flags that select a tokenizer; one of the two files is None."""

    vocab_file: str | None
    spm_model_file: str | None
    text_settings: TextSettings


def read_vocabulary(flags: TokenizerFlags) -> Vocabulary:
    """Read the vocabulary given by flags.

    Raises:
      UserError: the file is missing or damaged.
    """
    kind, path = _named(flags)
    return kind.vocabulary_class.from_file(path)


def read_vocabulary_file(path: str) -> Vocabulary:
    """Read a vocabulary file; its name and content determine its kind.

    Raises:
      UserError: the file is missing or damaged.
    """
    return kind_of_file(path).vocabulary_class.from_file(path)


def read_tokenizer(flags: TokenizerFlags) -> Tokenizer:
    """Read the tokenizer given by flags.

    Raises:
      UserError: the file is missing or damaged, or the flags contradict each other.
    """
    kind, path = _named(flags)
    return kind.with_settings(path, flags.text_settings)


def _named(flags: TokenizerFlags) -> tuple[type[Tokenizer], str]:
    """Return the tokenizer class for the vocabulary given by flags, and the vocabulary's file."""
    given = {flag: getattr(flags, flag) for flag in ("vocab_file", "spm_model_file")}
    flag, path = next((flag, path) for flag, path in given.items() if path is not None)
    return kind_of_file(path, flag), path


def load_tokenizer(folder: str | os.PathLike[str], **settings: bool) -> Tokenizer:
    """Load the tokenizer of a model.

    Args:
      folder: folder of a released checkpoint, output folder of a run, or a Hugging Face folder, possibly
        `hf://owner/name`; it contains `vocab.txt`, `tokenizer.json`, `vocab.json` with `merges.txt`,
        `spiece.model` or `sentencepiece.bpe.model`.
      **settings: fields of `TextSettings` that override the folder's.

    Returns:
      A `FullTokenizer`, a `BpeTokenizer` or a SentencePiece tokenizer, depending on the files.

    Raises:
      UserError: the folder or its vocabulary is missing or damaged, or the settings do not fit them.
    """
    folder = encoder_folder(hub.local_folder(os.fspath(folder)))
    return kind_of_file(try_find_vocabulary(folder) or "").from_folder(folder, **settings)
