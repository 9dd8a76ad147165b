"""The question-answering model: an encoder with two scores per position."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import LINEAR, EncoderModel, OutputProjection, bilstm_layers, width_after
from official_bert.modeling.token_model import complete_inputs, symbolic_inputs

HEAD_INITIALIZER_RANGE = 0.02  # fixed in the reference, regardless of the config


@keras.saving.register_keras_serializable(package="official_bert")
class SpanModel(EncoderModel):
    """Encoder and span head, which scores each position as the start and the end of the answer.

    Source: BERT paper, section 4.2; the bidirectional LSTM: section 5.1.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        *,
        head: str = LINEAR,
        lstm_units: int | None = None,
        name: str = "span",
        **kwargs: Any,
    ):
        """Create the head under the names of the reference's checkpoints.

        Args:
          encoder: the encoder.
          head: "linear" for one layer; "bilstm" for two bidirectional LSTM layers before it.
          lstm_units: LSTM units per direction; None for D.
          name: name of the model.
          **kwargs: see `keras.Model`: dtype, trainable.
        """
        super().__init__(encoder, name=name, **kwargs)
        self._options = {"head": head, "lstm_units": lstm_units}
        with keras.name_scope("cls"), keras.name_scope("squad"):
            self.lstm_layers = bilstm_layers(head, lstm_units, encoder.config.hidden_size, self.dtype_policy)
            width = width_after(self.lstm_layers, encoder.config.hidden_size)
            self.head = OutputProjection(width, 2, initializer_range=HEAD_INITIALIZER_RANGE, name="start_and_end")
        self.build_for_any_length()

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments in a JSON-serializable form."""
        return {**super().get_config(), **self._options}

    def compute_output_spec(
        self, input_ids: Any, input_mask: Any = None, segment_ids: Any = None, training: bool = False
    ) -> Any:
        """Symbolic outputs; see `call`."""
        inputs = symbolic_inputs(input_ids, input_mask, segment_ids)
        shape = self.encoder.compute_output_spec(inputs)["sequence_output"].shape[:2]
        return {name: keras.KerasTensor(shape, "float32") for name in ("start_logits", "end_logits")}

    def call(self, input_ids: Any, input_mask: Any = None, segment_ids: Any = None, training: bool = False) -> Any:
        """Score positions.

        Args:
          input_ids: int32 [B, S]; or all three inputs, as a dict by name or as a list in this order.
          input_mask: int32 [B, S], 1 for a real position and 0 for padding; default: all real.
          segment_ids: int32 [B, S]; default: all 0.
          training: whether to apply dropout.

        Returns:
          A dict: start_logits and end_logits, float32 [B, S].

        Raises:
          UserError: see `BertEncoder.call`.
        """
        inputs = complete_inputs(input_ids, input_mask, segment_ids)
        return self.from_encoded(self.encoder(inputs, training=training), inputs._asdict(), training=training)

    def from_encoded(self, encoded: Mapping[str, Any], inputs: Mapping[str, Any], training: bool = False) -> Any:
        """See `EncoderModel.from_encoded`."""
        x = encoded["sequence_output"]
        for layer in self.lstm_layers:
            x = layer(x, mask=ops.cast(inputs["input_mask"], "bool"), training=training)
        logits = self.head(x)  # [B, S, 2]
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
