"""Documents to sentence pairs: the reference's next-sentence data, drawn from one random stream in its order."""

import bisect
from array import array
from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from official_bert.data.randomness import shuffle


class Corpus:
    """Tokenized documents in two flat arrays: 4 bytes per wordpiece and 8 per sentence.

    Sentences follow one another, so any stretch of neighbouring sentences is one slice of `ids`.

    Attributes:
      ids: every piece of every sentence, in the order of the files.
      starts: where each sentence begins in `ids`, and the end of the last one.
      documents: the sentences of each document, without empty documents.
    """

    def __init__(self):
        self.ids = array("i")
        self.starts = array("q", [0])
        self.documents: list[range] = []
        self._first_sentence = 0

    def add_sentence(self, ids: Iterable[int]) -> None:
        """Adds a sentence to the document under way; one without pieces is left out."""
        self.ids.extend(ids)
        if len(self.ids) > self.starts[-1]:
            self.starts.append(len(self.ids))

    def add_document(self, sentence_lengths: Iterable[int], ids: array) -> None:
        """Adds a whole document: the number of pieces of each sentence, and the pieces of all."""
        for length in sentence_lengths:
            self.starts.append(self.starts[-1] + length)
        self.ids.extend(ids)
        self.end_document()

    def end_document(self) -> None:
        """Ends the document under way; the next sentence begins a new one."""
        if self.num_sentences > self._first_sentence:
            self.documents.append(range(self._first_sentence, self.num_sentences))
        self._first_sentence = self.num_sentences

    @property
    def num_sentences(self) -> int:
        """Number of sentences."""
        return len(self.starts) - 1

    def shuffle_documents(self, rng: Random) -> None:
        """Puts the documents in a random order, as the reference does once before it makes pairs."""
        shuffle(self.documents, rng)


class SentencePair(NamedTuple):
    """Two stretches of text and whether the second one really follows the first.

    Attributes:
      first: ids, at least one.
      second: ids, at least one.
      is_random_next: whether `second` comes from elsewhere.
    """

    first: array
    second: array
    is_random_next: bool


def full_sentences(
    corpus: Corpus, document_index: int, *, max_num_pieces: int, short_seq_prob: float, rng: Random
) -> Iterator[array]:
    """Cuts a document into stretches of as many whole sentences as fit, for pretraining without next sentences.

    A sentence that is too long by itself is cut where it is full; its rest begins the next stretch. No text is lost.

    Args:
      corpus: all documents.
      document_index: the one to cut.
      max_num_pieces: maximum number of wordpieces of a stretch.
      short_seq_prob: fraction of documents that are cut into shorter stretches, of a random length.
      rng: drawn from for the lengths.

    Yields:
      Ids, at least one.
    Source: RoBERTa, section 4.2, "DOC-SENTENCES".
    """
    starts, document = corpus.starts, corpus.documents[document_index]
    length = max_num_pieces
    if rng.random() < short_seq_prob:
        length = rng.randint(2, max_num_pieces)
    begin, document_end = starts[document.start], starts[document.stop]
    while begin < document_end:
        last_start = bisect.bisect_right(starts, begin + length, document.start, document.stop + 1) - 1
        end = starts[last_start] if starts[last_start] > begin else begin + length
        yield corpus.ids[begin:end]
        begin = end


def sentence_pairs(
    corpus: Corpus, document_index: int, *, max_num_pieces: int, short_seq_prob: float, rng: Random
) -> Iterator[SentencePair]:
    """Cuts a document into sentence pairs.

    Sentences are gathered until they fill a sequence; a random number of them is the first part. The second part is the
    rest or, half of the time, as many sentences from a random place in another document, in which case the rest begins
    the next pair. For example sentences s1 s2 s3 may give (s1 s2, r7 r8, random) and then (s3, ...).

    The caller may draw from `rng` between two pairs; the reference masks each pair before it makes the next.

    Args:
      corpus: all documents.
      document_index: the one to cut.
      max_num_pieces: maximum number of wordpieces of both parts together.
      short_seq_prob: fraction of documents that are cut into shorter sequences, of a random length.
      rng: drawn from in the reference's order.

    Yields:
      Pairs of at most `max_num_pieces` pieces.
    Source: BERT paper, appendix A.2; the reference's create_instances_from_document.
    """
    starts = corpus.starts
    document = corpus.documents[document_index]
    target_length = max_num_pieces
    if rng.random() < short_seq_prob:
        target_length = rng.randint(2, max_num_pieces)

    sentence = document.start
    while sentence < document.stop:
        # The chunk is [sentence, chunk_end): it ends with the first sentence that reaches the target length.
        chunk_end = bisect.bisect_left(starts, starts[sentence] + target_length, sentence + 1, document.stop)
        num_sentences = chunk_end - sentence
        middle = sentence + (rng.randint(1, num_sentences - 1) if num_sentences >= 2 else 1)
        first_start, first_end = starts[sentence], starts[middle]

        is_random_next = num_sentences == 1 or rng.random() < 0.5
        if is_random_next:
            second_start, second_end = _random_stretch(
                corpus, document_index, target_length - (first_end - first_start), rng
            )
            sentence = middle  # what was not used begins the next pair
        else:
            second_start, second_end = starts[middle], starts[chunk_end]
            sentence = chunk_end

        # Truncate the longer part, token by token at a random end, to favour neither beginnings nor ends. Adding the
        # boolean moves the start by 0 or 1: this is the innermost loop.
        random = rng.random
        first_length, second_length = first_end - first_start, second_end - second_start
        while first_length + second_length > max_num_pieces:
            from_front = random() < 0.5
            if first_length > second_length:
                first_length -= 1
                first_start += from_front
            else:
                second_length -= 1
                second_start += from_front

        yield SentencePair(
            corpus.ids[first_start : first_start + first_length],
            corpus.ids[second_start : second_start + second_length],
            is_random_next,
        )


def _random_stretch(corpus: Corpus, document_index: int, target_length: int, rng: Random) -> tuple[int, int]:
    """Where sentences from another document, at least `target_length` pieces if it has them, begin and end."""
    for _ in range(10):  # a large corpus needs one try; one of a single document never succeeds
        other_index = rng.randint(0, len(corpus.documents) - 1)
        if other_index != document_index:
            break
    other = corpus.documents[other_index]
    begin = other.start + rng.randint(0, len(other) - 1)
    end = bisect.bisect_left(corpus.starts, corpus.starts[begin] + target_length, begin + 1, other.stop)
    return corpus.starts[begin], corpus.starts[end]
