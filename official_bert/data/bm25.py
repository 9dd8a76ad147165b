"""`Bm25Weights`: BM25 weights of wordpieces, for a weighted mean over positions."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.support import files, writing
from official_bert.support.errors import UserError

BM25 = "bm25"  # name of the pooling


class Bm25Weights(NamedTuple):
    """The weight of each wordpiece of a sentence.

    With N sentences of `average_length` wordpieces on average, n of which contain the wordpiece w, a sentence of
    `length` wordpieces that contains w `count` times has the BM25 weight

        idf(w) * count * (k1 + 1) / (count + k1 * (1 - b + b * length / average_length))
        idf(w) = ln(1 + (N - n + 0.5) / (n + 0.5))

    for w, where k1 = 1.2 and b = 0.75. It is divided equally among the `count` occurrences of w, so the weight of a
    repeated word grows, but less than in proportion to its count. The 1 in the logarithm keeps the weights of frequent
    wordpieces positive. [CLS] and [SEP] are not counted and have weight 0.

    Attributes:
      idf: float32 [V].
      average_length: average number of wordpieces per sentence, at least 1.

    Source: S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
    """

    idf: np.ndarray
    average_length: float

    @classmethod
    def fit(cls, sentences: Iterable[Sequence[int]], vocab_size: int) -> "Bm25Weights":
        """Compute the weights by counting the wordpieces of sentences.

        Args:
          sentences: the ids of each sentence, without [CLS] and [SEP].
          vocab_size: V.
        """
        num_sentences = total_length = 0
        num_with: Counter[int] = Counter()
        for input_ids in sentences:
            num_sentences += 1
            total_length += len(input_ids)
            num_with.update(set(input_ids))
        counts = np.zeros(vocab_size)
        counts[list(num_with.keys())] = list(num_with.values())
        idf = np.log(1 + (num_sentences - counts + 0.5) / (counts + 0.5))
        return cls(idf.astype(np.float32), max(1.0, total_length / max(1, num_sentences)))

    def save(self, path: str) -> None:
        """Write an NPZ file.

        Raises:
          UserError: the file cannot be written.
        """
        with writing.atomic_write(path, "wb") as sink:
            np.savez(sink, idf=self.idf, average_length=self.average_length)

    @classmethod
    def load(cls, path: str, vocab_size: int) -> "Bm25Weights":
        """Read a file written by `save`.

        Raises:
          UserError: the file is missing, damaged or for another vocabulary.
        """
        try:
            with files.open_file(path, "rb") as source, np.load(source) as arrays:
                weights = cls(arrays["idf"], float(arrays["average_length"]))
        except UserError:
            raise
        except Exception as error:  # NumPy and zipfile raise many kinds of exceptions for damaged files
            raise UserError(f"{path} is damaged ({error}); delete it") from error
        if weights.idf.shape != (vocab_size,) or not math.isfinite(weights.average_length):
            raise UserError(f"{path} has weights for another vocabulary")
        return weights
