"""The words of a corpus with their counts, which the tools for vocabularies begin with."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from absl import logging

from official_bert.config.text_settings import TextSettings
from official_bert.data.corpus_files import CorpusPart, CorpusReader, corpus_parts
from official_bert.data.vocab_learner import count_words
from official_bert.support import files
from official_bert.support.progress import Progress

_LINES_BETWEEN_UPDATES = 1000


class CorpusFlags(Protocol):
    """The flags that say how the files of a corpus are read."""

    input_format: str
    text_field: str
    text_settings: TextSettings


def count_corpus_words(paths: Sequence[str], flags: CorpusFlags) -> Counter[str]:
    """Counts the words of files, with progress; word to number of occurrences."""
    parts = corpus_parts(paths, file_format=flags.input_format, text_field=flags.text_field)
    word_counts = count_words(_lines(parts), flags.text_settings)
    logging.info("%s distinct words in %d file(s)", f"{len(word_counts):,}", len(paths))
    return word_counts


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
