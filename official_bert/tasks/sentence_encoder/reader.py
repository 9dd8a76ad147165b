"""Reader of sentence encoders, in Python and NumPy: texts to sequences, and outputs to vectors."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from official_bert.config.sentence_modules import SPLADE_POOLINGS
from official_bert.data.feature_files import TextFeatures
from official_bert.data.text_inputs import TextOrPair
from official_bert.serving.engine_model import EngineModel, decodable
from official_bert.serving.signatures import (
    SERVING_DEFAULT,
    TOKEN_VECTORS,
    Arrays,
    ArraySpec,
    Reader,
    Reading,
    Signature,
    Specs,
    padded_table,
)
from official_bert.serving.versions import read_query_weights
from official_bert.support import files
from official_bert.support.errors import UserError
from official_bert.tokenization import Tokenizer
from official_bert.tokenization.sequences import BATCH_SIZE, POOLED_BATCHES, POOLED_BYTES, pools, truncate_and_join

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
        sequence = truncate_and_join(ids, (), self.specials, max_seq_length=self.max_seq_length)
        return Reading([sequence.inputs], parts=ids)

    def specs(self, numbers: Specs) -> dict[str, Specs]:
        """Tell the vectors of positions, which are outputs of the engine, too, from the others."""
        vectors = {name: spec for name, spec in numbers.items() if name != TOKEN_VECTORS}
        if vectors.keys() == numbers.keys():
            return super().specs(vectors)
        lengths = ArraySpec(np.dtype(np.int32), (None,))
        return {**super().specs(vectors), TOKEN_VECTORS: {TOKEN_VECTORS: numbers[TOKEN_VECTORS], "lengths": lengths}}


READER = SentenceReader


def results(outputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return list(outputs[VECTORS])


class ExportedEncoder:
    """The vectors of an exported sentence encoder, with the attributes of `TextEncoder` that commands use."""

    uses_bm25 = False

    def __init__(self, model: EngineModel, *, of_wordpieces: bool = False, dtype: str = "float32"):
        """Compute a vector per text or, with `of_wordpieces`, those of the last layer for each wordpiece."""
        self._model, self._dtype, self.tokenizer = model, dtype, model.tokenizer
        self._output, self._signature = (TOKEN_VECTORS,) * 2 if of_wordpieces else (VECTORS, SERVING_DEFAULT)
        if self._signature not in model.outputs:
            raise UserError("pooling=none: the export has no vectors of wordpieces; leave it out")
        self.width = model.outputs[self._signature][self._output].shape[-1]
        self.is_sparse = model.said["pooling"] in SPLADE_POOLINGS
        self._query_weights = read_query_weights(model.folder)
        self.num_texts = self.num_wordpieces = self.num_long = 0

    @property
    def provenance(self) -> dict[str, Any]:
        """Everything that affects the vectors."""
        return {"export": [*map(files.sha256, files.files_below(self._model.folder))], "output": self._output}

    def features(
        self, texts: Iterable[TextOrPair], first_index: int = 0, *, is_query: bool = False
    ) -> Iterator[TextFeatures]:
        """Compute the vectors of texts: float [S, 1, D] of wordpieces, or [1, D]; see `TextEncoder.features`."""
        indices, readings = itertools.count(first_index), map(self._read, texts)
        if is_query and (weights := self._query_weights) is not None:
            for reading in readings:
                ids = reading.parts[: self._model.reader.max_seq_length]
                vector = np.zeros((1, len(weights)), self._dtype)
                vector[0, ids] = weights[ids]
                yield TextFeatures(next(indices), ids, vector)
            return

        def sizes(reading: Reading) -> tuple[int, int]:
            num_vectors = len(reading.sequences[0]["input_ids"]) if self._output == TOKEN_VECTORS else 1
            return 1, num_vectors * self.width * 4  # bytes

        for pool in pools(readings, sizes, (POOLED_BATCHES * BATCH_SIZE, POOLED_BYTES)):
            for reading, (outputs,) in zip(pool, self._model.read(pool, self._signature), strict=True):
                ids = reading.sequences[0]["input_ids"]
                self.num_texts += 1
                self.num_wordpieces += len(ids)
                vectors = outputs[self._output].astype(self._dtype, copy=False)
                is_pooled = self._output == VECTORS
                yield TextFeatures(next(indices), ids, vectors[np.newaxis] if is_pooled else vectors[: len(ids), None])

    def _read(self, text: TextOrPair) -> Reading:
        if text.text_b:
            raise UserError(f"an export reads single texts, and {text.text_b!r:.80} is the second of a pair")
        reading = self._model.reader.encode(decodable(text.text_a))
        room = self.tokenizer.specials.room(self._model.reader.max_seq_length, is_pair=False)
        self.num_long += len(reading.parts) > room
        return reading


def _weights_above_0(outputs: Arrays) -> Arrays:
    """Return the ids of the wordpieces with a weight, ascending, and the weights, [B, K]; padded with zeros."""
    if not len(outputs[VECTORS]):
        return {name: np.zeros([0, 0], dtype) for name, dtype in _SPARSE.items()}
    found = [(np.flatnonzero(row > 0), row) for row in outputs[VECTORS]]
    columns = ([ids for ids, _ in found], [row[ids] for ids, row in found])
    return {name: padded_table(rows, dtype(0)) for (name, dtype), rows in zip(_SPARSE.items(), columns, strict=True)}
