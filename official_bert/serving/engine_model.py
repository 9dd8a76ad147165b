"""`EngineModel`: an export for LiteRT, ONNX Runtime or OpenVINO, which reads texts with its task's reader."""

import importlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from official_bert.config.bert_config import BertConfig
from official_bert.config.text_settings import TextSettings
from official_bert.serving.engines import open_engine
from official_bert.serving.readers import Reader, check_table_size, padded_table
from official_bert.serving.signatures import (
    SERVING_DEFAULT,
    SERVING_INT64,
    TEXT,
    TOKENIZE,
    Arrays,
    ArraySpec,
    LoadedExport,
    RequestError,
    Signature,
    definitions_of,
)
from official_bert.serving.versions import (
    ASSETS_FOLDER,
    LIMITS,
    NUM_POSITIONS,
    OUTPUTS,
    check_whole,
    description,
    model_file,
)
from official_bert.support.errors import UserError
from official_bert.tokenization import load_tokenizer
from official_bert.tokenization.sequences import MOST_BYTES, batches_by_length
from official_bert.tokenization.tokenizer import to_unicode

# An export does not tell its sizes; these are BERT-Base's.
USUAL_SIZES = BertConfig(vocab_size=1)


class EngineModel:
    """The model; its attributes are those of `TensorFlowModel`."""

    text_encoder = None
    takes_one_text = False
    config = USUAL_SIZES

    def __init__(
        self,
        folder: str,
        *,
        engine: str | None = None,
        num_threads: int = 0,
    ):
        """Load a version; see `open_engine` for the arguments."""
        check_whole(folder)
        said, file_name = description(folder), model_file(folder)
        if OUTPUTS not in said:
            export_format = file_name.rpartition(".")[2]
            raise UserError(
                f"{folder} was exported by an earlier version, without what reading texts needs; export the model "
                f"again with export_format={export_format}"
            )
        self.said, self.text_names = said, said["text_names"]
        self.compute = open_engine(folder, file_name, name=engine, num_threads=num_threads)
        settings = {name: said[name] for name in TextSettings._fields if name in said}
        self.tokenizer = load_tokenizer(os.path.join(folder, ASSETS_FOLDER), **settings)
        self.tokenizer.num_segments = said[LIMITS]["segment_ids"]
        self.task, module = said["task"], _reader_module(folder, said["task"])
        self._reader: Reader = module.READER(said, self.tokenizer)
        self.results = module.results
        self.num_positions = said.get(NUM_POSITIONS, said["max_seq_length"])
        self.outputs = {
            name: {key: ArraySpec(np.dtype(dtype), tuple(shape)) for key, (dtype, shape) in outputs.items()}
            for name, outputs in said[OUTPUTS].items()
        }

    def answer(self, texts: Mapping[str, Sequence[bytes | str]]) -> Arrays:
        """Convert texts to predictions, as the signature `text` of a SavedModel does."""
        readings = self._readings(texts)
        if not readings:
            return self._nothing(TEXT)
        rows = iter(self._computed([sequence for reading in readings for sequence in reading.sequences]))
        return self._reader.decode(readings, [[next(rows) for _ in reading.sequences] for reading in readings])

    def tokenize(self, texts: Mapping[str, Sequence[bytes | str]]) -> Arrays:
        """Convert texts to input_ids, input_mask and segment_ids, int32 [B, S], or [B, W, S] of windows."""
        readings = self._readings(texts)
        names = self.said[LIMITS]
        if self.outputs[TOKENIZE]["input_ids"].rank == 2:
            columns = {name: [_numbers(reading.sequences[0][name]) for reading in readings] for name in names}
        else:
            columns = {
                name: [
                    padded_table((_numbers(sequence[name]) for sequence in reading.sequences), np.int32(0))
                    for reading in readings
                ]
                for name in names
            }
        return {name: padded_table(rows, np.int32(0)) for name, rows in columns.items()}

    def predict(self, ids: Arrays) -> Arrays:
        """Convert input_ids, input_mask and segment_ids, [B, S], to predictions."""
        self._check(ids)
        if not len(ids["input_ids"]):
            return self._nothing(SERVING_DEFAULT)
        rows = zip(*ids.values(), strict=True)
        return self._reader.stacked(self._computed([dict(zip(ids, row, strict=True)) for row in rows]))

    def answer_records(self, records: Sequence[bytes]) -> Arrays:
        raise UserError("an export for LiteRT or ONNX reads texts, not records; give the run's folder")

    def signatures(self) -> LoadedExport:
        texts = {name: ArraySpec(np.dtype(object), (None,)) for name in self.text_names}
        found = [
            Signature(TEXT, texts, self.outputs[TEXT], self.answer),
            Signature(TOKENIZE, texts, self.outputs[TOKENIZE], self.tokenize),
            *(
                Signature(name, texts, specs, lambda texts, convert=convert: convert(self.answer(texts)))
                for name, (specs, convert) in self._reader.further_signatures.items()
            ),
        ]
        for name, dtype in ((SERVING_DEFAULT, np.int32), (SERVING_INT64, np.int64)):
            ids = dict.fromkeys(self.said[LIMITS], ArraySpec(np.dtype(dtype), (None, None)))
            found.append(Signature(name, ids, self.outputs[SERVING_DEFAULT], self.predict))
        by_name = {signature.name: signature for signature in found}
        return LoadedExport(by_name, definitions_of(by_name), self)

    def _readings(self, texts: Mapping[str, Sequence[bytes | str]]) -> list[Any]:
        columns = [texts[name] for name in self.text_names]
        for name, column in zip(self.text_names, columns, strict=True):
            if (longest := max(map(len, column), default=0)) > MOST_BYTES:
                raise RequestError(f"{name} must have at most {MOST_BYTES} bytes per example, but one has {longest}")
        reader = self._reader
        return [reader.encode(*map(reader.beginning, map(_decodable, row))) for row in zip(*columns, strict=True)]

    def _computed(self, sequences: Sequence[Mapping[str, Any]]) -> list[dict[str, np.ndarray]]:
        """Return the outputs of each sequence; those of like length are computed together."""

        def most_rows(length: int) -> int:
            return self._reader.most_rows(length) if self.compute.reads_batches else 1

        pad_ids = {"input_ids": self.tokenizer.specials.pad_id}
        results: list[dict[str, np.ndarray]] = [{}] * len(sequences)
        lengths = [len(sequence["input_ids"]) for sequence in sequences]
        batches = batches_by_length(lengths, most_rows)
        ids_of_batches = (
            {
                name: padded_table((_numbers(sequences[row][name]) for row in batch), np.int32(pad_ids.get(name, 0)))
                for name in self.said[LIMITS]
            }
            for batch in batches
        )
        for batch, outputs in zip(batches, self.compute.all(ids_of_batches), strict=True):
            for place, row in enumerate(batch):
                results[row] = {name: values[place] for name, values in outputs.items()}
        return results

    def _nothing(self, name: str) -> Arrays:
        specs = self.outputs[name].items()
        return {key: np.zeros([0, *(size or 0 for size in spec.shape[1:])], spec.dtype) for key, spec in specs}

    def _check(self, ids: Arrays) -> None:
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
        widths = [np.prod(spec.shape[2:]) for spec in self.outputs[SERVING_DEFAULT].values() if None in spec.shape[1:]]
        if widths:
            check_table_size(shape[0], shape[1] * max(widths))


def _reader_module(folder: str, task: str) -> ModuleType:
    name = f"official_bert.tasks.{task}.reader"
    if importlib.util.find_spec(name.rpartition(".")[0]) is None:
        raise UserError(f"{folder}: unknown task {task!r}; a newer version of official-bert has it")
    return importlib.import_module(name)


def _numbers(values: Sequence[int] | bytes) -> np.ndarray:
    return np.frombuffer(values, np.uint8) if isinstance(values, bytes) else np.array(values, np.int32)


def _decodable(text: bytes | str) -> str:
    """Drop what UTF-8 cannot encode."""
    return to_unicode(text if isinstance(text, bytes) else text.encode("utf-8", "ignore"))
