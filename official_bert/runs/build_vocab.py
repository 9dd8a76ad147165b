"""`tools/build_vocab.py`: the files of a corpus in, a `vocab.txt` out."""

from absl import logging

from official_bert.config.run_configs.tools import VocabConfig
from official_bert.data.vocab_learner import learn_vocab
from official_bert.runs.corpus_words import count_corpus_words
from official_bert.support import writing
from official_bert.support.input_files import find_inputs


def run(config: VocabConfig) -> None:
    """Learns a vocabulary and writes it.

    Raises:
      UserError: an input is missing, or the output cannot be written.
    """
    paths = find_inputs(config.input_file)
    writing.check_writable_folder(config.vocab_file, name="vocab_file")
    writing.check_no_overwriting([config.vocab_file], paths, name="vocab_file")
    pieces = learn_vocab(
        count_corpus_words(paths, config),
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        max_characters=config.max_characters,
    )
    with writing.atomic_write(config.vocab_file) as sink:
        sink.writelines(f"{piece}\n" for piece in pieces)
    logging.info(
        "wrote %s wordpieces to %s (--vocab_size=%d; each occurs at least %d times in the text)",
        f"{len(pieces):,}",
        config.vocab_file,
        config.vocab_size,
        config.min_frequency,
    )
