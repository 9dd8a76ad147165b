"""Reads the tokenizer of a model's folder: the vocabulary, and whether text is lowercased.

The folder is that of a released checkpoint, the output folder of a run, or a Hugging Face folder.
"""

import os

from absl import logging

from official_bert.support import files, text_files
from official_bert.support.errors import UserError
from official_bert.tokenization.casing import is_cased
from official_bert.tokenization.hf_tokenizer import TOKENIZER_CONFIG_FILE, read_do_lower_case, read_tokens
from official_bert.tokenization.vocab import Vocabulary, number_tokens

_RUN_CONFIG_FILE = "run_config.json"  # `training.run_folder` writes it


def read_vocabulary(folder: str) -> Vocabulary:
    """Reads the vocabulary of a folder, from `vocab.txt` or, if there is none, from `tokenizer.json`.

    Raises:
      UserError: the folder is missing or holds no vocabulary, or the file is damaged.
    """
    if not files.exists(folder):
        raise UserError(f"there is no folder {folder}; models are not downloaded: give a local folder")
    if not files.is_folder(folder):
        raise UserError(f"{folder} is a file; give its folder, or read a vocab.txt with FullTokenizer(vocab_file)")
    vocab_file, tokenizer_file = (os.path.join(folder, name) for name in ("vocab.txt", "tokenizer.json"))
    if files.exists(vocab_file):
        return Vocabulary.from_file(vocab_file)
    return Vocabulary(number_tokens(read_tokens(folder), tokenizer_file), tokenizer_file)


def find_do_lower_case(folder: str, vocabulary: Vocabulary) -> bool:
    """Finds out whether text is lowercased, and logs what says so.

    Args:
      folder: its `tokenizer_config.json` decides, if there is none or it does not say, then its `run_config.json`.
      vocabulary: decides, if neither file does: one with capital letters is for text that keeps them.

    Raises:
      UserError: a file is damaged.
    """
    value, source = read_do_lower_case(folder), TOKENIZER_CONFIG_FILE
    if value is None:
        value, source = _do_lower_case_of_run(folder), _RUN_CONFIG_FILE
    if value is None:
        value = not is_cased(vocabulary)
        source = f"the vocabulary, which has {'no' if value else 'wordpieces with'} capital letters"
    logging.info("%s: do_lower_case=%s according to %s", folder, str(value).lower(), source)
    return value


def _do_lower_case_of_run(folder: str) -> bool | None:
    path = os.path.join(folder, _RUN_CONFIG_FILE)
    if not files.exists(path):
        return None
    flags = text_files.read_json(path, "settings of a run", finite=False).get("flags")
    value = flags.get("do_lower_case") if isinstance(flags, dict) else None
    if not isinstance(flags, dict) or not isinstance(value, bool | None):
        raise UserError(f"{path} is not the file of a run; restore it or pass do_lower_case")
    return value
