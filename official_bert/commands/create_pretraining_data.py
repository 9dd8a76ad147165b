"""`create_pretraining_data`: text files in, shuffled TFRecord files of sentence pairs out, masked or not."""

import os
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import logging

from official_bert.commands.shared.file_checks import check_pretraining_data
from official_bert.options.command import Command
from official_bert.support import files, writing
from official_bert.support.errors import UserError
from official_bert.support.input_files import InputState, find_inputs
from official_bert.support.processes import available_cores
from official_bert.tasks.pretraining.options import PretrainingDataConfig, RecordOptions

if TYPE_CHECKING:
    from official_bert.tasks.pretraining.records import RecordMaker
    from official_bert.tokenization import Tokenizer


def run(config: PretrainingDataConfig) -> None:
    """Makes the records.

    Raises:
      UserError: an input is missing, unreadable or changes meanwhile, or an output cannot be written.
    """
    from official_bert.data.records_tokenizer import keeping_tokenizer
    from official_bert.tokenization import read_tokenizer

    input_files = find_inputs(config.input_file)
    for path in config.output_files:
        writing.check_writable_folder(path, name="output_file")
    writing.check_no_overwriting(config.output_files, [*input_files, config.tokenizer_file], name="output_file")
    logging.info("reading %d file(s): %s", len(input_files), ", ".join(input_files))
    tokenizer = read_tokenizer(config)
    maker = record_maker(config, tokenizer)
    make = _make_sharded if config.sampling == "sharded" else _make_serial
    with keeping_tokenizer(config.output_files, tokenizer, input_files):
        summary = make(config, input_files, tokenizer, maker)
    logging.info("%s", summary)
    logging.info("wrote %s", files.named(config.output_files))


def record_maker(config: RecordOptions, tokenizer: "Tokenizer") -> "RecordMaker":
    """Return the maker of records for the flags."""
    from official_bert.data.masking import Replacements
    from official_bert.tasks.pretraining.records import RecordMaker

    return RecordMaker(
        tokenizer,
        max_seq_length=config.max_seq_length,
        max_predictions_per_seq=config.max_predictions_per_seq,
        masked_lm_prob=config.masked_lm_prob,
        short_seq_prob=config.short_seq_prob,
        do_whole_word_mask=config.do_whole_word_mask,
        max_ngram_length=config.max_ngram_length,
        is_masked=config.masking == "static",
        replacements=Replacements(config.mask_replace_prob, config.random_replace_prob),
        use_next_sentence=config.use_next_sentence,
        sentence_order=config.sentence_order,
    )


def _make_serial(
    config: PretrainingDataConfig, input_files: Sequence[str], tokenizer: "Tokenizer", maker: "RecordMaker"
) -> str:
    from official_bert.data.corpus_files import corpus_parts
    from official_bert.data.records import RecordSpool, RecordWriter
    from official_bert.tasks.pretraining.records import read_corpus, warn_about_corpus

    parts = corpus_parts(input_files, file_format=config.input_format, text_field=config.text_field)
    inputs = InputState(input_files)
    corpus = read_corpus(parts, tokenizer)
    inputs.check_unchanged()
    num_documents = len(corpus.documents)
    unknown_share = corpus.ids.count(tokenizer.unk_id) / len(corpus.ids)
    warn_about_corpus(
        num_documents=num_documents,
        num_single=sum(len(document) == 1 for document in corpus.documents),
        unknown_share=unknown_share,
        settings=tokenizer.settings,
        negatives=maker.negatives,
    )
    # One stream for everything, drawn from in the reference's order: documents, pairs and masks, records.
    rng = random.Random(config.random_seed)
    corpus.shuffle_documents(rng)
    with (
        RecordWriter(config.output_files, config.compression) as writer,
        RecordSpool(_local_folder(config.output_files[0])) as spool,
    ):
        for record in maker.passes(corpus, rng, config.dupe_factor):
            spool.append(record)
        for record in spool.shuffled(rng):
            writer.write(record)
    return maker.counts.summary(
        num_documents=num_documents,
        unknown_share=unknown_share,
        is_masked=maker.is_masked,
        negatives=maker.negatives,
    )


def _make_sharded(
    config: PretrainingDataConfig, input_files: Sequence[str], tokenizer: "Tokenizer", maker: "RecordMaker"
) -> str:
    from official_bert.data.corpus_files import corpus_parts
    from official_bert.data.records import fingerprint
    from official_bert.tasks.pretraining.sharded import PART_BYTES, Resources, ShardedRun

    first = config.output_file.partition(",")[0].strip()
    if config.work_dir is None and files.is_remote(first):
        raise UserError(f"output_file={first} is remote; give a local work_dir for the intermediate files")
    parts = corpus_parts(
        input_files, file_format=config.input_format, text_field=config.text_field, part_bytes=PART_BYTES
    )
    made_from = fingerprint(
        [(path, files.size(path), files.modified_ns(path)) for path in input_files],
        [config.input_format, config.text_field, PART_BYTES, config.random_seed, config.dupe_factor],
        [tokenizer.vocabulary.fingerprint, tokenizer.settings.fingerprint],
        [config.max_seq_length, config.max_predictions_per_seq, config.masked_lm_prob, config.short_seq_prob],
        [config.do_whole_word_mask, config.masking],
        [config.mask_replace_prob, config.random_replace_prob, config.use_next_sentence],
        [config.max_ngram_length, config.sentence_order],
    )
    sharded = ShardedRun(
        parts,
        tokenizer,
        maker,
        seed=config.random_seed,
        dupe_factor=config.dupe_factor,
        resources=Resources.of(config.num_processes or available_cores(), config.max_memory_gb),
        work_dir=config.work_dir or f"{first}.work",
        made_from=made_from,
    )
    return sharded.write(config.output_files, config.compression)


def _local_folder(path: str) -> str | None:
    """The folder of a local output, which has room for its records; None for a remote one."""
    return None if files.is_remote(path) else os.path.dirname(path) or "."


COMMAND = Command(
    name="create_pretraining_data",
    config_class=PretrainingDataConfig,
    summary="Makes TFRecord files for BERT pretraining from text.",
    usage="""
The text has one sentence per line and a blank line between documents.

  {command} --input_file=corpus.txt --output_file=records.tfrecord --vocab_file=vocab.txt
""",
    check=check_pretraining_data,
    run=run,
    uses_tensorflow=False,
)
