"""The pretraining model: an encoder with the two heads of pretraining."""

from collections.abc import Mapping
from typing import Any

import keras

from official_bert.config.tensor_names import ENCODER_INPUTS
from official_bert.modeling.blocks import OutputProjection
from official_bert.modeling.encoder_model import EncoderModel
from official_bert.modeling.inputs import named_inputs
from official_bert.modeling.masked_lm import MaskedLmHead
from official_bert.modeling.model import Encoder
from official_bert.support.errors import UserError


@keras.saving.register_keras_serializable(package="official_bert")
class PretrainingModel(EncoderModel):
    """Encoder, masked-LM head, and a next-sentence head that tells the next sentence (class 0) from a random one (1).

    Source: BERT paper, section 3.1.
    """

    INPUTS = (*ENCODER_INPUTS, "masked_lm_positions")

    def __init__(self, encoder: Encoder, *, name: str = "pretraining", **kwargs):
        """Creates the heads under the names of the reference's checkpoints.

        Args:
          encoder: the encoder.
          name: the model's.
          **kwargs: see `keras.Model`: dtype, trainable.
        """
        super().__init__(encoder, name=name, **kwargs)
        config = encoder.config
        vocab_size, embedding_size = encoder.word_embeddings.shape
        self.masked_lm = MaskedLmHead(
            config.hidden_size,
            vocab_size,
            embedding_size=embedding_size,
            hidden_act=config.hidden_act,
            initializer_range=config.initializer_range,
            dtype=self.dtype_policy,
        )
        with keras.name_scope("cls"):
            self.masked_lm.build((None, None, config.hidden_size))
            with keras.name_scope("seq_relationship"):
                self.next_sentence = OutputProjection(
                    config.hidden_size, 2, initializer_range=config.initializer_range, name="next_sentence"
                )
        self.build_for_any_length()

    def compute_output_spec(
        self, input_ids, input_mask=None, segment_ids=None, masked_lm_positions=None, training=False
    ):
        """Symbolic outputs; see `call`."""
        inputs = self._named(input_ids, input_mask, segment_ids, masked_lm_positions)
        encoded = self.encoder.compute_output_spec(*(inputs[name] for name in ENCODER_INPUTS))
        return {
            "masked_lm_logits": self.masked_lm.compute_output_spec(
                encoded["sequence_output"], inputs["masked_lm_positions"], self.encoder.word_embeddings
            ),
            "next_sentence_logits": self.next_sentence.compute_output_spec(encoded["pooled_output"]),
        }

    def call(self, input_ids, input_mask=None, segment_ids=None, masked_lm_positions=None, training=False):
        """Scores masked words and next sentences.

        Args:
          input_ids: int32 [B, S]; or all four inputs, as a dict by name or as a list in this order.
          input_mask: int32 [B, S], 1 for a real position and 0 for padding; all real if not given.
          segment_ids: int32 [B, S]; all 0 if not given.
          masked_lm_positions: int32 [B, P]; padding slots hold 0.
          training: whether to drop out.

        Returns:
          A dict: masked_lm_logits float32 [B, P, V] and next_sentence_logits float32 [B, 2].

        Raises:
          UserError: see `BertEncoder.call`; or masked_lm_positions is missing.
        """
        inputs = self._named(input_ids, input_mask, segment_ids, masked_lm_positions)
        encoded = self.encoder(**{name: inputs[name] for name in ENCODER_INPUTS}, training=training)
        return self.from_encoded(encoded, inputs)

    def from_encoded(self, encoded: Mapping[str, Any], inputs: Mapping[str, Any], training=False):
        """See `EncoderModel.from_encoded`."""
        return {
            "masked_lm_logits": self.masked_lm(
                encoded["sequence_output"], inputs["masked_lm_positions"], self.encoder.word_embeddings
            ),
            "next_sentence_logits": self.next_sentence(encoded["pooled_output"]),
        }

    def _named(self, *inputs):
        named = named_inputs(self.INPUTS, *inputs)
        if named["masked_lm_positions"] is None:
            raise UserError("the model was called without masked_lm_positions, the positions whose words it scores")
        return named
