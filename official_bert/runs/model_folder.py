"""A folder with a model as BERT was released in, written by the tools that make models of others."""

import os
from collections.abc import Mapping

import numpy as np

from official_bert.checkpoints.bundle import write_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.training.run_folder import BERT_CONFIG_FILE, VOCAB_FILE

_CHECKPOINT = "bert_model.ckpt"


def check_new_model(folder: str) -> None:
    """Raises unless a folder has room for a new model.

    Raises:
      UserError: it holds a file that would be overwritten.
    """
    for name in (f"{_CHECKPOINT}.index", BERT_CONFIG_FILE, VOCAB_FILE):
        path = os.path.join(folder, name)
        if files.exists(path):
            raise UserError(f"output_dir={folder}: {path} exists already; give another folder")


def write_model(
    folder: str, arrays: Mapping[str, np.ndarray], bert_config: BertConfig | None, vocabulary: bytes | None
) -> str:
    """Writes the checkpoint, and beside it the architecture and the vocabulary, where they are known.

    Args:
      folder: made if it is not there.
      arrays: name to array.
      bert_config: the architecture.
      vocabulary: the content of the vocabulary file.

    Returns:
      The checkpoint's prefix.
    """
    files.make_folders(folder)
    contents = {}
    if bert_config is not None:
        contents[BERT_CONFIG_FILE] = bert_config.to_json_string().encode()
    if vocabulary is not None:
        contents[VOCAB_FILE] = vocabulary
    for name, content in contents.items():
        with files.atomic_write(os.path.join(folder, name), "wb") as sink:
            sink.write(content)
    prefix = os.path.join(folder, _CHECKPOINT)
    write_checkpoint(prefix, arrays)  # last: where it is, the folder is complete
    return prefix


def content_of(vocab_file: str | None) -> bytes | None:
    """The content of a vocabulary file, for `write_model` to copy; None if there is none."""
    if vocab_file is None:
        return None
    with files.open_file(vocab_file, "rb") as source:
        return source.read()
