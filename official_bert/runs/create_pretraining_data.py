"""`create_pretraining_data.py`: text files in, shuffled TFRecord files of sentence pairs out, masked or not."""

import os
import random

from absl import logging

from official_bert.config.run_configs.pretraining import PretrainingDataConfig
from official_bert.data.corpus_files import corpus_parts
from official_bert.data.records import RecordSpool, RecordWriter
from official_bert.support import files
from official_bert.support.input_files import find_inputs
from official_bert.tasks.pretraining.records import RecordMaker, read_corpus, warn_about_corpus
from official_bert.tokenization import FullTokenizer


def run(config: PretrainingDataConfig) -> None:
    """Makes the records.

    Raises:
      UserError: an input is missing or unreadable, or an output cannot be written.
    """
    input_files = find_inputs(config.input_file)
    for path in config.output_files:
        files.check_writable_folder(path, name="output_file")
    files.check_no_overwriting(config.output_files, [*input_files, config.vocab_file], name="output_file")
    logging.info("reading %d file(s): %s", len(input_files), ", ".join(input_files))
    tokenizer = FullTokenizer(vocab_file=config.vocab_file, **config.text_settings._asdict())
    unknown = tokenizer.unk_id

    parts = corpus_parts(input_files, file_format=config.input_format, text_field=config.text_field)
    corpus = read_corpus(parts, tokenizer)
    unknown_share = corpus.ids.count(unknown) / len(corpus.ids)
    warn_about_corpus(corpus, unknown_share=unknown_share, settings=tokenizer.settings)

    # One stream for everything, drawn from in the reference's order: documents, pairs and masks, records.
    rng = random.Random(config.random_seed)
    corpus.shuffle_documents(rng)
    maker = RecordMaker(
        corpus,
        tokenizer,
        rng,
        max_seq_length=config.max_seq_length,
        max_predictions_per_seq=config.max_predictions_per_seq,
        masked_lm_prob=config.masked_lm_prob,
        short_seq_prob=config.short_seq_prob,
        do_whole_word_mask=config.do_whole_word_mask,
        is_masked=config.masking == "static",
    )
    with (
        RecordWriter(config.output_files, config.compression) as writer,
        RecordSpool(_local_folder(config.output_files[0])) as spool,
    ):
        for record in maker.records(config.dupe_factor):
            spool.append(record)
        for record in spool.shuffled(rng):
            writer.write(record)
    logging.info("%s", maker.summary(unknown_share))
    logging.info("wrote %s", ", ".join(config.output_files))


def _local_folder(path: str) -> str | None:
    """The folder of a local output, which has room for its records; None for a remote one."""
    return None if files.is_remote(path) else os.path.dirname(path) or "."
