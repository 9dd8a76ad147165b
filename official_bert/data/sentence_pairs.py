"""Convert documents to sentence pairs: the reference's next-sentence data, from one random stream in its order.

`ordered_pairs` gives ALBERT's pairs, and `full_sentences` single segments.
"""

import bisect
import itertools
from array import array
from collections.abc import Container, Iterator
from random import Random
from typing import NamedTuple

import numpy as np

from official_bert.data.masking import shuffle


class Corpus:
    """Tokenized documents in two flat arrays: 4 bytes per wordpiece and 8 per sentence.

    Sentences are contiguous, so any range of consecutive sentences is one slice of `ids`.
    """

    def __init__(self):
        self.ids = array("i")  # wordpieces of all sentences, in file order
        self.starts = array("q", [0])  # start of each sentence in `ids`, plus the end of the last one
        self.documents: list[range] = []  # sentence range of each document

    def add_document(self, sentence_lengths: np.ndarray, ids: np.ndarray) -> None:
        first = len(self.starts) - 1
        self.starts.extend(itertools.accumulate(sentence_lengths.tolist(), initial=self.starts.pop()))
        self.documents.append(range(first, len(self.starts) - 1))
        self.ids.frombytes(ids.tobytes())

    def shuffle_documents(self, rng: Random) -> None:
        shuffle(self.documents, rng)


class SentencePair(NamedTuple):
    first: array  # ids, at least one
    second: array  # ids, at least one
    is_negative: bool  # True if the second segment is random or precedes the first
    num_cut: int = 0  # number of wordpieces that were removed because the segments were too long


def full_sentences(
    corpus: Corpus, document_index: int, *, max_num_wordpieces: int, short_seq_prob: float, rng: Random
) -> Iterator[array]:
    """Split a document into segments of as many whole sentences as fit (RoBERTa, section 4.2, "DOC-SENTENCES").

    A sentence that is too long is split where the segment is full; its rest begins the next segment. No text is lost.
    """
    starts, document = corpus.starts, corpus.documents[document_index]
    begin, document_end = starts[document.start], starts[document.stop]
    while begin < document_end:
        length = _target_length(max_num_wordpieces, short_seq_prob, rng)
        last_start = bisect.bisect_right(starts, begin + length, document.start, document.stop + 1) - 1
        end = starts[last_start] if starts[last_start] > begin else begin + length
        yield corpus.ids[begin:end]
        begin = end


def sentence_pairs(
    corpus: Corpus, document_index: int, *, max_num_wordpieces: int, short_seq_prob: float, rng: Random
) -> Iterator[SentencePair]:
    """Split a document into sentence pairs, as the reference's create_instances_from_document (BERT, appendix A.2).

    Sentences are collected until they fill a sequence; a random number of them is the first segment. The second segment
    is the rest or, half of the time, as many sentences from a random place in another document; the rest then begins
    the next pair. For example, sentences s1 s2 s3 may give (s1 s2, r7 r8, random) and then (s3, ...). The caller may
    draw from `rng` between two pairs; the reference masks each pair before it creates the next.
    """
    starts = corpus.starts
    document = corpus.documents[document_index]
    target_length = _target_length(max_num_wordpieces, short_seq_prob, rng)

    sentence = document.start
    while sentence < document.stop:
        chunk_end = _chunk_end(starts, sentence, document, target_length)
        num_sentences = chunk_end - sentence
        middle = sentence + (rng.randint(1, num_sentences - 1) if num_sentences >= 2 else 1)
        first_start, first_end = starts[sentence], starts[middle]

        is_negative = num_sentences == 1 or rng.random() < 0.5
        if is_negative:
            second_start, second_end = _random_stretch(
                corpus, document_index, target_length - (first_end - first_start), rng
            )
            sentence = middle  # unused sentences begin the next pair
        else:
            second_start, second_end = starts[middle], starts[chunk_end]
            sentence = chunk_end

        yield _truncated(
            corpus, (first_start, first_end), (second_start, second_end), max_num_wordpieces, is_negative, rng
        )


def ordered_pairs(
    corpus: Corpus,
    document_index: int,
    *,
    max_num_wordpieces: int,
    short_seq_prob: float,
    rng: Random,
    continues_word: Container[int] = (),
) -> Iterator[SentencePair]:
    """Split a document into pairs of consecutive segments, swapped half of the time (ALBERT paper, section 3.1).

    Sentences are collected as in `sentence_pairs`; a random number of them is one segment, the rest the other. A single
    sentence, because it fills a sequence or the document ends, is split between two words; a single word gives no pair.
    """
    starts, document = corpus.starts, corpus.documents[document_index]
    target_length = _target_length(max_num_wordpieces, short_seq_prob, rng)
    sentence = document.start
    while sentence < document.stop:
        chunk_end = _chunk_end(starts, sentence, document, target_length)
        begin, end, num_sentences = starts[sentence], starts[chunk_end], chunk_end - sentence
        if num_sentences >= 2:
            cuts = [starts[sentence + rng.randint(1, num_sentences - 1)]]
        else:
            cuts = [place for place in range(begin + 1, end) if corpus.ids[place] not in continues_word]
        sentence = chunk_end
        if cuts:
            cut = cuts[rng.randint(0, len(cuts) - 1)]
            segments = (begin, cut), (cut, end)
            is_swapped = rng.random() < 0.5
            first, second = reversed(segments) if is_swapped else segments
            yield _truncated(corpus, first, second, max_num_wordpieces, is_swapped, rng)


def _target_length(max_num_wordpieces: int, short_seq_prob: float, rng: Random) -> int:
    return rng.randint(2, max_num_wordpieces) if rng.random() < short_seq_prob else max_num_wordpieces


def _chunk_end(starts: array, sentence: int, document: range, target_length: int) -> int:
    """Return the end of a sentence range: after the sentence that reaches the target length, or the document's end."""
    return bisect.bisect_left(starts, starts[sentence] + target_length, sentence + 1, document.stop)


def _truncated(
    corpus: Corpus,
    first: tuple[int, int],
    second: tuple[int, int],
    max_num_wordpieces: int,
    is_negative: bool,
    rng: Random,
) -> SentencePair:
    """Return the pair of two corpus ranges, truncated to the maximum length.

    The longer segment repeatedly loses a wordpiece at a random end, to favour neither beginnings nor ends.
    """
    (first_start, first_end), (second_start, second_end) = first, second
    random = rng.random
    first_length, second_length = first_end - first_start, second_end - second_start
    num_cut = max(0, first_length + second_length - max_num_wordpieces)
    while first_length + second_length > max_num_wordpieces:
        from_front = random() < 0.5  # adding it moves the start by 0 or 1: this is the innermost loop
        if first_length > second_length:
            first_length -= 1
            first_start += from_front
        else:
            second_length -= 1
            second_start += from_front
    return SentencePair(
        corpus.ids[first_start : first_start + first_length],
        corpus.ids[second_start : second_start + second_length],
        is_negative,
        num_cut,
    )


def _random_stretch(corpus: Corpus, document_index: int, target_length: int, rng: Random) -> tuple[int, int]:
    """Choose a sentence range from another document, of at least `target_length` wordpieces if available."""
    for _ in range(10):  # a large corpus needs one try; a single document never succeeds
        other_index = rng.randint(0, len(corpus.documents) - 1)
        if other_index != document_index:
            break
    other = corpus.documents[other_index]
    begin = other.start + rng.randint(0, len(other) - 1)
    end = bisect.bisect_left(corpus.starts, corpus.starts[begin] + target_length, begin + 1, other.stop)
    return corpus.starts[begin], corpus.starts[end]
