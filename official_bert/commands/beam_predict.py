"""`beam_predict`: compute predictions or vectors for texts or records, on one machine or a cluster."""

import os
import time

from absl import logging

from official_bert.config.poolings import EMBED, pooling_help, poolings_of
from official_bert.data.tables import FORMATS
from official_bert.data.text_inputs import ids_path
from official_bert.options.command import Command
from official_bert.options.groups import BeamOptions, TableOptions
from official_bert.options.option import MAX_AXIS, MAX_PARTS, option, options
from official_bert.serving.versions import find_export
from official_bert.support import files
from official_bert.support.console import format_seconds
from official_bert.support.errors import UserError, require
from official_bert.support.manifest import find_inputs, is_no_sidecar

RECORDS_FORMAT = "tfrecord"


@options(group="input")
class BeamPredictionConfig(TableOptions, BeamOptions):
    model_dir: str | None = option(
        None,
        "Exported model, or output folder of a training run; with --pooling, such a folder or that of an encoder.",
        required=True,
        is_path=True,
    )
    input_file: str | None = option(
        None,
        "Files to read: comma-separated list of names, globs, folders (all files below) and @list.txt (a file with one "
        "of these per line). One text per line, or `text ||| text` for a pair or for question and context.",
        required=True,
        is_path=True,
    )
    output_file: str | None = option(
        None,
        "File to write; with several shards, of out.jsonl the first of 8 is out-00000-of-00008.jsonl.",
        required=True,
        is_output=True,
    )
    output_format: str = option(
        "jsonl",
        "jsonl: JSON Lines. For vectors also npy: one array per file, with the ids of its rows in NAME.ids.jsonl; or "
        "tfrecord: one Example per text.",
        group="output",
        choices=("jsonl", "npy", "tfrecord"),
    )
    num_shards: int = option(1, "Number of files to write.", group="output", minimum=1, maximum=MAX_PARTS)
    text_column: str | None = option(
        None, "Read tables: name or number (from 0) of the text column; in JSON Lines its key, in Parquet its name."
    )
    text_b_column: str | None = option(
        None, "With --text_column: column of the second text of a pair, or of the context of a question."
    )
    input_format: str | None = option(
        None,
        "Format of the files: with --text_column by default that of the file name's extension; tfrecord for the "
        "records that a run wrote.",
        choices=(*FORMATS, RECORDS_FORMAT),
    )
    pooling: str | None = option(
        None,
        f"Write a vector of each text instead of a prediction. {pooling_help(poolings_of(EMBED))}",
        group="output",
        choices=poolings_of(EMBED),
    )
    max_seq_length: int = option(
        0,
        "With --pooling: maximum number of wordpieces per text, including [CLS] and [SEP]; 0 for the model's.",
        minimum=0,
        maximum=MAX_AXIS,
    )

    def __post_init__(self):
        super().__post_init__()
        _ = self.beam_arguments
        if self.text_column is None:
            self.refuse("text_b_column", "has_header", "delimiter", because="needs --text_column")
        if self.pooling is None:
            self.refuse("max_seq_length", because="needs --pooling")
        ending = f".{self.output_format}"
        if self.output_format == "npy" and not self.output_file.endswith(ending):
            raise UserError(f"--output_format=npy: the name of --output_file={self.output_file} must end in {ending}")
        if self.reads_records and self.text_column is not None:
            raise UserError("--text_column cannot be used with --input_format=tfrecord")
        if self.reads_records and self.pooling is not None:
            raise UserError("--pooling needs texts; leave it or --input_format=tfrecord out")
        if self.text_column is None and self.input_format is not None and not self.reads_records:
            raise UserError("--input_format needs --text_column")

    @property
    def reads_records(self) -> bool:
        return self.input_format == RECORDS_FORMAT

    @property
    def text_columns(self) -> list[str] | None:
        """The table columns to read; None for lines."""
        return [column for column in (self.text_column, self.text_b_column) if column is not None] or None

    @property
    def output_files(self) -> list[str]:
        paths = shard_paths(self.output_file, self.num_shards)
        return [*paths, *map(ids_path, paths)] if self.output_format == "npy" else paths


def shard_paths(path: str, num_shards: int) -> list[str]:
    """Return shard names: `out-00000-of-00008.jsonl`, ... for `out.jsonl` and 8; the path itself for 1."""
    if num_shards == 1:
        return [path]
    stem, ending = os.path.splitext(path)
    return [f"{stem}-{number:05d}-of-{num_shards:05d}{ending}" for number in range(num_shards)]


def check(config: BeamPredictionConfig) -> None:
    files.check_folder(config.model_dir, "model_dir")
    find_inputs(config.input_file, is_input=is_no_sidecar if config.reads_records else None)
    require("apache_beam", extra="beam")


def run(config: BeamPredictionConfig) -> None:
    from official_bert.data.text_inputs import TextSource

    require("apache_beam", extra="beam")
    from official_bert.data import beam_jobs
    from official_bert.inference import beam_prediction

    options = beam_jobs.pipeline_options(config.beam_arguments)
    names = find_inputs(config.input_file, is_input=is_no_sidecar if config.reads_records else None)
    inputs = [beam_prediction.InputFile(number, name, files.absolute_path(name)) for number, name in enumerate(names)]
    text_format = None
    if not config.reads_records:
        text_format = beam_prediction.TextFormat(
            config.text_columns, config.input_format, config.has_header, config.delimiter
        )
        for name in names:
            TextSource(name, *text_format).check()
    output_files = shard_paths(config.output_file, config.num_shards)
    settings = beam_prediction.PredictionSettings(
        # All workers use one version, even if another is exported meanwhile.
        model_dir=files.absolute_path(find_export(config.model_dir) or config.model_dir),
        pooling=config.pooling,
        max_seq_length=config.max_seq_length or None,
        text_format=text_format,
        output_format=config.output_format,
    )
    steps = beam_prediction.Predict(inputs, settings, [files.absolute_path(path) for path in output_files])
    logging.info("predicting %d file(s): %s", len(names), ", ".join(names))
    beam_jobs.remove_earlier(config.output_files)
    began = time.monotonic()
    counters = beam_jobs.run_job(steps, options)
    seconds = time.monotonic() - began
    num_inputs = counters[beam_prediction.NUM_INPUTS]
    logging.info(
        "%s %s in %s, %s/s; the model was loaded %d time(s), once by each worker process that predicted",
        f"{num_inputs:,}",
        "records" if config.reads_records else "texts",
        format_seconds(seconds),
        f"{num_inputs / seconds:,.0f}",
        counters[beam_prediction.NUM_MODELS],
    )
    logging.info("wrote %s", ", ".join(output_files))


COMMAND = Command(
    config_class=BeamPredictionConfig,
    summary="Predicts large files with a trained model, on this machine or a cluster: an Apache Beam pipeline.",
    usage=r"""
  {command} --model_dir=serving/reviews --input_file='reviews/*.txt' --output_file=predictions.jsonl \
      --num_shards=8 --beam_args='--direct_running_mode=multi_processing --direct_num_workers=4'

Needs the extra "beam". Each output line has the file and the index of the text in it, from 0. The
workers read and write the same paths as this process. See docs/beam.md for the options for clusters.
""",
    check=check,
    run=run,
)
