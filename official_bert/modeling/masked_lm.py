"""What stands on top of the encoder in masked-LM pretraining."""

from typing import Any

import keras
from keras import ops

from official_bert.modeling.blocks import ACTIVATIONS, LayerNorm, dense


def gather_positions(sequence, positions):
    """Selects the hidden vectors at the masked positions.

    Args:
      sequence: float [B, S, D], encoder output.
      positions: int32 [B, P], each in [0, S); padding slots hold 0.

    Returns:
      float [B, P, D], dtype of `sequence`.
    """
    batch_size, length, width = ops.shape(sequence)
    first_row = ops.expand_dims(ops.arange(batch_size, dtype="int32") * length, axis=1)  # [B, 1]
    rows = ops.cast(positions, "int32") + first_row  # [B, P]
    return ops.take(ops.reshape(sequence, (-1, width)), rows, axis=0)  # [B, P, D]


@keras.saving.register_keras_serializable(package="official_bert")
class MaskedLmHead(keras.layers.Layer):
    """Scores every piece of the vocabulary at the masked positions.

    Source: BERT paper, section 3.1, task 1; the output weights are the word embeddings.
    """

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        *,
        embedding_size: int | None = None,
        hidden_act: str = "gelu",
        initializer_range: float = 0.02,
        name: str = "predictions",
        **kwargs,
    ):
        """Creates the parts.

        Args:
          hidden_size: D.
          vocab_size: V.
          embedding_size: width of the word embeddings; D if not given.
          hidden_act: a key of `ACTIVATIONS`.
          initializer_range: standard deviation of the initial weights.
          name: the layer's.
          **kwargs: see `keras.layers.Layer`.
        """
        super().__init__(name=name, **kwargs)
        embedding_size = embedding_size or hidden_size
        self._arguments = {
            "hidden_size": hidden_size,
            "vocab_size": vocab_size,
            "embedding_size": embedding_size,
            "hidden_act": hidden_act,
            "initializer_range": initializer_range,
        }
        self._hidden_size, self._vocab_size, self._embedding_size = hidden_size, vocab_size, embedding_size
        self.dense = dense(
            embedding_size, initializer_range, dtype=self.dtype_policy, activation=ACTIVATIONS[hidden_act]
        )
        self.layer_norm = LayerNorm(dtype=self.dtype_policy)

    def build(self, input_shape=None):
        """Creates the transformation and the output bias."""
        with keras.name_scope("transform"):
            self.dense.build((None, self._hidden_size))
            self.layer_norm.build((None, self._embedding_size))
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self._vocab_size,), initializer="zeros", dtype="float32", autocast=False
        )

    @property
    def output_shape(self):
        """The shape of the logits, for `summary()`."""
        return (None, None, self._vocab_size)

    def compute_output_spec(self, sequence_output, positions, word_embeddings):
        """Symbolic logits; see `call`."""
        return keras.KerasTensor((*positions.shape, self._vocab_size), "float32")

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {**super().get_config(), **self._arguments}

    def call(self, sequence_output, positions, word_embeddings):
        """Scores the vocabulary.

        Args:
          sequence_output: float [B, S, D].
          positions: int32 [B, P].
          word_embeddings: float [V, E], the encoder's.

        Returns:
          float32 [B, P, V], logits.
        """
        hidden = gather_positions(sequence_output, positions)  # [B, P, D]
        hidden = self.layer_norm(self.dense(hidden))  # [B, P, E]
        # The product is by far the largest of the head; under a mixed policy it stays in the narrow type.
        return ops.cast(ops.matmul(hidden, ops.transpose(word_embeddings)), "float32") + self.output_bias  # [B, P, V]
