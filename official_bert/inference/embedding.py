"""Vectors for texts, from an encoder and its tokenizer: what `Predictor.embed` gives."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from official_bert.inference.sequence_batches import SequenceFunction
from official_bert.modeling import pooling as layer_pooling
from official_bert.modeling.encoder import BertEncoder
from official_bert.support.errors import UserError
from official_bert.tokenization import Tokenizer

_LAYER_POOLINGS = (layer_pooling.SECOND_TO_LAST, layer_pooling.SUM_LAST_FOUR, layer_pooling.CONCAT_LAST_FOUR)
POOLINGS = ("mean", "cls", "pooler", *_LAYER_POOLINGS)


class TextEncoder:
    """An encoder that reads texts."""

    def __init__(self, encoder: BertEncoder, tokenizer: Tokenizer):
        self._encoder = encoder
        self._tokenizer = tokenizer
        self._functions: dict[str, SequenceFunction] = {}

    def embed(
        self,
        texts: Sequence[str | tuple[str, str]],
        *,
        pooling: str,
        max_seq_length: int | None,
        batch_size: int,
    ) -> np.ndarray:
        """Makes a vector for each text; see `Predictor.embed`."""
        if pooling not in POOLINGS:
            raise UserError(f"pooling={pooling!r} is unknown; choose one of {', '.join(POOLINGS)}")
        num_layers = self._encoder.config.num_layers
        num_vectors = layer_pooling.num_vectors(pooling, num_layers, parameter="pooling")
        limit = self._encoder.max_length
        if max_seq_length is None:
            max_seq_length = limit
        elif max_seq_length > limit:
            raise UserError(f"max_seq_length={max_seq_length} exceeds the {limit} positions of the model")
        if pooling not in self._functions:
            self._functions[pooling] = SequenceFunction(lambda batch: self._pooled(batch, pooling))
        sequences = self._tokenizer.sequences(texts, max_seq_length=max_seq_length)
        vectors = self._functions[pooling](sequences, batch_size)
        width = self._encoder.config.hidden_size * num_vectors
        return np.stack(vectors) if vectors else np.zeros((0, width), np.float32)

    def _pooled(self, batch: dict[str, tf.Tensor], pooling: str) -> tf.Tensor:
        """Vectors for a batch, float32 [B, D] or, of four layers side by side, [B, 4 * D]."""
        if pooling == "pooler":
            return tf.cast(self._encoder.pool(**batch), tf.float32)
        outputs = self._encoder(batch)
        if pooling == "cls":
            return tf.cast(outputs["sequence_output"][:, 0], tf.float32)
        if pooling == "mean":
            return layer_pooling.mean_over_positions(outputs["sequence_output"], batch["input_mask"])
        features = layer_pooling.sequence_features(outputs["encoder_layers"], batch["input_mask"], pooling)
        return tf.reshape(features, [tf.shape(features)[0], -1])
