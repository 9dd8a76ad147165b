"""What stands on top of the encoder in pretraining."""

import keras
from keras import ops

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.blocks import ACTIVATIONS, dense, initializer, layer_norm


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


class MaskedLmHead(keras.layers.Layer):
    """Scores every piece of the vocabulary at the masked positions.

    Source: BERT paper, section 3.1, task 1; the output weights are the word embeddings.
    """

    def __init__(self, config: BertConfig):
        super().__init__(name="predictions")
        self._vocab_size, self._hidden_size = config.vocab_size, config.hidden_size
        self.dense = dense(config.hidden_size, config.initializer_range, activation=ACTIVATIONS[config.hidden_act])
        self.layer_norm = layer_norm()

    def build(self):
        """Creates the transformation and the output bias."""
        with keras.name_scope("transform"):
            self.dense.build((None, self._hidden_size))
            self.layer_norm.build((None, self._hidden_size))
        self.output_bias = self.add_weight(
            name="output_bias", shape=(self._vocab_size,), initializer="zeros", autocast=False
        )

    def call(self, sequence_output, positions, word_embeddings):
        """Scores the vocabulary.

        Args:
          sequence_output: float [B, S, D].
          positions: int32 [B, P].
          word_embeddings: float [V, D], the encoder's.

        Returns:
          float32 [B, P, V], logits.
        """
        hidden = gather_positions(sequence_output, positions)  # [B, P, D]
        hidden = self.layer_norm(self.dense(hidden))
        # The product is by far the largest of the head; under a mixed policy it stays in the narrow type.
        return ops.cast(ops.matmul(hidden, ops.transpose(word_embeddings)), "float32") + self.output_bias  # [B, P, V]


class NextSentenceHead(keras.layers.Layer):
    """Tells the next sentence (class 0) from a random one (class 1).

    Source: BERT paper, section 3.1, task 2.
    """

    def __init__(self, config: BertConfig):
        super().__init__(name="seq_relationship", dtype="float32")
        self._config = config

    def build(self):
        """Creates the classifier; its weights are stored transposed, as in the reference."""
        config = self._config
        self.output_weights = self.add_weight(
            name="output_weights", shape=(2, config.hidden_size), initializer=initializer(config.initializer_range)
        )
        self.output_bias = self.add_weight(name="output_bias", shape=(2,), initializer="zeros")

    def call(self, pooled_output):
        """Maps float [B, D] to logits, float32 [B, 2]."""
        return ops.matmul(pooled_output, ops.transpose(self.output_weights)) + self.output_bias
