"""`tools/build_vocab.py`: the files of a corpus in, a `vocab.txt` out."""

from collections.abc import Iterator, Sequence

from absl import logging

from official_bert.config.run_configs.tools import VocabConfig
from official_bert.data.corpus_files import CorpusPart, CorpusReader, corpus_parts
from official_bert.data.vocab_learner import count_words, learn_vocab
from official_bert.support import files
from official_bert.support.input_files import find_inputs
from official_bert.support.progress import Progress

_LINES_BETWEEN_UPDATES = 1000


def run(config: VocabConfig) -> None:
    """Learns a vocabulary and writes it.

    Raises:
      UserError: an input is missing, or the output cannot be written.
    """
    paths = find_inputs(config.input_file)
    files.check_writable_folder(config.vocab_file, name="vocab_file")
    files.check_no_overwriting([config.vocab_file], paths, name="vocab_file")
    parts = corpus_parts(paths, file_format=config.input_format, text_field=config.text_field)
    word_counts = count_words(_lines(parts), config.text_settings)
    logging.info("%s distinct words in %d file(s)", f"{len(word_counts):,}", len(paths))
    pieces = learn_vocab(
        word_counts,
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        max_characters=config.max_characters,
    )
    with files.atomic_write(config.vocab_file) as sink:
        sink.writelines(f"{piece}\n" for piece in pieces)
    logging.info(
        "wrote %s wordpieces to %s (--vocab_size=%d; each occurs at least %d times in the text)",
        f"{len(pieces):,}",
        config.vocab_file,
        config.vocab_size,
        config.min_frequency,
    )


def _lines(parts: Sequence[CorpusPart]) -> Iterator[str]:
    """The lines of all files, with the progress of their reading."""
    bytes_before = 0
    with Progress("reading text", sum(files.size(part.path) for part in parts), "bytes") as progress:
        for part in parts:
            reader = CorpusReader(part)
            for number, (_, line) in enumerate(reader):
                if number % _LINES_BETWEEN_UPDATES == 0:
                    progress.update(bytes_before + reader.bytes_read)
                yield line
            bytes_before += reader.bytes_read
        progress.update(bytes_before)
