"""The question-answering model: the encoder, and two scores a position."""

import keras
from keras import ops

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.blocks import initializer
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.layout import LayoutMaker, padded_sequences

HEAD_INITIALIZER_RANGE = 0.02  # reference value, whatever the config says


class SpanModel(keras.Model):
    """Encoder and span head: how well an answer would start, and end, at each position.

    Source: BERT paper, section 4.2.
    """

    def __init__(
        self, config: BertConfig, *, use_one_hot_embeddings: bool = False, layout_maker: LayoutMaker = padded_sequences
    ):
        """Creates all variables under the names of the reference's checkpoints.

        Args:
          config: the architecture.
          use_one_hot_embeddings: see `BertEncoder`.
          layout_maker: see `BertEncoder`.
        """
        super().__init__(name="span")
        self.encoder = BertEncoder(config, use_one_hot_embeddings=use_one_hot_embeddings, layout_maker=layout_maker)
        self.head = SpanHead(config)
        with keras.name_scope("cls"):
            self.head.build()
        self.built = True  # nothing waits for a first call, whose name scope would change the variables' paths

    def call(self, inputs, training=False):
        """Scores positions.

        Args:
          inputs: dict of int32 tensors input_ids, input_mask and segment_ids [B, S].
          training: whether to drop out.

        Returns:
          A dict: start_logits and end_logits, float32 [B, S].
        """
        encoded = self.encoder(inputs["input_ids"], inputs["input_mask"], inputs["segment_ids"], training=training)
        return self.head(encoded["sequence_output"])


class SpanHead(keras.layers.Layer):
    """Two scores a position, from its vector alone."""

    def __init__(self, config: BertConfig):
        super().__init__(name="squad", dtype="float32")
        self._hidden_size = config.hidden_size

    def build(self):
        """Creates the weights, stored transposed as in the reference."""
        self.output_weights = self.add_weight(
            name="output_weights", shape=(2, self._hidden_size), initializer=initializer(HEAD_INITIALIZER_RANGE)
        )
        self.output_bias = self.add_weight(name="output_bias", shape=(2,), initializer="zeros")

    def call(self, sequence_output):
        """Maps float [B, S, D] to a dict of start_logits and end_logits, float32 [B, S]."""
        logits = ops.matmul(sequence_output, ops.transpose(self.output_weights)) + self.output_bias  # [B, S, 2]
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
