"""A model folder in BERT's release format, written by commands that convert or edit models."""

import os
from collections.abc import Mapping, Sequence

import numpy as np

from official_bert.checkpoints.bundle import write_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.support import writing
from official_bert.tokenization import Vocabulary
from official_bert.training.run_folder import BERT_CONFIG_FILE, write_labels

CHECKPOINT_FILE = "bert_model.ckpt"


def write_model(
    output_dir: str,
    arrays: Mapping[str, np.ndarray],
    bert_config: BertConfig | None,
    vocabulary: Vocabulary | None,
    *,
    labels: Sequence[str] | None = None,
) -> str:
    """Write the checkpoint with the architecture, the vocabulary and the labels, if known, to a new folder."""
    contents = {}
    if vocabulary is not None:
        contents[vocabulary.file_name] = vocabulary.file_content
    if bert_config is not None:
        contents[BERT_CONFIG_FILE] = bert_config.to_json_string().encode()
    with writing.complete_folder(output_dir, "output_dir") as folder:
        for name, content in contents.items():
            with writing.atomic_write(os.path.join(folder, name), "wb") as sink:
                sink.write(content)
        if labels:
            write_labels(folder, labels)
        write_checkpoint(os.path.join(folder, CHECKPOINT_FILE), arrays)
    return os.path.join(output_dir, CHECKPOINT_FILE)
