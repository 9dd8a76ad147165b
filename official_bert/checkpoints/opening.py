"""Opens weights from a path: a checkpoint, or a model in another format, converted while reading."""

import functools
from collections.abc import Callable

import numpy as np

from official_bert.checkpoints import safetensors
from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.lora_merging import merged
from official_bert.checkpoints.state_file import find_checkpoint, find_config, hugging_face_folder
from official_bert.config import model_formats
from official_bert.config.bert_config import BertConfig
from official_bert.support.errors import UserError


def open_checkpoint(path: str, what: str, bert_config: BertConfig | None = None) -> CheckpointReader:
    """Open initial weights; a model in another format is not read until needed.

    Args:
      path: see `find_checkpoint`.
      what: the parameter that named it, for messages.
      bert_config: the architecture, if it is not the one in the model's own files.

    Returns:
      A reader of the arrays under our names; low-rank updates are added to the kernels.

    Raises:
      UserError: there is no such checkpoint, or it cannot be read.
    """
    place = find_checkpoint(path, what)
    if hugging_face_folder(place) is not None:
        return _ConvertingReader(place, what, bert_config, safetensors.read_model)
    row = model_formats.format_of(place)
    if row is not None:
        read = model_formats.load_module(row).read_model
        return _ConvertingReader(place, what, bert_config, lambda *model: safetensors.Weights(read(*model), []))
    return merged(CheckpointReader(path, what))


class _ConvertingReader(CheckpointReader):
    """The arrays of a model in another format, under our names; its files are opened when the first is needed."""

    def __init__(
        self,
        place: str,
        what: str,
        bert_config: BertConfig | None,
        read_model: Callable[[str, BertConfig], safetensors.Weights],
    ):
        self.prefix, self.name = place, f"{what} {place}"
        self._bert_config, self._read_model = bert_config, read_model

    @functools.cached_property
    def _weights(self) -> safetensors.Weights:
        config_file = None if self._bert_config else find_config(self.prefix)
        if self._bert_config is None and config_file is None:
            raise UserError(f"{self.name} has no config.json, so its architecture is unknown; download all its files")
        return self._read_model(self.prefix, self._bert_config or BertConfig.from_json_file(config_file))

    @property
    def new_names(self) -> frozenset[str]:
        """Names of arrays that the model lacks, which are newly initialized."""
        return self._weights.new

    @property
    def idle_names(self) -> frozenset[str]:
        """The names among `new_names` that the model's own heads do not use."""
        return self._weights.idle

    @property
    def lacking(self) -> str:
        """A head that the model's own files promise and its weights lack, for messages."""
        return self._weights.lacking

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name to shape, for every array."""
        return {name: array.shape for name, array in self._weights.arrays.items()}

    def read(self, name: str) -> np.ndarray:
        """Return one array."""
        return np.asarray(self._weights.arrays[name])
