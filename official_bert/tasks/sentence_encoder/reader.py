"""Reader of sentence encoders, in Python and NumPy: texts to sequences, and outputs to vectors."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from official_bert.config.sentence_modules import SPLADE_POOLINGS
from official_bert.serving.engine_model import EngineModel, Reader, Reading, padded_table
from official_bert.serving.signatures import Arrays, ArraySpec, Signature
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.sequences import truncate_and_join

VECTORS, SPARSE_VECTORS, SPARSE_QUERIES = "vectors", "sparse_vectors", "sparse_queries"
_SPARSE = {"indices": np.int32, "values": np.float32}


class SentenceReader(Reader):
    def __init__(self, said: Mapping[str, Any], tokenizer: Tokenizer):
        super().__init__(said, tokenizer)
        self.num_read = self.max_seq_length
        self._is_sparse = said["pooling"] in SPLADE_POOLINGS
        if self._is_sparse:
            self.num_logits = tokenizer.vocabulary.size

    def further_signatures(self, model: EngineModel) -> list[Signature]:
        """Add `sparse_vectors` for a sparse model."""
        texts = {"text": ArraySpec(np.dtype(object), (None,))}
        specs = {name: ArraySpec(np.dtype(dtype), (None, None)) for name, dtype in _SPARSE.items()}
        sparse = Signature(SPARSE_VECTORS, texts, specs, lambda texts: _weights_above_0(model.answer(texts)))
        return [sparse] if self._is_sparse else []

    def encode(self, text: str) -> Reading:
        ids = self.tokenizer.encode(self.said["prefix"] + text)
        return Reading([truncate_and_join(ids, (), self.specials, max_seq_length=self.max_seq_length).inputs])


READER = SentenceReader


def results(outputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return list(outputs[VECTORS])


def _weights_above_0(outputs: Arrays) -> Arrays:
    """Return the ids of the wordpieces with a weight, ascending, and the weights, [B, K]; padded with zeros."""
    found = [(np.flatnonzero(row > 0), row) for row in outputs[VECTORS]]
    columns = ([ids for ids, _ in found], [row[ids] for ids, row in found])
    return {name: padded_table(rows, dtype(0)) for (name, dtype), rows in zip(_SPARSE.items(), columns, strict=True)}
