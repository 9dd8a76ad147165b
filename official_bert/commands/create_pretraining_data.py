"""`create_pretraining_data`: convert text to shuffled TFRecord files of pretraining examples."""

from typing import TYPE_CHECKING

from absl import logging

from official_bert.commands.shared.corpora import find_parts, warn_of_text
from official_bert.options.command import Command
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.support.processes import available_cores
from official_bert.tasks.pretraining.options import PretrainingDataConfig, RecordOptions

if TYPE_CHECKING:
    from official_bert.tokenization import Tokenizer


def prepare(config: RecordOptions) -> "tuple[list[str], Tokenizer]":
    """Find the input files and read the tokenizer."""
    from official_bert.tokenization import read_tokenizer

    parts, tokenizer = find_parts(config), read_tokenizer(config)
    input_files = [part.path for part in parts]
    logging.info("reading %d file(s): %s", len(input_files), ", ".join(input_files))
    warn_of_text(parts[0], config, tokenizer.settings, tokenizer.vocabulary)
    return input_files, tokenizer


def run(config: PretrainingDataConfig, inputs: "tuple[list[str], Tokenizer]") -> None:
    from official_bert.tasks.pretraining.data import keeping_tokenizer

    input_files, tokenizer = inputs
    with keeping_tokenizer(config.output_files, tokenizer, input_files):
        summary = _write(config, tokenizer)
    logging.info("%s", summary)
    logging.info("wrote %s", files.describe_paths(config.output_files))


def _write(config: PretrainingDataConfig, tokenizer: "Tokenizer") -> str:
    from official_bert.tasks.pretraining.sharded import PART_BYTES, Resources, ShardedRun, write_serial

    if config.sampling == "serial":
        return write_serial(find_parts(config), tokenizer, config)
    first = config.output_file.partition(",")[0].strip()
    if config.work_dir is None and files.is_remote(first):
        raise UserError(f"output_file={first} is remote; give a local work_dir for the intermediate files")
    parts = find_parts(config, PART_BYTES)
    resources = Resources.divide(config.num_processes or available_cores(), config.max_memory_gb)
    work_dir = config.work_dir or f"{first}.work"
    for path in config.output_files:
        if not files.is_remote(path) and files.is_below(path, work_dir):
            raise UserError(f"work_dir={work_dir} is deleted at the end, but would contain {path}; give another folder")
    return ShardedRun(parts, tokenizer, config, resources=resources, work_dir=work_dir).write()


COMMAND = Command(
    config_class=PretrainingDataConfig,
    summary="Makes TFRecord files for BERT pretraining from text.",
    usage="""
The text has one sentence per line and a blank line between documents.

  {command} --input_file=corpus.txt --output_file=records.tfrecord --vocab_file=vocab.txt
""",
    prepare=prepare,
    run=run,
    uses_tensorflow=False,
    last_value_counts=True,
)
