"""`EngineModel`: a run, or an export for LiteRT, ONNX Runtime or OpenVINO, which reads texts with its task's reader.

Nothing here imports TensorFlow. Several threads may call an engine.
"""

import contextlib
import functools
import importlib
import importlib.util
import os
import queue
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, TypedDict

import numpy as np

from official_bert.config.bert_config import ENCODER_INPUTS, BertConfig
from official_bert.config.text_settings import TextSettings
from official_bert.data.schema import ENCODER_FIELDS, RecordSchema
from official_bert.options.groups import ENGINES
from official_bert.serving.signatures import (
    SERVING_DEFAULT,
    SERVING_INT64,
    TEXT,
    TOKEN_VECTORS,
    TOKENIZE,
    Arrays,
    ArraySpec,
    LoadedExport,
    Reader,
    Reading,
    RequestError,
    Signature,
    check_table_size,
    definitions_of,
    padded_table,
)
from official_bert.serving.versions import (
    ASSETS_FOLDER,
    DESCRIPTION_FILE,
    LIMITS,
    LITE_FILE,
    NUM_POSITIONS,
    ONNX_FILE,
    OUTPUTS,
    check_whole,
    description,
    model_file,
)
from official_bert.support import files, text_files
from official_bert.support.console import filtered_stderr
from official_bert.support.errors import UserError, require
from official_bert.support.processes import available_cores
from official_bert.tokenization import Tokenizer, load_tokenizer
from official_bert.tokenization.sequences import MOST_BYTES, compute_by_length
from official_bert.tokenization.tokenizer import to_unicode

_MOST_COPIED_BYTES = 1 << 30  # of weights, of which each interpreter of LiteRT has a copy


class _Description(TypedDict):
    task: str
    text_names: list[str]
    max_seq_length: int
    most_positions: int
    limits: dict[str, int]
    outputs: dict[str, dict[str, list[Any]]]


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
    """A program that computes outputs by name, [B, ...], from input_ids, input_mask and segment_ids, int32 [B, S]."""

    def most_rows(self, number: int) -> int:
        """Return the number of rows to compute together; at most as many, unless the shapes of the engine are fixed."""
        return number

    def __call__(self, ids: Arrays) -> Arrays:
        raise NotImplementedError

    def all(self, batches: Iterable[Arrays]) -> Iterator[Arrays]:
        """Compute batches, in order."""
        return map(self, batches)

    def computed(
        self,
        sequences: Sequence[Mapping[str, Any]],
        most_rows: Callable[[int], int],
        *,
        pad_id: int = 0,
        is_wanted: Callable[[str], bool] = bool,
    ) -> list[Arrays]:
        """Return the outputs of each sequence; those of like length are computed together.

        Args:
          sequences: input_ids, input_mask and segment_ids of each, without padding at the end.
          most_rows: returns the number of sequences of a length that are computed together.
          is_wanted: chooses outputs by their names; by default all.
        """

        def padded(batch: Sequence[int]) -> Arrays:
            length = max(len(sequences[row]["input_ids"]) for row in batch)
            ids = {name: np.zeros([len(batch), length], np.int32) for name in ENCODER_INPUTS}
            ids["input_ids"] += pad_id
            for name, table in ids.items():
                for values, row in zip(table, batch, strict=True):
                    numbers = _numbers(sequences[row][name])
                    values[: len(numbers)] = numbers
            return ids

        def outputs(batches: list[list[int]]) -> Iterator[list[Arrays]]:
            for found in self.all(map(padded, batches)):
                names = [*filter(is_wanted, found)]
                yield [dict(zip(names, row, strict=True)) for row in zip(*map(found.get, names), strict=True)]

        lengths = [len(sequence["input_ids"]) for sequence in sequences]
        return compute_by_length(lengths, lambda length: self.most_rows(most_rows(length)), outputs)


