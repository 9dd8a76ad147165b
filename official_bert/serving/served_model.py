"""The served versions of an export: request validation, batching and reloading of new versions."""

import asyncio
import contextlib
import ctypes
import gc
import os
import threading
import time
from collections.abc import Callable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
from absl import logging

from official_bert.config.sentence_modules import SPLADE_POOLINGS
from official_bert.options.groups import BatchingSettings
from official_bert.serving.batching import UNOBSERVED, Admission, Arrays, Batcher, BatchObserver
from official_bert.serving.rest_format import (
    JsonRequest,
    NamesError,
    RequestError,
    answer_body,
    check_number,
    quoted,
    read_examples,
    read_request,
    request_arrays,
)
from official_bert.serving.signatures import (
    CLASSIFY,
    EXAMPLES,
    METHODS,
    MOST_CELLS,
    REGRESS,
    SERVING_DEFAULT,
    TEXT,
    TOKENIZE,
    LoadedExport,
    Signature,
)
from official_bert.serving.versions import SAVED_MODEL_FILE, complete_versions, description, highest_version, model_file
from official_bert.support import files
from official_bert.support.errors import UserError, format_names, plain_message

Result = TypeVar("Result")
_Files = list[tuple[str, int, int]]  # path, bytes and time of modification of each file

_POLL_SECONDS = 1.0
_SMALL = 1 << 16  # request bytes or response values that the event loop handles itself
_VALUES_PER_EXAMPLE = 1 << 11  # per request: three inputs of 512 positions, and some margin
_IDS = ""  # the batcher of ids from the signature `tokenize`, beside those of the signatures


class EngineOptions(NamedTuple):
    """Arguments of `open_engine`, which computes exports for LiteRT, ONNX Runtime and OpenVINO."""

    engine: str | None = None
    num_threads: int = 1  # per request


class _Workers(NamedTuple):
    """Settings and threads that all versions of a model share."""

    settings: BatchingSettings
    observer: BatchObserver
    options: EngineOptions
    executor: ThreadPoolExecutor  # of batches
    reader: ThreadPoolExecutor  # of large requests and answers


