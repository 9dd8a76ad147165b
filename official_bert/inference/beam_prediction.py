"""Predictions for files of any size as an Apache Beam pipeline: one reader per file, one model per worker process.

A file is cut into blocks of texts or records, which are predicted on any worker. Each result is a line of JSON with its
file and its index in the file, from 0, or a vector with these as its id; the results of a shard are in that order.
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
from official_bert.data.beam_jobs import WriteShards, write_lines
from official_bert.data.feature_files import NPY, TFRECORD, TextId, VectorBlock, write_npy, write_tfrecord
from official_bert.data.record_files import read_records
from official_bert.data.text_inputs import TextSource
from official_bert.inference.predictor import Predictor, as_json
from official_bert.support.errors import UserError

BLOCK_SIZE = 64  # texts

JSONL = "jsonl"
_WRITERS = {JSONL: write_lines, NPY: write_npy, TFRECORD: write_tfrecord}

NUM_INPUTS, NUM_MODELS = "inputs", "models"  # names of the counters


class InputFile(NamedTuple):
    number: int  # its index among the inputs
    name: str  # its name in the results
    path: str  # the path that workers open


class TextFormat(NamedTuple):
    """Settings for reading texts; see `TextSource`, which cannot be pickled for workers."""

    text_columns: Sequence[str] | None
    table_format: str | None
    has_header: bool
    delimiter: str


class Block(NamedTuple):
    file: InputFile
    first: int  # index of the first text or record
    inputs: list[Any]  # texts, tuples of two, or serialized records


class PredictionSettings(NamedTuple):
    model_dir: str  # the model, see `Predictor`
    # pooling of the vectors, see `Predictor.embed`; None for predictions, or a sentence encoder's own vectors
    pooling: str | None
    max_seq_length: int | None  # maximum length for the vectors; None for the model's
    text_format: TextFormat | None  # format of the texts; None if the files contain serialized records
    output_format: str = JSONL  # "jsonl", or "npy" or "tfrecord" for vectors


class Predict(beam.PTransform):
    """Root transform that predicts files and writes the results; returns the paths of the shards."""

    def __init__(self, inputs: Sequence[InputFile], settings: PredictionSettings, output_files: Sequence[str]):
        super().__init__()
        self._inputs, self._settings, self._output_files = list(inputs), settings, list(output_files)

    def expand(self, pipeline):
        return (
            pipeline
            | "list the files" >> beam.Create(self._inputs, reshuffle=False)
            | "spread the files" >> beam.Reshuffle()
            | "read" >> beam.FlatMap(read_blocks, self._settings.text_format)
            | "spread the blocks" >> beam.Reshuffle()
            | "predict" >> beam.ParDo(_PredictBlock(self._settings))
            | "choose the shard" >> beam.Map(_with_shard, len(self._output_files))
            | "write" >> WriteShards(self._output_files, _WRITERS[self._settings.output_format])
        )


def read_blocks(file: InputFile, text_format: TextFormat | None) -> Iterator[Block]:
    """Yield the blocks of a file of texts or, without a format, of records."""
    if text_format is None:
        inputs = read_records(file.path)
    else:
        texts = TextSource(file.path, *text_format)
        inputs = (text.text_a if text.text_b is None else tuple(text) for text in texts)
    first = 0
    while block := list(itertools.islice(inputs, BLOCK_SIZE)):
        yield Block(file, first, block)
        first += len(block)


class _PredictBlock(beam.DoFn):
    """Predicts blocks as lines of JSON or vectors; all instances in a process share a model."""

    def __init__(self, settings: PredictionSettings):
        self._settings = settings
        self._shared = Shared()

    def process(self, block: Block) -> Iterator[tuple[int, int, Any]]:
        predictor = self._shared.acquire(functools.partial(_load, self._settings.model_dir))
        results = _results(predictor, block, self._settings)
        beam_jobs.counter(NUM_INPUTS).inc(len(results))
        are_vectors = self._settings.pooling is not None or predictor.returns_vectors
        ids = [TextId(block.file.name, block.first + row) for row in range(len(results))]
        if self._settings.output_format == JSONL:
            key = "vector" if are_vectors else "prediction"
            objects = ({**text._asdict(), key: as_json(result)} for text, result in zip(ids, results, strict=True))
            lines = (json.dumps(values, ensure_ascii=False).encode("utf-8", "replace") for values in objects)
            content = b"\n".join(lines)
        elif are_vectors:
            content = VectorBlock(ids, np.asarray(results, np.float32))
        else:
            raise UserError(
                f"output_format={self._settings.output_format} is for vectors; give pooling=mean, say, or a sentence "
                "encoder as the model"
            )
        yield block.file.number, block.first, content


def _load(model_dir: str) -> Predictor:
    predictor = Predictor(model_dir)
    beam_jobs.counter(NUM_MODELS).inc()
    return predictor


def _results(predictor: Predictor, block: Block, settings: PredictionSettings) -> Sequence[Any]:
    def predict(inputs: list[Any]) -> Sequence[Any]:
        if settings.pooling is not None:
            return predictor.embed(inputs, pooling=settings.pooling, max_seq_length=settings.max_seq_length)
        if settings.text_format is None:
            return predictor.predict_records(inputs)
        return predictor.embed(inputs) if predictor.returns_vectors else predictor(inputs)

    try:
        return predict(block.inputs)
    except UserError as error:
        for number, one in enumerate(block.inputs, start=block.first):
            try:
                predict([one])
            except UserError as mistake:
                kind = "record" if settings.text_format is None else "text"
                raise UserError(f"{block.file.name}: {kind} {number} (counted from 0): {mistake}") from error
        raise


def _with_shard(block: tuple[int, int, Any], num_shards: int) -> tuple[int, list[Any]]:
    """Assign the blocks of a file to the shards in turn; the next file starts at the next shard."""
    file_number, first, content = block
    shard = (file_number + first // BLOCK_SIZE) % num_shards
    return shard, [((file_number, first), content)]
