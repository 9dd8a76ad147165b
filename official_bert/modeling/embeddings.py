"""Ids to vectors: the sum of word, segment and position embeddings, normalized."""

from typing import Any

import keras
from keras import ops

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.blocks import Configured, Dropout, LayerNorm, initializer
from official_bert.support.errors import UserError


@keras.saving.register_keras_serializable(package="official_bert")
class Embeddings(Configured, keras.layers.Layer):
    """The three embedding tables, layer normalization and dropout.

    Attributes:
      word_embeddings: variable [V, E]; the masked-LM head shares it. E is D but for ALBERT.
    Source: BERT paper, figure 2.
    """

    def __init__(self, config: BertConfig, *, use_one_hot_embeddings: bool = False, name: str = "embeddings", **kwargs):
        """Creates the parts.

        Args:
          config: the architecture.
          use_one_hot_embeddings: look words up by multiplying with one-hot vectors, which is faster on TPU.
          name: the layer's.
          **kwargs: see `keras.layers.Layer`.
        """
        super().__init__(config, name=name, **kwargs)
        self._use_one_hot_embeddings = use_one_hot_embeddings
        self.layer_norm = LayerNorm(dtype=self.dtype_policy)
        self.dropout = Dropout(config.hidden_dropout_prob, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        """Creates the tables."""
        config = self.config
        self.word_embeddings = self._table("word_embeddings", config.vocab_size)
        self.token_type_embeddings = self._table("token_type_embeddings", config.type_vocab_size)
        self.position_embeddings = self._table("position_embeddings", config.max_position_embeddings)
        self.layer_norm.build((None, None, config.embedding_width))

    def _table(self, name: str, rows: int):
        config = self.config
        return self.add_weight(
            name=name,
            shape=(rows, config.embedding_width),
            initializer=initializer(config.initializer_range),
            autocast=False,  # the gradient of a common word is a sum of thousands of terms, too many for bfloat16
        )

    def compute_output_shape(self, input_shape):
        """(B, S) to (B, S, E); the errors are those of `call`."""
        self._check_shape(input_shape)
        return (*input_shape, self.config.embedding_width)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {**super().get_config(), "use_one_hot_embeddings": self._use_one_hot_embeddings}

    def call(self, input_ids, segment_ids, training=False):
        """Looks up and adds the embeddings.

        Args:
          input_ids: int32 [B, S].
          segment_ids: int32 [B, S].
          training: whether to drop out.

        Returns:
          float [B, S, E].

        Raises:
          UserError: `input_ids` is not of rank 2, or has more positions than the model.
        """
        self._check_shape(input_ids.shape)
        if self._use_one_hot_embeddings:
            words = _one_hot_lookup(self.word_embeddings, input_ids)
        else:
            words = ops.take(self.word_embeddings, input_ids, axis=0)  # [B, S, E]
        if training or self._use_one_hot_embeddings:  # a handful of rows, to which gradients come faster by multiplying
            segments = _one_hot_lookup(self.token_type_embeddings, segment_ids)
        else:
            segments = ops.take(self.token_type_embeddings, segment_ids, axis=0)  # [B, S, E]
        positions = self.position_embeddings[: ops.shape(input_ids)[1]]  # [S, E]
        return self.dropout(self.layer_norm(words + segments + positions), training=training)

    def _check_shape(self, shape) -> None:
        """Raises for ids that the tables do not fit; a length that is not known yet passes."""
        if len(shape) != 2:
            raise UserError(f"input_ids has the shape {tuple(shape)}; it must be [batch, positions]")
        limit = self.config.max_position_embeddings
        if shape[1] is not None and shape[1] > limit:
            raise UserError(
                f"input_ids has {shape[1]} positions, the model has max_position_embeddings={limit}; cut the sequences "
                "to that length"
            )


def _one_hot_lookup(table, ids):
    return ops.matmul(ops.one_hot(ids, table.shape[0], dtype=table.dtype), table)  # [B, S, E]
