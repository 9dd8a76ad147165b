"""Speed of reading 434 MB of weights from `pytorch_model.bin` and from `model.safetensors`, alternating.

python benchmarks/reading_weights.py
"""

import pathlib
import sys
import tempfile
import time

sys.path.insert(
    0, str(pathlib.Path(__file__).resolve().parent.parent)
)  # for tests/, which makes the files without PyTorch

import numpy as np
from common import compare

from official_bert.checkpoints.safetensors import WEIGHTS_FILE, read_tensors, write_file
from tests.checkpoints.pytorch_files import pytorch_file


def make_arrays() -> dict[str, np.ndarray]:
    """Make random arrays with the shapes of BERT-Base."""
    rng = np.random.default_rng(0)
    shapes = {"embeddings": (30522, 768)}
    shapes |= {f"{layer}.{part}": (768, 768) for layer in range(12) for part in ("query", "key", "value", "output")}
    shapes |= {f"{layer}.{part}": (768, 3072) for layer in range(12) for part in ("in", "out")}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def megabytes_per_second(folder: pathlib.Path) -> float:
    """Read all weights of a folder once and return the speed."""
    start = time.perf_counter()
    size = sum(array.nbytes for array in dict(read_tensors(str(folder))).values())
    return size / 1e6 / (time.perf_counter() - start)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        pickled, safe = (pathlib.Path(name, kind) for kind in ("pickled", "safe"))
        pickled.mkdir(), safe.mkdir()
        arrays = make_arrays()
        write_file(str(safe / WEIGHTS_FILE), arrays)
        (pickled / "pytorch_model.bin").write_bytes(pytorch_file(arrays))
        del arrays
        compare("MB/s", lambda: megabytes_per_second(pickled), lambda: megabytes_per_second(safe), "safetensors")


if __name__ == "__main__":
    main()
