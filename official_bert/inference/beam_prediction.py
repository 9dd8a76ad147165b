"""Predictions for files of any size as an Apache Beam pipeline: one reader a file, a model in every worker process.

A file is cut into blocks of texts or records, which are predicted on any worker. Each result is a line of JSON that
says which file and which text of it, counted from 0, it belongs to; the lines of a shard are in that order.
"""

import functools
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.utils.shared import Shared

from official_bert.data import beam_jobs
from official_bert.data.beam_shards import WriteShards, write_lines
from official_bert.data.text_inputs import TextSource
from official_bert.data.tfrecord import read_records
from official_bert.inference.predictor import Predictor
from official_bert.support.errors import UserError

BLOCK_SIZE = 64  # texts; a multiple of the Predictor's batches, so that those are the ones it would make of a file

NUM_INPUTS, NUM_MODELS = "inputs", "models"  # what is counted


class InputFile(NamedTuple):
    """A file to read.

    Attributes:
      number: its place among the inputs.
      name: as the results call it.
      path: what the workers open.
    """

    number: int
    name: str
    path: str


class TextFormat(NamedTuple):
    """Settings for reading texts; see `TextSource`, which cannot be sent to workers itself."""

    text_columns: Sequence[str] | None
    table_format: str | None
    has_header: bool


class Block(NamedTuple):
    """Neighbouring texts or records of a file.

    Attributes:
      file_number: of the file.
      file_name: of the file.
      first: the number of the first text or record in it.
      inputs: these: texts, tuples of two, or serialized records.
    """

    file_number: int
    file_name: str
    first: int
    inputs: list[Any]


class PredictionSettings(NamedTuple):
    """Settings for the predictions.

    Attributes:
      model_dir: what `Predictor` loads.
      pooling: of the vectors, see `Predictor.embed`; None for predictions.
      max_seq_length: of the vectors, None for the model's.
      text_format: how texts are read; None if the files hold serialized records.
    """

    model_dir: str
    pooling: str | None
    max_seq_length: int | None
    text_format: TextFormat | None


class Predict(beam.PTransform):
    """Predicts files, the pipeline's beginning, and writes the results; gives the paths of the shards."""

    def __init__(self, inputs: Sequence[InputFile], settings: PredictionSettings, output_files: Sequence[str]):
        """Say what to do; nothing is read."""
        super().__init__()
        self._inputs, self._settings, self._output_files = list(inputs), settings, list(output_files)

    def expand(self, pipeline):
        """Add the steps."""
        return (
            pipeline
            | "list the files" >> beam.Create(self._inputs, reshuffle=False)
            | "spread the files" >> beam.Reshuffle()
            | "read" >> beam.FlatMap(read_blocks, self._settings.text_format)
            | "spread the blocks" >> beam.Reshuffle()
            | "predict" >> beam.ParDo(_PredictBlock(self._settings))
            | "choose the shard" >> beam.Map(_with_shard, len(self._output_files))
            | "write" >> WriteShards(self._output_files, write_lines)
        )


def read_blocks(file: InputFile, text_format: TextFormat | None) -> Iterator[Block]:
    """Read a file of texts or, without a format, of records.

    Raises:
      UserError: it is missing, empty, damaged or not in the format.
    """
    inputs = read_records(file.path) if text_format is None else _texts(TextSource(file.path, *text_format))
    for number, block in enumerate(_blocks(inputs)):
        yield Block(file.number, file.name, number * BLOCK_SIZE, block)


def _texts(source: TextSource) -> Iterator[str | tuple[str, str]]:
    for text in source:
        yield text.text_a if text.text_b is None else tuple(text)


def _blocks(inputs: Iterator[Any]) -> Iterator[list[Any]]:
    while block := list(itertools.islice(inputs, BLOCK_SIZE)):
        yield block


class _PredictBlock(beam.DoFn):
    """Turns blocks into blocks of lines; all instances in a process use one model."""

    def __init__(self, settings: PredictionSettings):
        self._settings = settings
        self._shared = Shared()

    def process(self, block: Block) -> Iterator[tuple[int, int, list[bytes]]]:
        predictor = self._shared.acquire(functools.partial(_load, self._settings.model_dir))
        results = _results(predictor, block, self._settings)
        beam_jobs.counter(NUM_INPUTS).inc(len(results))
        key = "prediction" if self._settings.pooling is None else "vector"
        lines = [
            json.dumps({"file": block.file_name, "number": number, key: as_json(result)}, ensure_ascii=False)
            for number, result in enumerate(results, start=block.first)
        ]
        yield block.file_number, block.first, [line.encode("utf-8", "replace") for line in lines]


def _load(model_dir: str) -> Predictor:
    predictor = Predictor(model_dir)
    beam_jobs.counter(NUM_MODELS).inc()
    return predictor


def _results(predictor: Predictor, block: Block, settings: PredictionSettings) -> Sequence[Any]:
    """Return the results of a block.

    Raises:
      UserError: the model cannot read one of its texts or records; the message says which.
    """
    if settings.pooling is not None:
        return predictor.embed(block.inputs, pooling=settings.pooling, max_seq_length=settings.max_seq_length)
    if settings.text_format is not None:
        _check_texts(block, predictor.text_names)
        return predictor(block.inputs)
    try:
        return predictor.predict_records(block.inputs)
    except UserError as error:
        for number, record in enumerate(block.inputs, start=block.first):
            try:
                predictor.predict_records([record])
            except UserError as mistake:
                raise UserError(f"{block.file_name}: record {number} (counted from 0): {mistake}") from error
        raise


def _check_texts(block: Block, names: Sequence[str]) -> None:
    for number, text in enumerate(block.inputs, start=block.first):
        num_texts = 1 if isinstance(text, str) else len(text)
        if names and num_texts != len(names):
            raise UserError(
                f"{block.file_name}: text {number} (counted from 0) is {'one text' if num_texts == 1 else 'a pair'}, "
                f"but this model reads {' and '.join(names)}"
            )


def as_json(result: Any) -> Any:
    """Return a result of `Predictor` as `json` writes it: named tuples become objects, arrays lists."""
    if isinstance(result, (np.ndarray, np.generic)):
        result = result.tolist()
    if isinstance(result, bytes):
        return result.decode("utf-8", "replace")
    if isinstance(result, tuple) and hasattr(result, "_asdict"):
        result = result._asdict()
    if isinstance(result, dict):
        return {name: as_json(value) for name, value in result.items()}
    if isinstance(result, (list, tuple)):
        return [as_json(value) for value in result]
    return result


def _with_shard(block: tuple[int, int, list[bytes]], num_shards: int) -> tuple[int, list[Any]]:
    """Give the blocks of a file to the shards in turn, and the first of the next file to the next shard."""
    file_number, first, lines = block
    shard = (file_number + first // BLOCK_SIZE) % num_shards
    return shard, [((file_number, first), b"\n".join(lines))]
