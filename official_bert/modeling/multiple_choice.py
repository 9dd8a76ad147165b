"""The multiple-choice model: an encoder and one vector, whose product with a sequence's vector is its score."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from official_bert.config.bert_config import FEATURES, TEXT_LENGTHS
from official_bert.modeling.blocks import Dropout
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import (
    HEAD_DROPOUT,
    HEAD_INITIALIZER_RANGE,
    EncoderModel,
    OutputProjection,
    holds_features,
)
from official_bert.modeling.token_model import EncoderInputs, complete_inputs, symbolic_inputs, unjoined_texts

NO_CHOICE = -1e9  # score of a sequence that is all padding; its probability is 0


@keras.saving.register_keras_serializable(package="official_bert")
class MultipleChoiceModel(EncoderModel):
    """Encoder and scores of sequences, each a context with one of its choices.

    The probabilities of the choices are the softmax over their scores. An encoder whose `trainable` is False is frozen:
    training changes only the head.

    Source: BERT paper, section 4.4. As in `transformers`, the vector of [CLS] is the pooled output, and the score has
    a bias, which does not affect the probabilities.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        *,
        max_seq_length: int | None = None,
        head_dropout: float = HEAD_DROPOUT,
        name: str = "multiple_choice",
        **kwargs: Any,
    ):
        """Create the head.

        Args:
          encoder: the encoder.
          max_seq_length: length that the sequences of a record are padded to; None for the longest of the batch.
          head_dropout: dropout rate before the head, independent of the encoder's.
          name: name of the model.
          **kwargs: see `keras.Model`: dtype, trainable.
        """
        super().__init__(encoder, name=name, **kwargs)
        self._options = {"max_seq_length": max_seq_length, "head_dropout": head_dropout}
        width = encoder.config.hidden_size
        self.dropout = Dropout(head_dropout, dtype=self.dtype_policy)
        self.dropout.build((None, width))
        with keras.name_scope("multiple_choice"):
            self.head = OutputProjection(width, 1, initializer_range=HEAD_INITIALIZER_RANGE)
        self.build_for_any_length()

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments in a JSON-serializable form."""
        return {**super().get_config(), **self._options}

    def compute_output_spec(
        self, input_ids: Any, input_mask: Any = None, segment_ids: Any = None, training: bool = False
    ) -> Any:
        """Return symbolic outputs; see `call`."""
        ids = symbolic_inputs(input_ids, input_mask, segment_ids).input_ids
        return keras.KerasTensor(ids.shape[:-1], "float32")

    def call(self, input_ids: Any, input_mask: Any = None, segment_ids: Any = None, training: bool = False) -> Any:
        """Score sequences.

        Args:
          input_ids: int32 [B, N, S], for each example N sequences of the context and a choice; or [B, S], sequences of
            any choices. Or all three inputs, as a dict by name. Or the fields of records: a dict of the inputs,
            int32 [B, S], in which the sequences of an example follow one another, or of their `features`,
            float [B, N * D], and of `text_lengths`, int32 [B, N], with 0 for a missing choice.
          input_mask: as input_ids, 1 for a real position and 0 for padding; default: all real.
          segment_ids: as input_ids; default: all 0.
          training: whether to apply dropout.

        Returns:
          float32 [B, N], or [B]; `NO_CHOICE` for a missing choice, a sequence that is all padding.

        Raises:
          UserError: see `BertEncoder.call`.
        """
        if holds_features(input_ids):
            shape = (*ops.shape(input_ids[TEXT_LENGTHS]), self.encoder.config.hidden_size)
            features = ops.reshape(input_ids[FEATURES], shape)  # [B, N, D]
            return self._scores(features, input_ids[TEXT_LENGTHS] > 0, training)
        inputs = self._sequences(input_ids, input_mask, segment_ids)
        return self._scores(self._pooled(inputs, training), ops.any(inputs.input_mask == 1, axis=-1), training)

    def features(self, inputs: Any, training: bool = False) -> Any:
        """Compute the head's input, float [B, N, D]; for the arguments see `call`; a frozen encoder has no dropout."""
        return self._pooled(self._sequences(inputs), training)

    def _sequences(self, first, *others) -> EncoderInputs:
        """Return the inputs of separate sequences, int32 [..., S]."""
        if isinstance(first, Mapping) and TEXT_LENGTHS in first:
            return EncoderInputs(**unjoined_texts(first, self._options["max_seq_length"]))
        return complete_inputs(first, *others)

    def _pooled(self, inputs: EncoderInputs, training):
        """Return the pooled output of each sequence: [..., S] to [..., D]."""
        shape = ops.shape(inputs.input_ids)
        flat = EncoderInputs(*(ops.reshape(tensor, (-1, shape[-1])) for tensor in inputs))
        pooled = self.encoder.pool(flat, training=training and self.encoder.trainable)
        return ops.reshape(pooled, (*shape[:-1], self.encoder.config.hidden_size))

    def _scores(self, features, is_real, training):
        scores = self.head(self.dropout(features, training=training))[..., 0]
        return ops.where(is_real, scores, NO_CHOICE)
