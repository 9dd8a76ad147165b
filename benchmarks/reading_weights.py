"""Speed and memory of reading 434 MB of weights from `pytorch_model.bin` and from `model.safetensors`, alternating.

python benchmarks/reading_weights.py
"""

import multiprocessing
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
    size = sum(np.asarray(array).nbytes for _, array in read_tensors(str(folder)))
    return size / 1e6 / (time.perf_counter() - start)


def peak_megabytes(folder: pathlib.Path) -> float:
    """Read all weights of a folder; return the memory that this took at its peak, weights included."""
    before = memory_of_process()["VmRSS"]
    arrays = {name: np.asarray(array) for name, array in read_tensors(str(folder))}
    return (memory_of_process()["VmHWM"] - before) / 1e3 if arrays else 0.0


def memory_of_process() -> dict[str, int]:
    """Return what Linux says of this process' memory, in kB."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines) if "kB" in value}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        pickled, safe = (pathlib.Path(name, kind) for kind in ("pickled", "safe"))
        pickled.mkdir(), safe.mkdir()
        arrays = make_arrays()
        write_file(str(safe / WEIGHTS_FILE), arrays)
        (pickled / "pytorch_model.bin").write_bytes(pytorch_file(arrays))
        del arrays
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            for folder in (pickled, safe):
                print(f"Peak memory of reading, {folder.name}: {pool.apply(peak_megabytes, [folder]):,.0f} MB")
        compare("MB/s", lambda: megabytes_per_second(pickled), lambda: megabytes_per_second(safe), "safetensors")


if __name__ == "__main__":
    main()
