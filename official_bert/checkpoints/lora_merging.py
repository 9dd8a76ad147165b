"""Reads a checkpoint with low-rank updates of kernels (LoRA) as the model that they make."""

import numpy as np

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.stored_arrays import as_float32
from official_bert.config.tensor_names import LORA, LORA_SCALE


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
