"""Learn a wordpiece vocabulary from text, with the learner of tensorflow-text.

Words are counted after the tokenizer has split them, so that the vocabulary matches its later use.
"""

import importlib.util
import itertools
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

from absl import logging

from official_bert.config.text_settings import TextSettings
from official_bert.data.corpus_files import CorpusPart, read_lines
from official_bert.support.console import Progress
from official_bert.support.errors import UserError, folder_of_tensorflow_text
from official_bert.tokenization import BasicTokenizer, WordpieceTokenizer, vocab
from official_bert.tokenization.vocab import CONTINUATION, MAX_CHARACTERS_PER_WORD, UNK, Vocabulary
from official_bert.tokenization.word_splitters import WordSplitter

_STRINGS_BETWEEN_UPDATES = 10_000
SPECIAL_PIECES = (vocab.PAD, vocab.UNK, vocab.CLS, vocab.SEP, vocab.MASK)
_MOST_WORDS = 5_000_000  # to learn from
_PART_LENGTH = 12  # of long words: the learner's time and memory grow with the square of a word's length
_SUBSTRINGS_OF_LONG_WORDS = 10_000_000  # the learner takes about 150 bytes for each substring of a word
_UNUSED = re.compile(r"\[unused[0-9]*\]")


def count_corpus_words(parts: Sequence[CorpusPart], settings: TextSettings) -> Counter[str]:
    word_counts = count_words((line for _, line in read_lines(parts)), settings)
    if all(word in SPECIAL_PIECES for word in word_counts):
        raise UserError("the text has no words")
    logging.info("%s distinct words in %d file(s)", f"{len(word_counts):,}", len(parts))
    return word_counts


def count_words(lines: Iterable[str], settings: TextSettings) -> Counter[str]:
    tokenizer = BasicTokenizer(**settings._replace(morphemes=None).recorded)
    if settings.morphemes:
        splitter = WordSplitter(settings.morphemes)
        lines = (splitter.split(line)[0] for line in lines)
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
    word_counts: Counter[str],
    *,
    vocab_size: int,
    min_frequency: int = 2,
    max_characters: int = 1000,
    max_word_length: int = 50,
) -> list[str]:
    """Learn wordpieces; equal counts give equal vocabularies, regardless of the order of the text.

    Every character is in the vocabulary, up to `max_characters`. Words longer than `max_word_length` are learned in
    parts.
    """
    learner = _learner()
    words, most_frequent = _words_to_learn(word_counts, max_characters, max_word_length)

    def learn(threshold: int) -> list[str]:  # the pieces that occur so often, and every single character
        return learner.learn(
            words,
            vocab_size=vocab_size,
            reserved_tokens=list(SPECIAL_PIECES),
            lower_thresh=threshold,
            upper_thresh=threshold,
            max_unique_chars=max_characters,
            max_token_length=max_word_length,
            max_input_tokens=-1,
        )

    # The lowest threshold within the size; the learner's own search may end one above or below it.
    low, high = min_frequency, max(words[0][1], min_frequency)
    num_rounds = 1 + (high - low).bit_length()  # upper bound: each round halves the range
    logging.info("learning wordpieces from %s distinct words in up to %d rounds", f"{len(word_counts):,}", num_rounds)
    with Progress("learning", num_rounds, "rounds") as progress:
        wordpieces = learn(high)
        if len(wordpieces) > vocab_size:  # without spaces, wordpieces occur more often than any word
            low, high = high + 1, max(high + 1, most_frequent)
            num_rounds = 2 + (high - low).bit_length()
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


