"""The pretraining model: the encoder with its two heads."""

import keras

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import MaskedLmHead, NextSentenceHead
from official_bert.modeling.layout import LayoutMaker, padded_sequences


class PretrainingModel(keras.Model):
    """Encoder, masked-LM head and next-sentence head."""

    def __init__(
        self, config: BertConfig, *, use_one_hot_embeddings: bool = False, layout_maker: LayoutMaker = padded_sequences
    ):
        """Creates all variables under the names of the reference's checkpoints.

        Args:
          config: the architecture.
          use_one_hot_embeddings: see `BertEncoder`.
          layout_maker: see `BertEncoder`.
        """
        super().__init__(name="pretraining")
        self.encoder = BertEncoder(config, use_one_hot_embeddings=use_one_hot_embeddings, layout_maker=layout_maker)
        self.masked_lm = MaskedLmHead(config)
        self.next_sentence = NextSentenceHead(config)
        with keras.name_scope("cls"):
            self.masked_lm.build()
            self.next_sentence.build()
        self.built = True  # nothing waits for a first call, whose name scope would change the variables' paths

    def call(self, inputs, training=False):
        """Scores masked words and next sentences.

        Args:
          inputs: dict of int32 tensors: input_ids, input_mask, segment_ids [B, S], masked_lm_positions [B, P].
          training: whether to drop out.

        Returns:
          A dict: masked_lm_logits float32 [B, P, V] and next_sentence_logits float32 [B, 2].
        """
        encoded = self.encoder(inputs["input_ids"], inputs["input_mask"], inputs["segment_ids"], training=training)
        return {
            "masked_lm_logits": self.masked_lm(
                encoded["sequence_output"], inputs["masked_lm_positions"], self.encoder.word_embeddings
            ),
            "next_sentence_logits": self.next_sentence(encoded["pooled_output"]),
        }
