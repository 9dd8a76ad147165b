"""Reader of sentence encoders, in Python and NumPy: texts to sequences, and outputs to vectors."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from official_bert.serving.readers import Reader, Reading
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.sequences import truncate_and_join

VECTORS, SPARSE_VECTORS = "vectors", "sparse_vectors"


class SentenceReader(Reader):
    def __init__(self, said: Mapping[str, Any], tokenizer: Tokenizer):
        super().__init__(said, tokenizer)
        self.num_read = self.max_seq_length

    def encode(self, text: str) -> Reading:
        ids = self.tokenizer.encode(self.said["prefix"] + text)
        return Reading([truncate_and_join(ids, (), self.specials, max_seq_length=self.max_seq_length).inputs])


READER = SentenceReader


def results(outputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return list(outputs[VECTORS])
