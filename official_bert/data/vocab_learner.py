"""Learn a wordpiece vocabulary from text, with the learner of tensorflow-text.

Words are counted after the tokenizer has split them, so that the vocabulary matches its later use.
"""

import importlib.util
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Protocol

from absl import logging

from official_bert.config.text_settings import TextSettings
from official_bert.data.corpus_files import corpus_parts, read_lines
from official_bert.support.errors import UserError
from official_bert.support.extras import folder_of_tensorflow_text
from official_bert.support.progress import Progress
from official_bert.tokenization import vocab
from official_bert.tokenization.wordpiece import word_tokenizer

_STRINGS_BETWEEN_UPDATES = 10_000
SPECIAL_PIECES = (vocab.PAD, vocab.UNK, vocab.CLS, vocab.SEP, vocab.MASK)


class CorpusFlags(Protocol):
    """Flags for reading the files of a corpus."""

    input_format: str
    text_field: str
    text_settings: TextSettings


def count_corpus_words(paths: Sequence[str], flags: CorpusFlags) -> Counter[str]:
    """Count the words of files, with progress; returns word to number of occurrences.

    Raises:
      UserError: there are no words, or a file cannot be read.
    """
    parts = corpus_parts(paths, file_format=flags.input_format, text_field=flags.text_field)
    word_counts = count_words((line for _, line in read_lines(parts)), flags.text_settings)
    if not word_counts:
        raise UserError("the text has no words")
    logging.info("%s distinct words in %d file(s)", f"{len(word_counts):,}", len(paths))
    return word_counts


def count_words(lines: Iterable[str], settings: TextSettings) -> Counter[str]:
    """Count the words of a text.

    Args:
      lines: the text.
      settings: text preprocessing settings.

    Returns:
      Word to number of occurrences.
    """
    tokenizer = word_tokenizer(settings)
    # White-space separated words repeat so often that counting them first and splitting each once is much faster.
    spaced = Counter(word for line in lines for word in line.split(" "))
    counts: Counter[str] = Counter()
    with Progress("splitting into words", len(spaced), "strings") as progress:
        for number, (text, count) in enumerate(spaced.items(), start=1):
            for word in tokenizer.tokenize(text):
                counts[word] += count
            if number % _STRINGS_BETWEEN_UPDATES == 0:
                progress.update(number)
    return counts


def learn_vocab(
    word_counts: Counter[str], *, vocab_size: int, min_frequency: int = 2, max_characters: int = 1000
) -> list[str]:
    """Learn wordpieces; equal counts give equal vocabularies, regardless of the order of the text.

    Args:
      word_counts: word to number of occurrences.
      vocab_size: maximum number of wordpieces; the result is as close to it as a single frequency threshold allows.
      min_frequency: minimum number of times a wordpiece must occur; single characters are exempt.
      max_characters: maximum number of distinct characters; words with rarer ones are skipped.

    Returns:
      The wordpieces: special ones, then single characters, then the rest by descending frequency.

    Raises:
      UserError: there are no words, or the single characters alone exceed `vocab_size`.
    """
    if not word_counts:
        raise UserError("the text has no words")
    learner = _learner()
    # The learner reads at most five million words; the order breaks frequency ties.
    in_fixed_order = sorted(word_counts.items(), key=lambda item: (-item[1], item[0]))

    def learn(threshold: int) -> list[str]:
        """Return the pieces that occur at least `threshold` times, and every single character."""
        return learner.learn(
            in_fixed_order,
            vocab_size=vocab_size,
            reserved_tokens=list(SPECIAL_PIECES),
            lower_thresh=threshold,
            upper_thresh=threshold,
            max_unique_chars=max_characters,
        )

    # The lowest threshold within the size; the learner's own search may end one above or below it.
    low, high = min_frequency, max(in_fixed_order[0][1], min_frequency)
    num_rounds = 1 + (high - low).bit_length()  # upper bound: each round halves the range
    logging.info("learning wordpieces from %s distinct words in up to %d rounds", f"{len(word_counts):,}", num_rounds)
    with Progress("learning", num_rounds, "rounds") as progress:
        wordpieces = learn(high)
        if len(wordpieces) > vocab_size:
            raise UserError(
                f"vocab_size={vocab_size} is too small: the single characters of this text alone are {len(wordpieces)} "
                f"wordpieces; raise it or lower max_characters={max_characters}"
            )
        num_done = 1
        while low < high:
            progress.update(num_done, f"{len(wordpieces):,} wordpieces found")
            middle = (low + high) // 2
            candidates = learn(middle)
            num_done += 1
            if len(candidates) <= vocab_size:
                wordpieces, high = candidates, middle
            else:
                low = middle + 1
        progress.update(num_rounds, f"{len(wordpieces):,} wordpieces found")
    return wordpieces


def _learner() -> ModuleType:
    """Return the pure-Python learner without its package, which would import TensorFlow."""
    folder = folder_of_tensorflow_text("learning a vocabulary")
    name = "wordpiece_tokenizer_learner_lib"
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, "tools", "wordpiece_vocab", f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
