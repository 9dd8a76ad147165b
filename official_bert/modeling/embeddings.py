"""Ids to vectors: the sum of word, segment and position embeddings, normalized."""

import keras
from keras import ops

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.blocks import initializer, layer_norm


class Embeddings(keras.layers.Layer):
    """The three embedding tables, layer normalization and dropout.

    Attributes:
      word_embeddings: variable [V, D]; the masked-LM head shares it.
    Source: BERT paper, figure 2.
    """

    def __init__(self, config: BertConfig, *, use_one_hot_embeddings: bool):
        super().__init__(name="embeddings")
        self._config = config
        self._use_one_hot_embeddings = use_one_hot_embeddings
        self.layer_norm = layer_norm()
        self.dropout = keras.layers.Dropout(config.hidden_dropout_prob)

    def build(self):
        """Creates the tables."""
        config = self._config
        self.word_embeddings = self._table("word_embeddings", config.vocab_size)
        self.token_type_embeddings = self._table("token_type_embeddings", config.type_vocab_size)
        self.position_embeddings = self._table("position_embeddings", config.max_position_embeddings)
        self.layer_norm.build((None, config.hidden_size))

    def _table(self, name: str, rows: int):
        config = self._config
        return self.add_weight(
            name=name,
            shape=(rows, config.hidden_size),
            initializer=initializer(config.initializer_range),
            autocast=False,  # the gradient of a common word is a sum of thousands of terms, too many for bfloat16
        )

    def call(self, input_ids, segment_ids, training=False):
        """Looks up and adds the embeddings.

        Args:
          input_ids: int32 [B, S].
          segment_ids: int32 [B, S].
          training: whether to drop out.

        Returns:
          float [B, S, D].
        """
        if self._use_one_hot_embeddings:
            words = _one_hot_lookup(self.word_embeddings, input_ids)
        else:
            words = ops.take(self.word_embeddings, input_ids, axis=0)  # [B, S, D]
        # A handful of rows: multiplying is faster than gathering, and far faster in the backward pass.
        segments = _one_hot_lookup(self.token_type_embeddings, segment_ids)
        positions = self.position_embeddings[: ops.shape(input_ids)[1]]  # [S, D]
        return self.dropout(self.layer_norm(words + segments + positions), training=training)


def _one_hot_lookup(table, ids):
    return ops.matmul(ops.one_hot(ids, table.shape[0], dtype=table.dtype), table)  # [B, S, D]
