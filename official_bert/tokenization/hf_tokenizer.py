"""Tokenizer files of Hugging Face folders: reads their vocabulary and settings."""

import os
import re

from absl import logging

from official_bert.config.sentence_modules import read_encoder_settings
from official_bert.support import files, text_files
from official_bert.support.errors import UserError

TOKENIZER_CONFIG_FILE, TOKENIZER_FILE = "tokenizer_config.json", "tokenizer.json"
PIECES_FILE = "vocab.json"  # used by older folders, with `merges.txt`, instead of `tokenizer.json`
BPE = "BPE"  # model type of a byte-level tokenizer
BPE_FILE = "bpe.json"  # its `tokenizer.json` beside one of our models


def read_tokenizer_file(tokenizer_file: str) -> list[str]:
    """Read the vocabulary of a `tokenizer.json`.

    Returns:
      The lines of a `vocab.txt`: the token with id n is the n-th, from 0.

    Raises:
      UserError: the file is missing or malformed, or not a WordPiece vocabulary.
    """
    model = text_files.read_json(tokenizer_file, "tokenizer", max_bytes=text_files.MAX_VOCAB_BYTES).get("model")
    ids = model.get("vocab") if isinstance(model, dict) and model.get("type") == "WordPiece" else None
    if not isinstance(ids, dict):
        raise UserError(f"{tokenizer_file} has no WordPiece vocabulary; only that of a BERT model can be used")
    for token, index in ids.items():
        if type(index) is not int:  # true and 1.0 would be equal to 1
            raise UserError(f"{tokenizer_file}: the id of the token {token!r:.80} is {index!r:.80}, not a whole number")
        if not _is_line(token):
            raise UserError(f"{tokenizer_file}: the token {token!r:.80} cannot be a line of a vocab.txt")
    id_to_token = {index: token for token, index in ids.items()}
    if sorted(id_to_token) != list(range(len(ids))):
        raise UserError(
            f"{tokenizer_file}: the ids of the {len(ids)} tokens are not 0 to {len(ids) - 1}, each exactly once"
        )
    return [id_to_token[index] for index in range(len(ids))]


def _is_line(token: str) -> bool:
    """Return True if a token survives writing to and reading from a file of lines."""
    return not set(token) & set("\r\n") and not re.search("[\ud800-\udfff]", token)


def read_settings(folder: str) -> dict[str, bool]:
    """Read text settings from `tokenizer_config.json`; warn of unsupported ones.

    Returns:
      The fields of `TextSettings` that the file sets; none if it is missing.

    Raises:
      UserError: the file is malformed.
    """
    path = os.path.join(folder, TOKENIZER_CONFIG_FILE)
    if not files.exists(path):
        return {}
    settings = text_files.read_json(path, "tokenizer config")
    for name in ("do_lower_case", "strip_accents", "do_basic_tokenize", "tokenize_chinese_chars"):
        if not isinstance(settings.get(name), bool | None):
            raise UserError(f"{path}: {name} is {settings[name]!r:.80}; it must be true, false or null")
    if settings.get("do_basic_tokenize") is False:  # then the other keys have no effect
        return {"do_lower_case": False, "basic_tokenize": False}
    do_lower_case, strip_accents = settings.get("do_lower_case"), settings.get("strip_accents")
    if do_lower_case is False and read_encoder_settings(folder).get("do_lower_case") is True:
        return {"do_lower_case": True, "strip_accents": bool(strip_accents)}
    if strip_accents and do_lower_case is False:
        logging.warning(
            "%s: strip_accents is true without do_lower_case; only lowercasing strips accents here, so ids may differ",
            path,
        )
    if settings.get("keep_accents"):
        logging.warning("%s: keep_accents is true; accents are dropped here, so ids may differ", path)
    if settings.get("tokenize_chinese_chars") is False:
        logging.warning(
            "%s: tokenize_chinese_chars is false; each Chinese character is a word here, so ids may differ", path
        )
    found = {"do_lower_case": do_lower_case, "strip_accents": strip_accents if do_lower_case is not False else None}
    return {name: value for name, value in found.items() if value is not None}