class ServedVersion:
    """A loaded version, whose `load_time` is in seconds since 1970."""

    def __init__(self, export_dir: str, number: int, workers: _Workers):
        """Load a version and warm up the signatures that are asked first; `warm_up_next` warms up the others."""
        self.number, self.folder = number, os.path.join(export_dir, str(number))
        settings, observer, options, executor, self._reader = workers
        self.settings, self.load_time = settings, int(time.time())
        self.most_examples = settings.max_batch_size  # maximum number of examples per request
        self.most_values = settings.max_batch_size * _VALUES_PER_EXAMPLE  # maximum number of values per request
        self._export = export = _load_export(self.folder, options)
        # the description, and the tokenizer unless the model has it
        self.said, self.tokenizer = description(self.folder), export.tokenizer
        # whether vectors have a weight for each token of the vocabulary
        self.is_sparse = self.said.get("pooling") in SPLADE_POOLINGS
        # whether texts must be split into words before, since TensorFlow has no operations for it
        self.reads_split_texts = model_file(self.folder) == SAVED_MODEL_FILE and bool(self.said.get("morphemes"))
        # signatures by name
        self.signatures = export.signatures

        def batcher(signature: Signature, lengths: Callable[[Arrays], np.ndarray] | None = None) -> Batcher:
            if not (signature.is_joining and settings.is_batching):
                lengths = None
            how = {"is_joining": signature.is_joining, "lengths": lengths, "observer": observer}
            return Batcher(signature.compute, settings, executor, **how)

        self._batchers = {name: batcher(signature) for name, signature in self.signatures.items()}
        if SERVING_DEFAULT in self.signatures:
            self._batchers[_IDS] = batcher(self.signatures[SERVING_DEFAULT], _used_positions)
        self.definitions = export.definitions  # the signatures in TensorFlow Serving's metadata format
        first, self._cold = export.first_requests, dict(export.later_requests)
        with ThreadPoolExecutor(settings.num_batch_threads) as threads:
            list(threads.map(self._warm_up, first, first.values()))

    def warm_up_next(self) -> None:
        """Warm up another signature, if there is one and no batch is being computed."""
        if self._cold and not any(batcher.is_busy for batcher in self._batchers.values()):
            self._warm_up(*self._cold.popitem())

    def _warm_up(self, name: str, inputs: Arrays) -> None:
        try:
            self.signature(name).compute(inputs)
        except Exception as error:  # of any kind: the file may be of another model
            reason = plain_message(error)
            message = (
                "%s: the warm-up request to %s failed, so its first request will be slow; export the model again: %s"
            )
            logging.warning(message, self.folder, name, reason.partition("\n")[0])

    def signature(self, name: str) -> Signature:
        if name not in self.signatures:
            raise RequestError(
                f"there is no signature {quoted(name)}; the model has {format_names(sorted(self.signatures))}"
            )
        return self.signatures[name]

    def signature_for(self, name: str, input_names: Set[str]) -> Signature:
        """Return the signature of a request; without a name `serving_default`, or the only one with these inputs."""
        signature = self.signature(name or SERVING_DEFAULT)
        if name or signature.inputs.keys() == input_names:
            return signature
        others = [self.signatures[other] for other in self.signatures if other != TOKENIZE]
        fitting = [other for other in others if other.inputs.keys() == input_names]
        return fitting[0] if len(fitting) == 1 else signature

    async def read(self, body: bytes) -> tuple[JsonRequest, Arrays]:
        """Parse a request of TensorFlow Serving's REST API, and convert it to arrays."""
        return await self.aside(len(body), lambda: self._read(body))

    async def read_examples(self, body: bytes) -> tuple[str, list[bytes]]:
        """Parse a request with tf.Examples: the name of its signature and serialized Examples."""
        if EXAMPLES not in self.signatures:
            raise RequestError("the served model answers no tf.Examples; use :predict")
        return await self.aside(len(body), lambda: read_examples(body, self.most_values))

    async def write(self, outputs: Arrays, is_in_rows: bool) -> bytes:
        """Format the response to such a request."""
        size = sum(values.size for values in outputs.values())
        return await self.aside(size, lambda: answer_body(outputs, is_in_rows))

    async def aside(self, size: int, work: Callable[[], Result]) -> Result:
        """Run a function on large inputs or outputs in a thread, one at a time."""
        if size <= _SMALL:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._reader, work)

    def _read(self, body: bytes) -> tuple[JsonRequest, Arrays]:
        request = read_request(body, self.most_values)
        signature = self.signature_for(request.signature_name, request.input_names)
        try:
            arrays = request_arrays(request, signature.inputs, self.most_examples)
            return request._replace(signature_name=signature.name), arrays
        except NamesError as error:
            if TEXT not in self.signatures or signature.name == TEXT:
                raise
            names = format_names(sorted(self.signatures[TEXT].inputs))
            raise NamesError(
                f'{error}; the signature that reads texts ({names}) is "signature_name": "{TEXT}"'
            ) from None

    async def predict(self, name: str, inputs: Arrays) -> Arrays:
        """Handle a request to a signature, with arrays of its names, types and ranks."""
        if len(set(map(len, inputs.values()))) > 1:
            raise RequestError(f"{format_names(sorted(inputs))} must have the same number of examples")
        num_examples, most = len(next(iter(inputs.values()))), self.signatures[name].most_rows
        if num_examples > most:
            raise RequestError(
                f"the request has {num_examples} examples; at most {most} are allowed for outputs of this size, since "
                f"each table of the response is limited to {MOST_CELLS} cells"
            )
        return await self._batchers[name](inputs)

    async def classify(self, name: str, examples: Sequence[bytes]) -> list[list[tuple[str, float]]]:
        """Return the labels of each serialized tf.Example and their probabilities, most likely first."""
        outputs = await self._predict_examples(CLASSIFY, "classification", name, examples)
        return by_rank(outputs["classes"], outputs["scores"])

    async def regress(self, name: str, examples: Sequence[bytes]) -> list[float]:
        """Return the score of each serialized tf.Example."""
        outputs = await self._predict_examples(REGRESS, "regression", name, examples)
        return outputs["outputs"].tolist()

    async def _predict_examples(self, method: str, noun: str, name: str, examples: Sequence[bytes]) -> Arrays:
        signature = self.signature(name or (method if method in self.signatures else SERVING_DEFAULT))
        found, needed = self.definitions[signature.name]["method_name"], METHODS[method]
        if found != needed:  # as TensorFlow Serving says it
            raise RequestError(f"Expected {noun} signature method_name to be {needed}. Was: {found}")
        if not examples:
            raise RequestError("Input is empty.")
        check_number(len(examples), self.most_examples)
        return await self.predict(signature.name, {"inputs": np.array(examples, dtype=object)})

    async def predict_ids(self, ids: Arrays) -> Arrays:
        """Compute ids that the signature `tokenize` returned, in batches filled by tokens."""
        return await self._batchers[_IDS](ids)


