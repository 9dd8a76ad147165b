"""Opens the weights that a path means: a checkpoint of TensorFlow, or the folder of a Hugging Face model."""

import functools
import os

import numpy as np

from official_bert.checkpoints import safetensors
from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.state_file import find_checkpoint, hugging_face_folder
from official_bert.config.bert_config import BertConfig


def open_checkpoint(path: str, what: str, bert_config: BertConfig | None = None) -> CheckpointReader:
    """Open weights to begin with; of a Hugging Face model nothing is read yet.

    Args:
      path: see `find_checkpoint`.
      what: the parameter that named it, for messages.
      bert_config: the architecture, if it is not that of the `config.json` of a Hugging Face folder.

    Returns:
      A reader, which gives the arrays our names.

    Raises:
      UserError: there is no such checkpoint, or it cannot be read.
    """
    folder = hugging_face_folder(path)
    return CheckpointReader(path, what) if folder is None else _HfReader(find_checkpoint(path, what), what, bert_config)


class _HfReader(CheckpointReader):
    """The arrays of a Hugging Face model under our names; all are read when the first is asked for."""

    def __init__(self, folder: str, what: str, bert_config: BertConfig | None):
        self.prefix, self.name = folder, f"{what} {folder}"
        self._bert_config = bert_config

    @functools.cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        config = self._bert_config or BertConfig.from_json_file(os.path.join(self.prefix, "config.json"))
        return safetensors.read_model(self.prefix, config).arrays

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name to shape, for every array."""
        return {name: array.shape for name, array in self._arrays.items()}

    def read(self, name: str) -> np.ndarray:
        """Return one array."""
        return self._arrays[name]
