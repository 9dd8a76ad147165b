"""`BertEncoder`: ids in, every intermediate result out, by name."""

import keras
from keras import ops

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.blocks import dense
from official_bert.modeling.embeddings import Embeddings
from official_bert.modeling.masks import attention_bias
from official_bert.modeling.transformer import TransformerStack


class Pooler(keras.layers.Layer):
    """A vector for the whole sequence: a tanh projection of what stands at [CLS]."""

    def __init__(self, config: BertConfig):
        super().__init__(name="pooler")
        self._hidden_size = config.hidden_size
        self.dense = dense(config.hidden_size, config.initializer_range, activation="tanh")

    def build(self):
        """Creates the projection."""
        self.dense.build((None, self._hidden_size))

    def call(self, sequence_output):
        """Maps float [B, S, D] to float [B, D]."""
        return self.dense(sequence_output[:, 0])


class BertEncoder(keras.layers.Layer):
    """Embeddings, transformer layers and pooler.

    Example:
      >>> encoder = BertEncoder(BertConfig.from_json_file("bert_config.json"))
      >>> encoder(input_ids=[[2, 75, 9, 3]])["pooled_output"]   # float [1, D]

    Source: BERT paper, section 3.
    """

    def __init__(self, config: BertConfig, *, use_one_hot_embeddings: bool = False):
        """Creates all variables; none waits for a first call.

        Args:
          config: the architecture.
          use_one_hot_embeddings: look words up by multiplying with one-hot vectors, which is faster on TPU.
        """
        super().__init__(name="bert")
        self.embeddings = Embeddings(config, use_one_hot_embeddings=use_one_hot_embeddings)
        self.transformer = TransformerStack(config)
        self.pooler = Pooler(config)
        self.build()

    def build(self):
        """Creates the parts."""
        if self.built:
            return
        self.embeddings.build()
        self.transformer.build()
        self.pooler.build()

    @property
    def word_embeddings(self):
        """Variable [V, D]."""
        return self.embeddings.word_embeddings

    @property
    def max_length(self) -> int:
        """Most positions of a sequence."""
        return self.embeddings.position_embeddings.shape[0]

    def call(self, input_ids, input_mask=None, segment_ids=None, training=False):
        """Encodes sequences.

        Args:
          input_ids: int32 [B, S].
          input_mask: int32 [B, S], 1 for a real position and 0 for padding; all real if not given.
          segment_ids: int32 [B, S]; all 0 if not given.
          training: whether to drop out.

        Returns:
          A dict:
            sequence_output: float [B, S, D], the last layer's output.
            pooled_output: float [B, D].
            encoder_layers: list of L float [B, S, D], first layer first.
            embedding_output: float [B, S, D], what enters the first layer.
            attention_probabilities: list of L float [B, N, S, S].
        """
        input_ids = ops.convert_to_tensor(input_ids, dtype="int32")
        if input_mask is None:
            input_mask = ops.ones_like(input_ids)
        if segment_ids is None:
            segment_ids = ops.zeros_like(input_ids)
        embedding_output = self.embeddings(input_ids, segment_ids, training=training)
        layers = self.transformer(embedding_output, attention_bias(input_mask), training=training)
        sequence_output = layers[-1].context
        return {
            "sequence_output": sequence_output,
            "pooled_output": self.pooler(sequence_output),
            "encoder_layers": [layer.context for layer in layers],
            "embedding_output": embedding_output,
            "attention_probabilities": [layer.probabilities for layer in layers],
        }
