"""Occurrences of a word in sentences, with their contextual vectors."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.inference.sentence_index import Sentence
from official_bert.inference.text_encoder import TextEncoder
from official_bert.tokenization import Vocabulary


class Occurrence(NamedTuple):
    """A word in a sentence.

    Attributes:
      sentence: the sentence.
      vector: float32 [D], the mean over the word's wordpieces and the chosen layers.
    """

    sentence: Sentence
    vector: np.ndarray


def find_occurrences(word: str, sentences: Iterable[Sentence], encoder: TextEncoder) -> Iterator[Occurrence]:
    """Find all occurrences of a word, or a sequence of words, in sentences.

    Args:
      word: the word; it is compared as wordpieces, so in an uncased model case does not matter.
      sentences: the sentences to search.
      encoder: computes vectors of all wordpieces (pooling "none").
    """
    wanted = encoder.tokenizer.encode(word)
    kept = list(sentences)
    for sentence, features in zip(kept, encoder.features(each.text for each in kept), strict=True):
        for start in _places(wanted, encoder.tokenizer.vocabulary, features.input_ids):
            vectors = features.vectors[start : start + len(wanted)]  # [wordpieces, K, D]
            yield Occurrence(sentence, vectors.mean(axis=(0, 1)))


def _places(wanted: Sequence[int], vocabulary: Vocabulary, input_ids: Sequence[int]) -> Iterator[int]:
    """Find the wordpieces of whole words: `bank` is not found in `bank ##er`."""
    continues_word = list(map(vocabulary.continues_word, vocabulary.tokens(input_ids)))
    for start in range(len(input_ids) - len(wanted)):  # [SEP] is after the last word
        end = start + len(wanted)
        if list(input_ids[start:end]) == list(wanted) and not continues_word[end]:
            yield start
