"""Opens weights from a path: a checkpoint, or a model in another format, converted while reading."""

import functools
import os
from collections.abc import Callable, Mapping

import keras
import numpy as np

from official_bert.checkpoints import safetensors
from official_bert.checkpoints.bundle import CheckpointReader, write_checkpoint
from official_bert.checkpoints.state_file import find_checkpoint, find_config, hugging_face_folder
from official_bert.checkpoints.stored_arrays import as_float32
from official_bert.config import model_formats
from official_bert.config.bert_config import LORA, LORA_SCALE, BertConfig, check_memory
from official_bert.support import files, network, writing
from official_bert.support.errors import UserError

_CONFIG_FILE = "bert_config.json"
_CHECKPOINT = "bert_model.ckpt"  # file name in the released archives


def merged(reader: CheckpointReader) -> CheckpointReader:
    """Return a reader of the same model with the updates added to the kernels; the reader itself if it has none."""
    return _MergingReader(reader) if LORA_SCALE in reader.shapes else reader


class _MergingReader(CheckpointReader):
    """The arrays of a checkpoint, with its updates added to its kernels."""

    def __init__(self, reader: CheckpointReader):
        self.prefix, self.name, self._reader = reader.prefix, reader.name, reader
        self.shapes = {name: shape for name, shape in reader.shapes.items() if LORA not in name and name != LORA_SCALE}

    def read(self, name: str) -> np.ndarray:
        """Return one array, float32 [in, out] for a kernel."""
        array, layer = self._reader.read(name), name.removesuffix("/kernel")
        first, second = (f"{layer}{LORA}{factor}" for factor in "ab")
        if name == layer or first not in self._reader.shapes:
            return array
        scale = self._reader.read(LORA_SCALE)
        with np.errstate(over="ignore", invalid="ignore"):
            array = array + scale * (self._reader.read(first) @ self._reader.read(second))
        return as_float32(array, name, self.prefix)


def open_checkpoint(path: str, what: str, bert_config: BertConfig | None = None) -> CheckpointReader:
    """Open initial weights; a model in another format is not read until needed."""
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


def open_pretrained(
    path: str | os.PathLike[str],
    bert_config: BertConfig | str | os.PathLike[str] | None = None,
    *,
    parameter: str = "path",
) -> tuple[CheckpointReader, BertConfig]:
    """Find the weights and the architecture of a model, without reading the weights."""
    path = network.local_folder(os.fspath(path))
    if path.endswith((".keras", ".h5")):
        raise UserError(f"{path} is not a checkpoint; load it with keras.models.load_model, or with load_weights")
    prefix = open_checkpoint(path, parameter).prefix
    if isinstance(bert_config, BertConfig):
        config, config_file = bert_config, "bert_config"
    else:
        advice = f"give its path: bert_config='{_CONFIG_FILE}'" if parameter == "path" else "copy it there"
        config_file = _config_file(prefix, advice) if bert_config is None else os.fspath(bert_config)
        config = BertConfig.from_json_file(config_file)
    check_memory(config, config_file, for_training=False)
    return open_checkpoint(path, parameter, config), config


def _config_file(prefix: str, advice: str) -> str:
    """Return the `bert_config.json` beside a checkpoint, or beside the folder `best` that contains it."""
    path = find_config(prefix)
    if path is not None:
        return path
    raise UserError(f"there is no {_CONFIG_FILE} beside {prefix}; {advice}")


def save_pretrained(path: str | os.PathLike[str], variables: Mapping[str, keras.Variable], config: BertConfig) -> str:
    """Write a checkpoint and `bert_config.json` beside it, readable by `open_pretrained`.

    Args:
      path: a folder, for a checkpoint named `bert_model.ckpt`, or a prefix whose last part contains `.ckpt`.
        Missing folders are created.
    """
    path = os.fspath(path)
    prefix = path if ".ckpt" in os.path.basename(path) else os.path.join(path, _CHECKPOINT)
    folder = os.path.dirname(prefix)
    config_file = os.path.join(folder, _CONFIG_FILE)
    has_config = files.exists(config_file)
    if has_config and BertConfig.from_json_file(config_file) != config:
        raise UserError(f"{config_file} describes a different model; save this one in another folder")
    writing.make_folders(folder or ".")
    write_checkpoint(
        prefix, {name: np.asarray(keras.ops.convert_to_numpy(variable)) for name, variable in variables.items()}
    )
    if not has_config:
        with writing.atomic_write(config_file) as sink:
            sink.write(config.to_json_string())
    return prefix