class ServedModel:
    """The highest version of an export, kept up to date by a thread."""

    def __init__(
        self,
        export_dir: str,
        settings: BatchingSettings,
        observer: BatchObserver = UNOBSERVED,
        poll_seconds: float = _POLL_SECONDS,
        options: EngineOptions | None = None,
    ):
        self._export_dir, self._poll_seconds = export_dir, poll_seconds
        threads = ThreadPoolExecutor(settings.num_batch_threads, "batch"), ThreadPoolExecutor(1, "read")
        self._workers = _Workers(settings, observer, options or EngineOptions(), *threads)
        self._seen: dict[int, _Files] = {}  # of each other version, when the folder was last looked at
        self._refused: dict[int, _Files] = {}  # of each version that could not be loaded
        self._is_ending = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="versions", daemon=True)
        self.admission = Admission()  # of requests to all versions
        self.version = self._load(highest_version(export_dir))  # the current version

    def start_watching(self) -> None:
        self._watcher.start()

    def close(self) -> None:
        """Stop watching; wait for a version that is being loaded."""
        self._is_ending.set()
        if self._watcher.is_alive():
            self._watcher.join()

    def _load(self, number: int) -> ServedVersion:
        version = ServedVersion(self._export_dir, number, self._workers)
        logging.info("loaded version %d of %s", number, self._export_dir)
        return version

    def _watch(self) -> None:
        is_away = False
        while not self._is_ending.wait(self._poll_seconds):
            if self.admission.has_released:
                self.admission.has_released = False
                _trim_memory()
            try:
                self._update()
                self.version.warm_up_next()
            except Exception as error:  # the folder may be temporarily unavailable; the loaded version keeps serving
                if not is_away:
                    reason = plain_message(error).partition("\n")[0]
                    logging.error("still serving version %d: cannot look for others: %s", self.version.number, reason)
                is_away = True
            else:
                if is_away:
                    logging.info("%s is back", self._export_dir)
                is_away = False

    def _update(self) -> None:
        """Load the highest version, if new, and switch to it; queued requests keep their version.

        A version is loaded when its files have stayed the same since the last look, since it may be being copied here.
        One that cannot be loaded is tried again when they change.
        """
        numbers = complete_versions(self._export_dir)
        seen, self._seen = self._seen, {}
        for number in reversed(numbers):
            if number == self.version.number:
                return
            self._seen[number] = found = _files(os.path.join(self._export_dir, str(number)))
            if found != seen.get(number) or found == self._refused.get(number):
                continue
            try:
                self.version = self._load(number)
            except (ValueError, LookupError, TypeError, AttributeError) as error:  # of wrong files; others may pass
                self._refused[number] = found
                reason = error if isinstance(error, UserError) else f"cannot load version {number}: {error!r:.300}"
                logging.error("still serving version %d: %s", self.version.number, reason)
            gc.collect()  # a loaded model contains reference cycles
            return


def _load_export(folder: str, options: EngineOptions) -> LoadedExport:
    if model_file(folder) == SAVED_MODEL_FILE:
        from official_bert.serving.saved_model import load_export  # which imports TensorFlow

        return load_export(folder)
    from official_bert.serving.engine_model import load_engine_model

    return load_engine_model(folder, **options._asdict()).signatures()


def _files(folder: str) -> _Files:
    return [(path, files.size(path), files.modified_ns(path)) for path in files.files_below(folder)]


def _trim_memory() -> None:
    """Return free memory to the system: glibc keeps what large requests have freed, if some above it is in use."""
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _used_positions(ids: Arrays) -> np.ndarray:
    """Return the number of positions of each row up to the last unmasked one, at least 1."""
    mask = ids["input_mask"]
    last = mask.shape[1] - np.argmax(mask[:, ::-1] != 0, axis=1)
    return np.where(mask.any(axis=1), last, 1)


def by_rank(classes: np.ndarray, scores: np.ndarray) -> list[list[tuple[str, float]]]:
    """Return the labels of each example with their scores, [B, C], which `classes` has by rank; the best come first."""
    best_first = -np.sort(-scores, axis=1)
    return [
        [(label.decode("utf-8", "replace"), score) for label, score in zip(*row, strict=True)]
        for row in zip(classes.tolist(), best_first.tolist(), strict=True)
    ]
