"""A model folder in BERT's release format, written by commands that convert or edit models."""

import os
from collections.abc import Mapping

import numpy as np

from official_bert.checkpoints.bundle import write_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.support import files, writing
from official_bert.support.errors import UserError
from official_bert.tokenization import Vocabulary
from official_bert.training.labels_file import LABELS_FILE
from official_bert.training.run_folder import BERT_CONFIG_FILE, MODEL_FILES

CHECKPOINT_FILE = "bert_model.ckpt"


def check_new_model(folder: str) -> None:
    """Raise unless a new model can be written to a folder.

    Raises:
      UserError: a file would be overwritten.
    """
    for name in (f"{CHECKPOINT_FILE}.index", LABELS_FILE, *MODEL_FILES):
        path = os.path.join(folder, name)
        if files.exists(path):
            raise UserError(f"output_dir={folder}: {path} exists already; give another folder")


def write_model(
    folder: str, arrays: Mapping[str, np.ndarray], bert_config: BertConfig | None, vocabulary: Vocabulary | None
) -> str:
    """Write the checkpoint with the architecture and the vocabulary, if known.

    Args:
      folder: created if missing.
      arrays: checkpoint arrays, by name.
      bert_config: the architecture.
      vocabulary: the vocabulary.

    Returns:
      The checkpoint's prefix.
    """
    writing.make_folders(folder)
    contents = {}
    if vocabulary is not None:
        contents[vocabulary.file_name] = vocabulary.file_content
    if bert_config is not None:
        contents[BERT_CONFIG_FILE] = bert_config.to_json_string().encode()
    for name, content in contents.items():
        with writing.atomic_write(os.path.join(folder, name), "wb") as sink:
            sink.write(content)
    prefix = os.path.join(folder, CHECKPOINT_FILE)
    write_checkpoint(prefix, arrays)  # last: its existence means that the folder is complete
    return prefix
