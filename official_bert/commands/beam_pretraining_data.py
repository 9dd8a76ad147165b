"""`beam_pretraining_data`: create the records of sharded sampling, on one machine or a cluster."""

import time
from typing import TYPE_CHECKING

from absl import logging

from official_bert.commands.create_pretraining_data import prepare as prepare_pretraining_data
from official_bert.commands.shared.corpora import parts_of
from official_bert.options.command import Command
from official_bert.options.groups import BeamOptions
from official_bert.options.option import options
from official_bert.support import files, writing
from official_bert.support.errors import UserError, require
from official_bert.support.manifest import InputState
from official_bert.tasks.pretraining.options import RecordOptions

if TYPE_CHECKING:
    from official_bert.tokenization import Tokenizer


@options(group="devices")
class BeamPretrainingDataConfig(RecordOptions, BeamOptions):
    def __post_init__(self):
        super().__post_init__()
        _ = self.beam_arguments


def prepare(config: BeamPretrainingDataConfig) -> "tuple[list[str], Tokenizer]":
    require("apache_beam", extra="beam")
    return prepare_pretraining_data(config)


def run(config: BeamPretrainingDataConfig, inputs: "tuple[list[str], Tokenizer]") -> None:
    from official_bert.data import beam_jobs
    from official_bert.data.documents import CorpusCounts
    from official_bert.tasks.pretraining.beam_records import MakeRecords
    from official_bert.tasks.pretraining.data import RecordCounts, check_corpus, keeping_tokenizer
    from official_bert.tasks.pretraining.sharded import PART_BYTES

    options = beam_jobs.pipeline_options(config.beam_arguments)
    input_files, tokenizer = inputs
    paths = [files.absolute_path(path) for path in input_files]
    parts = parts_of(paths, config, PART_BYTES)
    outputs = [files.absolute_path(path) for path in config.output_files]
    steps = MakeRecords(parts, tokenizer, config, outputs)
    beam_jobs.remove_earlier(config.output_files)
    began = time.monotonic()
    inputs = InputState(input_files)
    with keeping_tokenizer(config.output_files, tokenizer, input_files):
        counters = beam_jobs.run_job(steps, options)
        try:
            inputs.check_unchanged()
        except UserError:
            for path in config.output_files:
                writing.remove(path)
            raise
    seconds = time.monotonic() - began
    corpus, counts = (kind(**{name: counters[name] for name in vars(kind())}) for kind in (CorpusCounts, RecordCounts))
    check_corpus(corpus, paths, tokenizer.settings, config)
    logging.info("%s", counts.summary(corpus, config))
    message = "%s wordpieces of text in %.0f seconds, %s records/s"
    logging.info(message, f"{corpus.num_ids:,}", seconds, f"{counts.num_records / seconds:,.0f}")
    logging.info("wrote %s", files.describe_paths(config.output_files))


COMMAND = Command(
    config_class=BeamPretrainingDataConfig,
    summary="Makes TFRecord files for BERT pretraining on this machine or a cluster: an Apache Beam pipeline.",
    usage=r"""
The records are those of create_pretraining_data --sampling=sharded with the same flags, file by file.

  {command} --input_file='corpus/*.txt' --output_file=records.tfrecord --vocab_file=vocab.txt --num_shards=64 \
      --beam_args='--direct_running_mode=multi_processing --direct_num_workers=4'

Needs the extra "beam". The workers read and write the same paths as this process. See docs/beam.md for the options for
clusters.
""",
    prepare=prepare,
    run=run,
    uses_tensorflow=False,
)