def _by_frequency(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _words_to_learn(
    word_counts: Counter[str], max_characters: int, max_word_length: int
) -> tuple[list[tuple[str, int]], int]:
    """Return words in a fixed order, which breaks frequency ties, and the frequency of the most frequent character.

    Words with rare characters are left out, long ones are in parts, and each character is there, 0 times.
    """
    frequencies: Counter[str] = Counter()
    for word, count in word_counts.items():
        if word not in SPECIAL_PIECES:
            for character in word:
                frequencies[character] += count
    characters = [character for character, _ in sorted(frequencies.items(), key=_by_frequency)[:max_characters]]
    known, words, parts, length = set(characters), Counter(), Counter(), min(_PART_LENGTH, max_word_length)
    left_out, long, unknown = 0, 0, 0  # characters of words that are not learned as they are
    for word, count in word_counts.items():
        size = len(word) * count
        if word in SPECIAL_PIECES:
            continue
        if not known.issuperset(word):
            left_out += size
        elif len(word) <= max_word_length:
            words[word] += count
        else:
            long += size
            unknown += size * (len(word) > MAX_CHARACTERS_PER_WORD)
            for start in range(0, len(word), length):
                parts[word[start : start + length]] += count
    num_parts = _SUBSTRINGS_OF_LONG_WORDS * 2 // (length * (length + 1))
    words.update(dict(sorted(parts.items(), key=_by_frequency)[:num_parts]))
    in_fixed_order = sorted(words.items(), key=_by_frequency)[:_MOST_WORDS]

    percent = 100 / (frequencies.total() or 1)
    if long:
        message = (
            "%.1f%% of the text is in words of more than max_word_length=%d characters, which are learned in parts"
        )
        logging.info(message, percent * long, max_word_length)
    if unknown:
        message = "%.1f%% of the text is in words of more than %d characters, which are always %s; put spaces into them"
        logging.warning(message, percent * unknown, MAX_CHARACTERS_PER_WORD, UNK)
    if left_out:
        num_rare = f"{len(frequencies) - len(characters):,}"
        message = (
            "%.1f%% of the text is in words with one of the %s rarest characters, read as %s; raise max_characters=%d"
        )
        logging.warning(message, percent * left_out, num_rare, UNK, max_characters)
    if len(parts) > num_parts or len(words) > _MOST_WORDS:
        message = "%.1f%% of the text is learned, the most frequent words and parts of words"
        logging.info(message, percent * sum(len(word) * count for word, count in in_fixed_order))
    return [*in_fixed_order, *((character, 0) for character in characters)], max(frequencies.values(), default=0)


def _learner() -> ModuleType:
    """Return the pure-Python learner without its package, which would import TensorFlow."""
    folder = folder_of_tensorflow_text("learning a vocabulary")
    name = "wordpiece_tokenizer_learner_lib"
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, "tools", "wordpiece_vocab", f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class VocabularyChange(NamedTuple):
    """A new vocabulary, and the sources of its embedding rows."""

    tokens: list[str]  # the new tokens, by id
    sources: list[list[int]]  # old ids for each new id; its embedding is the mean of theirs


class Coverage(NamedTuple):
    num_words: int  # number of words of the text
    num_wordpieces: int  # number of their wordpieces; an unknown word counts as one
    num_unknown: int  # number of unknown words

    def __str__(self) -> str:
        return (
            f"{self.num_wordpieces / self.num_words:.3f} wordpieces per word, "
            f"{100 * self.num_unknown / self.num_words:.2f}% of the words unknown"
        )


def coverage(tokens: Collection[str], word_counts: Mapping[str, int]) -> Coverage:
    tokenizer = WordpieceTokenizer(set(tokens))
    num_wordpieces = num_unknown = 0
    for word, count in word_counts.items():
        wordpieces = tokenizer.split_word(word)
        num_wordpieces += count * len(wordpieces)
        num_unknown += count * (wordpieces == [UNK])
    return Coverage(sum(word_counts.values()), num_wordpieces, num_unknown)


def tokens_by_id(vocabulary: Vocabulary) -> list[str]:
    """Return the tokens of a vocabulary, by id; all but the last of repeated tokens are replaced by unused tokens."""
    return [vocabulary.id_to_token.get(index, f"[unused_line_{index + 1}]") for index in range(vocabulary.size)]


def extended(
    vocabulary: Vocabulary, learned: Iterable[str], word_counts: Mapping[str, int], *, num_new_tokens: int
) -> VocabularyChange:
    """Add the wordpieces to a vocabulary that shorten a text most, instead of `[unused...]` tokens first."""
    old = WordpieceTokenizer(vocabulary.token_to_id)
    parts = {
        piece: old.split_word(piece.removeprefix(CONTINUATION), is_continuation=piece.startswith(CONTINUATION))
        for piece in learned
        if piece not in vocabulary.token_to_id
    }
    savings = _savings(vocabulary, parts, word_counts)
    chosen = sorted(savings, key=lambda piece: (-savings[piece], piece))[:num_new_tokens]
    tokens = tokens_by_id(vocabulary)
    sources = [[index] for index in range(len(tokens))]
    unused = [index for index, token in enumerate(tokens) if _UNUSED.fullmatch(token)]
    for piece, place in itertools.zip_longest(chosen, unused[: len(chosen)]):
        source = vocabulary.ids(parts[piece])
        if place is None:
            tokens.append(piece)
            sources.append(source)
        else:
            tokens[place], sources[place] = piece, source
    return VocabularyChange(tokens, sources)


def _savings(
    vocabulary: Vocabulary, parts: Mapping[str, Sequence[str]], word_counts: Mapping[str, int]
) -> Counter[str]:
    """Count the wordpieces of a text that each candidate saves.

    Each use of a candidate, with all candidates in the vocabulary, saves the number of old wordpieces it replaces minus
    one; if these are unknown, it saves its number of characters.
    """
    tokenizer = WordpieceTokenizer(vocabulary.token_to_id.keys() | parts.keys())
    savings: Counter[str] = Counter()
    for word, count in word_counts.items():
        for piece in tokenizer.split_word(word):
            if piece in parts:
                is_unknown = parts[piece] == [UNK]
                each = len(piece.removeprefix(CONTINUATION)) if is_unknown else len(parts[piece]) - 1
                savings[piece] += count * each
    return savings


def pruned(vocabulary: Vocabulary, word_counts: Mapping[str, int]) -> VocabularyChange:
    """Remove the wordpieces that a text does not use, except its characters; the text is tokenized as before."""
    tokenizer = WordpieceTokenizer(vocabulary.token_to_id)
    characters = set().union(*word_counts)
    kept = {piece for word in word_counts for piece in tokenizer.split_word(word)} | vocabulary.names_of_specials
    kept |= {piece for piece in vocabulary.token_to_id if piece.removeprefix(CONTINUATION) in characters}
    ids = [index for index, token in enumerate(tokens_by_id(vocabulary)) if index == 0 or token in kept]
    return VocabularyChange([vocabulary.id_to_token[index] for index in ids], [[index] for index in ids])