class LiteEngine(Engine):
    """LiteRT. One row is computed by all threads; several rows at once, each with a copy of the weights, by some."""

    def __init__(self, path: str, num_threads: int):
        require("ai_edge_litert", "lite")
        from ai_edge_litert.interpreter import Interpreter

        def runner(num_threads: int) -> Any:
            interpreter = Interpreter(path, num_threads=num_threads)
            interpreter.allocate_tensors()  # writes its note now, and prepares the weights before the first request
            return interpreter.get_signature_runner(SERVING_DEFAULT)

        self._num_parallel = max(min(num_threads, _MOST_COPIED_BYTES // max(os.path.getsize(path), 1)), 1)
        counts = num_threads, num_threads // self._num_parallel
        self._alone, self._together = (_Pool(functools.partial(runner, number)) for number in counts)
        self._threads = ThreadPoolExecutor(self._num_parallel)
        with filtered_stderr(lambda line: line.startswith("INFO: Created TensorFlow Lite")), self._alone.one():
            pass  # the file is read now, since it may be damaged

    def most_rows(self, number: int) -> int:
        """Return 1: the model's shapes have one row."""
        del number
        return 1

    def __call__(self, ids: Arrays) -> Arrays:
        with self._alone.one() as run:
            return run(**ids)

    def all(self, batches: Iterable[Arrays]) -> Iterator[Arrays]:
        """See `Engine`."""
        batches = list(batches)
        is_parallel = min(len(batches), self._num_parallel) > 1
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
    """Open the model of an export with one of `ENGINES`, by default the first that reads it.

    A request is computed by so many threads, 0 for the number of cores.
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


USUAL_SIZES = BertConfig(vocab_size=1)  # BERT-Base's, to limit the texts that are read together


class EngineModel:
    """A description, the tokenizer and an engine; its attributes are those of `SavedModel`."""

    folder: str | None = None  # of an export
    text_encoder: Any = None  # of a run, for vectors of any layers
    takes_one_text = False  # whether `Predictor` accepts only the first text of two

    def __init__(self, said: Mapping[str, Any], tokenizer: Tokenizer, compute: Engine, module: ModuleType):
        """Create a model; `said` is the description of an export, and `module` has `READER` and `results`."""
        self.said, self.text_names, self.task = said, said["text_names"], said["task"]
        self.compute, self.tokenizer, self.results = compute, tokenizer, module.results
        self.reader: Reader = module.READER(said, tokenizer)
        self.num_positions = said.get(NUM_POSITIONS, said["max_seq_length"])
        self.outputs = {
            name: {key: ArraySpec(np.dtype(dtype), tuple(shape)) for key, (dtype, shape) in outputs.items()}
            for name, outputs in said.get(OUTPUTS, {}).items()
        }

    @property
    def has_results_of_ids(self) -> bool:
        """True if the outputs for ids are those for texts."""
        return type(self.reader).decode is Reader.decode

    def answer(self, texts: Mapping[str, Sequence[bytes | str]]) -> Arrays:
        """Convert texts to predictions, as the signature `text` of a SavedModel does."""
        readings = self._readings(texts)
        if not readings:
            return self._nothing(TEXT)
        return self.reader.decode(readings, self.read(readings))

    def read(self, readings: Sequence[Reading], signature: str = SERVING_DEFAULT) -> list[list[Arrays]]:
        """Compute the outputs of each example's sequences, as named by the engine."""
        rows = iter(self.computed([sequence for reading in readings for sequence in reading.sequences], signature))
        return [[next(rows) for _ in reading.sequences] for reading in readings]

    def tokenize(self, texts: Mapping[str, Sequence[bytes | str]]) -> Arrays:
        """Convert texts to input_ids, input_mask and segment_ids, int32 [B, S], or [B, W, S] of windows."""
        readings = self._readings(texts)
        if not readings:
            return self._nothing(TOKENIZE)
        tables = {
            name: [
                padded_table((_numbers(one[name]) for one in reading.sequences), np.int32(0)) for reading in readings
            ]
            for name in self.said[LIMITS]
        }  # [W, S] of each example
        if not self.reader.has_windows:
            tables = {name: [only for (only,) in windows] for name, windows in tables.items()}
        return {name: padded_table(rows, np.int32(0)) for name, rows in tables.items()}

    def predict(self, ids: Arrays) -> Arrays:
        """Convert input_ids, input_mask and segment_ids, [B, S], to predictions."""
        rows = self._rows(ids, SERVING_DEFAULT)
        return self.reader.stacked(rows) if rows else self._nothing(SERVING_DEFAULT)

    def token_vectors(self, ids: Arrays) -> Arrays:
        """Convert input_ids, input_mask and segment_ids, [B, S], to the vectors of all positions, float32 [B, S, D]."""
        rows = self._rows(ids, TOKEN_VECTORS)
        if not rows:
            return self._nothing(TOKEN_VECTORS)
        vectors = np.stack([row[TOKEN_VECTORS] for row in rows])
        return {TOKEN_VECTORS: vectors, "lengths": ids["input_mask"].sum(axis=1, dtype=np.int32)}

    def _rows(self, ids: Arrays, signature: str) -> list[Arrays]:
        self._check(ids, signature)
        rows = zip(*ids.values(), strict=True)
        return self.computed([dict(zip(ids, row, strict=True)) for row in rows], signature)

    def answer_records(self, records: Sequence[bytes]) -> Arrays:
        """Convert records, padded to the length of examples, to predictions."""
        limits = self.said[LIMITS]
        sizes = {"S": self.num_positions, "V": limits["input_ids"], "T": limits["segment_ids"]}
        try:
            return self.predict(RecordSchema(*ENCODER_FIELDS).sized(**sizes).decode_numpy(records))
        except (UserError, RequestError) as error:
            raise UserError(f"it does not fit the model: {error}") from error

    def signatures(self) -> LoadedExport:
        texts = {name: ArraySpec(np.dtype(object), (None,)) for name in self.text_names}
        found = [
            Signature(TEXT, texts, self.outputs[TEXT], self.answer),
            Signature(TOKENIZE, texts, self.outputs[TOKENIZE], self.tokenize),
            *self.reader.further_signatures(self),
        ]
        of_int32, of_int64 = (
            dict.fromkeys(self.said[LIMITS], ArraySpec(np.dtype(dtype), (None, None))) for dtype in (np.int32, np.int64)
        )
        for name, ids in ((SERVING_DEFAULT, of_int32), (SERVING_INT64, of_int64)):
            found.append(Signature(name, ids, self.outputs[SERVING_DEFAULT], self.predict))
        if TOKEN_VECTORS in self.outputs:
            found.append(Signature(TOKEN_VECTORS, of_int32, self.outputs[TOKEN_VECTORS], self.token_vectors))
        by_name = {signature.name: signature for signature in found}
        return LoadedExport(by_name, definitions_of(by_name), self, tokenizer=self.tokenizer)

    def _readings(self, texts: Mapping[str, Sequence[bytes | str]]) -> list[Any]:
        columns = [[self._beginning(name, text) for text in texts[name]] for name in self.text_names]
        return [self.reader.encode(*row) for row in zip(*columns, strict=True)]

    def _beginning(self, name: str, text: bytes | str) -> str:
        """Return the part of a text that is read, without what UTF-8 cannot encode."""
        beginning = self.reader.beginning(decodable(text[:MOST_BYTES]), is_cut=len(text) > MOST_BYTES)
        if beginning is None:
            raise RequestError(f"{name} must have at most {MOST_BYTES} bytes per example, but one has {len(text)}")
        return beginning

    def computed(self, sequences: Sequence[Mapping[str, Any]], signature: str = SERVING_DEFAULT) -> list[Arrays]:
        """Return the outputs of each sequence for a signature."""
        return self.compute.computed(
            sequences,
            self.reader.most_rows,
            pad_id=self.tokenizer.specials.pad_id,
            is_wanted=lambda name: (name == TOKEN_VECTORS) == (signature == TOKEN_VECTORS),
        )

    def _nothing(self, name: str) -> Arrays:
        specs = self.outputs[name].items()
        return {key: np.zeros([0, *(size or 0 for size in spec.shape[1:])], spec.dtype) for key, spec in specs}

    def _check(self, ids: Arrays, signature: str) -> None:
        shape = ids["input_ids"].shape
        most = self.said["most_positions"]
        if not 0 < shape[1] <= most:
            raise RequestError(f"input_ids must have from 1 to {most} positions, but has {shape[1]}")
        for name, values in ids.items():
            below = self.said[LIMITS][name]
            if values.shape != shape:
                raise RequestError(
                    f"{name} must have the shape of input_ids, but has {' '.join(map(str, values.shape))}"
                )
            if values.size and not (values.min() >= 0 and values.max() < below):
                raise RequestError(
                    f"{name} must be from 0 to {below - 1}, but is from {values.min()} to {values.max()}"
                )
        specs = self.outputs.get(signature, {}).values()  # unknown for runs
        widths = [np.prod(spec.shape[2:]) for spec in specs if None in spec.shape[1:]]
        if widths:
            check_table_size(shape[0], shape[1] * max(widths))


def reader_module(task: str) -> ModuleType:
    """Return the module with the `READER` and the `results` of a task."""
    return importlib.import_module(f"official_bert.tasks.{task}.reader")


def load_engine_model(folder: str, *, engine: str | None = None, num_threads: int = 0) -> EngineModel:
    """Load a version of an export; see `open_engine` for the arguments."""
    check_whole(folder)
    said, file_name = description(folder), model_file(folder)
    if OUTPUTS not in said:
        export_format = file_name.rpartition(".")[2]
        raise UserError(
            f"{folder} was exported by an earlier version, without what reading texts needs; export the model "
            f"again with export_format={export_format}"
        )
    path = os.path.join(folder, DESCRIPTION_FILE)
    text_files.check_json(said, _Description, path)
    if not 0 < said["max_seq_length"] <= said["most_positions"]:
        raise UserError(
            f"{path}: max_seq_length is {said['max_seq_length']}; it must be from 1 to the {said['most_positions']} "
            "positions of the model"
        )
    settings = {name: said[name] for name in TextSettings._fields if name in said}
    tokenizer = load_tokenizer(os.path.join(folder, ASSETS_FOLDER), **settings)
    tokenizer.num_segments = said[LIMITS]["segment_ids"]
    if not said["task"].isidentifier() or importlib.util.find_spec(f"official_bert.tasks.{said['task']}") is None:
        raise UserError(f"{folder}: unknown task {said['task']!r}; a newer version of official-bert has it")
    compute = open_engine(folder, file_name, name=engine, num_threads=num_threads)
    model = EngineModel(said, tokenizer, compute, reader_module(said["task"]))
    model.folder = folder
    return model


def _numbers(values: Sequence[int] | bytes) -> np.ndarray:
    return np.frombuffer(values, np.uint8) if isinstance(values, bytes) else np.array(values, np.int32)


def decodable(text: bytes | str) -> str:
    """Drop what UTF-8 cannot encode."""
    return to_unicode(text if isinstance(text, bytes) else text.encode("utf-8", "ignore"))
