"""Flags and checks of the commands that read a corpus."""

import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import logging

from official_bert.config.text_settings import TextSettings
from official_bert.data.corpus_files import WIKIEXTRACTOR, CorpusPart, CorpusReader, corpus_parts, title_of_article
from official_bert.options.groups import CorpusOptions
from official_bert.options.option import Options, option, options
from official_bert.support import files
from official_bert.support.manifest import find_inputs

if TYPE_CHECKING:
    from official_bert.tokenization import Vocabulary

_FIRST_LINES = 100  # of a corpus that tell what it is
_SYLLABLE = re.compile("[가-힣]")
_SHARE_OF_KOREAN = 0.2  # of the letters of a Korean text


def find_parts(config: CorpusOptions, part_bytes: int | None = None) -> list[CorpusPart]:
    """Find the files of a corpus, check their formats, and divide them into parts of about `part_bytes`."""
    return parts_of(find_inputs(config.input_file), config, part_bytes)


def parts_of(paths: Sequence[str], config: CorpusOptions, part_bytes: int | None) -> list[CorpusPart]:
    return corpus_parts(
        paths,
        file_format=config.input_format,
        text_field=config.text_field,
        part_bytes=part_bytes,
        invalid_text=config.invalid_text,
    )


def warn_of_text(
    first: CorpusPart,
    config: CorpusOptions,
    settings: TextSettings | None = None,
    vocabulary: "Vocabulary | None" = None,
) -> None:
    """Warn if the first lines of a corpus need other flags; `vocabulary` is that of the model, if there is one."""
    if files.is_remote(first.path):
        return
    lines = [line for _, line in itertools.islice(CorpusReader(first), _FIRST_LINES)]
    if config.input_format == "auto" and any(title_of_article(line) is not None for line in lines):
        message = "%s has the tags <doc id=...> of WikiExtractor, which are read as text; give --input_format=%s"
        logging.warning(message, first.path, WIKIEXTRACTOR)
    if first.file_format == "text" and config.input_format == "auto" and lines and lines[0].startswith('{"'):
        logging.warning("%s looks like JSON Lines, which is read as text; give --input_format=jsonl", first.path)
    text = "".join(lines)
    is_korean = len(_SYLLABLE.findall(text)) > _SHARE_OF_KOREAN * sum(map(str.isalpha, text))
    # Other vocabularies are of letters.
    has_syllables = vocabulary is None or _SYLLABLE.search("".join(vocabulary.token_to_id))
    if is_korean and settings and settings.strips_accents and has_syllables:
        flag = "--strip_accents=false" if settings.do_lower_case else "--strip_accents_only=false"
        logging.warning(
            "the text is Korean: stripping accents splits syllables into letters; give %s to keep them", flag
        )


@options(group="output")
class LearnerOptions(Options):
    """Flags of the commands that learn wordpieces from text."""

    min_frequency: int = option(
        2, "Minimum number of times a new wordpiece must occur; single characters are exempt.", minimum=1
    )
    max_characters: int = option(
        1000, "Maximum number of distinct characters of new wordpieces; raise it for Chinese.", minimum=1
    )
    max_word_length: int = option(
        50,
        "Maximum number of characters of a word that is learned as a whole; longer words, as in languages without "
        "spaces, are learned in parts of up to 12 characters. Time and memory grow with its square.",
        minimum=1,
        maximum=200,  # a tokenizer knows no longer word
    )

    @property
    def learner_flags(self) -> dict[str, int]:
        """The flags, which are also the keyword arguments of `learn_vocab`."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(LearnerOptions)}
