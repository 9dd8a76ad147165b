"""Engines, which compute models that read ids: LiteRT, ONNX Runtime and OpenVINO. None imports TensorFlow.

An engine reads input_ids, input_mask and segment_ids, int32 [B, S], and returns outputs by name, [B, ...]. Several
threads may call it.
"""

import contextlib
import functools
import os
import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from official_bert.options.groups import ENGINES
from official_bert.serving.signatures import SERVING_DEFAULT, Arrays
from official_bert.serving.versions import LITE_FILE, ONNX_FILE
from official_bert.support import files
from official_bert.support.console import filtered_stderr
from official_bert.support.errors import UserError, require
from official_bert.support.processes import available_cores


class _Pool:
    """Objects that one thread uses at a time; there are as many as were used at once."""

    def __init__(self, make: Callable[[], Any]):
        self._make, self._free = make, queue.SimpleQueue()

    @contextlib.contextmanager
    def one(self) -> Iterator[Any]:
        try:
            found = self._free.get_nowait()
        except queue.Empty:
            found = self._make()
        try:
            yield found
        finally:
            self._free.put(found)


class Engine:
    reads_batches = True  # otherwise B is 1

    def __call__(self, ids: Arrays) -> Arrays:
        raise NotImplementedError

    def all(self, batches: Iterable[Arrays]) -> Iterator[Arrays]:
        """Compute batches, in order."""
        return map(self, batches)


class LiteEngine(Engine):
    """LiteRT. One row is computed by `num_threads`, and each of several rows by one of as many threads."""

    reads_batches = False

    def __init__(self, path: str, num_threads: int):
        require("ai_edge_litert", "lite")
        from ai_edge_litert.interpreter import Interpreter

        def runner(num_threads: int) -> Any:
            interpreter = Interpreter(path, num_threads=num_threads)
            interpreter.allocate_tensors()  # writes its note now, and prepares the weights before the first request
            return interpreter.get_signature_runner(SERVING_DEFAULT)

        self._alone, self._together = (_Pool(functools.partial(runner, number)) for number in (num_threads, 1))
        self._threads, self._num_threads = ThreadPoolExecutor(num_threads), num_threads
        with filtered_stderr(lambda line: line.startswith("INFO: Created TensorFlow Lite")), self._alone.one():
            pass  # the file is read now, since it may be damaged

    def __call__(self, ids: Arrays) -> Arrays:
        with self._alone.one() as run:
            return run(**ids)

    def all(self, batches: Iterable[Arrays]) -> Iterator[Arrays]:
        """See `Engine`."""
        batches = list(batches)
        is_parallel = min(len(batches), self._num_threads) > 1
        return self._threads.map(self._one_of_several, batches) if is_parallel else map(self, batches)

    def _one_of_several(self, ids: Arrays) -> Arrays:
        with self._together.one() as run:
            return run(**ids)


class OnnxEngine(Engine):
    """ONNX Runtime."""

    def __init__(self, path: str, num_threads: int):
        require("onnxruntime", "onnx")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = num_threads, 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._names = [value.name for value in self._session.get_outputs()]

    def __call__(self, ids: Arrays) -> Arrays:
        return dict(zip(self._names, self._session.run(None, dict(ids)), strict=True))


class OpenVinoEngine(Engine):
    """OpenVINO."""

    def __init__(self, path: str, num_threads: int):
        require("openvino", "openvino")
        import openvino

        num_streams = available_cores() if num_threads == 1 else 1
        settings = {"INFERENCE_NUM_THREADS": num_threads * num_streams, "NUM_STREAMS": num_streams}
        settings["INFERENCE_PRECISION_HINT"] = "f32"  # on some processors it would be bfloat16
        model = openvino.Core().compile_model(path, "CPU", settings)
        self._requests = _Pool(model.create_infer_request)

    def __call__(self, ids: Arrays) -> Arrays:
        with self._requests.one() as request:
            return {value.any_name: np.array(found) for value, found in request.infer(dict(ids)).items()}


def open_engine(folder: str, file_name: str, *, name: str | None = None, num_threads: int = 0) -> Engine:
    """Open the model of an export.

    Args:
      name: one of `ENGINES`, for a model that both read; by default the first.
      num_threads: number of threads that compute a request; 0 for the number of cores.
    """
    if name is not None and file_name != ONNX_FILE:
        raise UserError(f"engine={name} reads exports with export_format=onnx, but {folder} has {file_name}")
    engine = {LITE_FILE: LiteEngine, ONNX_FILE: OpenVinoEngine if name == ENGINES[1] else OnnxEngine}[file_name]
    if files.is_remote(folder):
        raise UserError(f"{folder} is remote, and only SavedModels are read from there; copy it to this machine")
    path = os.path.join(folder, file_name)
    try:
        return engine(path, num_threads or available_cores())
    except UserError:
        raise
    except Exception as error:  # of any kind: each engine has its own
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise UserError(f"{path} cannot be loaded ({reason:.300}); is it damaged? Export the model again") from error
