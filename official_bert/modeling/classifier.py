"""The classification model: an encoder and a linear layer on one vector per sequence."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from official_bert.config.tensor_names import FEATURES
from official_bert.modeling.blocks import Dropout
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.heads import LINEAR, EncoderModel, OutputProjection, bilstm_layers, width_after
from official_bert.modeling.pooling import WEIGHTED_SUM, num_vectors, sequence_features
from official_bert.modeling.token_model import EncoderInputs, complete_inputs, symbolic_inputs
from official_bert.support.errors import UserError

# Fixed in the reference, regardless of the config.
HEAD_DROPOUT = 0.1
HEAD_INITIALIZER_RANGE = 0.02


@keras.saving.register_keras_serializable(package="official_bert")
class ClassificationModel(EncoderModel):
    """Encoder and classifier; with windows, the scores of an example's windows are pooled.

    An encoder whose `trainable` is False is frozen: training changes only the head.

    Attributes:
      feature_shape: (K, D), shape of the classifier's input per sequence.
    Source: BERT paper, section 4.1; feature-based use: section 5.3.
    """

    def __init__(
        self,
        encoder: BertEncoder,
        *,
        num_outputs: int,
        window_length: int | None = None,
        window_pooling: str = "mean",
        feature_layers: str | None = None,
        head: str = LINEAR,
        lstm_units: int | None = None,
        head_dropout: float = HEAD_DROPOUT,
        name: str = "classification",
        **kwargs: Any,
    ):
        """Create the classifier under the names of the reference's checkpoints.

        Args:
          encoder: the encoder.
          num_outputs: classes, or 1 for regression.
          window_length: positions per window if an example may have several; None for one sequence per example.
          window_pooling: pooling of the windows' scores: "mean" or "max".
          feature_layers: input of the classifier; see `pooling.sequence_features`.
          head: "linear" for one layer; "bilstm" for two bidirectional LSTM layers before it, which read the last layer
            at every position and exclude `feature_layers`.
          lstm_units: LSTM units per direction; None for D.
          head_dropout: dropout rate before the last layer, independent of the encoder's.
          name: name of the model.
          **kwargs: see `keras.Model`: dtype, trainable.

        Raises:
          UserError: the encoder has too few layers for `feature_layers`, or `head` excludes `feature_layers`.
        """
        if head != LINEAR and feature_layers is not None:
            raise UserError(f"head={head} reads the last layer at every position; leave feature_layers out")
        super().__init__(encoder, name=name, **kwargs)
        self._num_outputs = num_outputs
        self._window_length, self._window_pooling = window_length, window_pooling
        self._feature_layers = feature_layers
        self._head_options = {"head": head, "lstm_units": lstm_units, "head_dropout": head_dropout}
        config = encoder.config
        self.feature_shape = (num_vectors(feature_layers, config.num_layers), config.hidden_size)
        self.dropout = Dropout(head_dropout, dtype=self.dtype_policy)
        num_read = self.feature_shape[0]
        if feature_layers == WEIGHTED_SUM:
            zeros = keras.initializers.Zeros()
            self.layer_weights = keras.Variable(zeros, shape=(num_read,), name="layer_weights", autocast=False)
            num_read = 1
        with keras.name_scope("classification"):
            self.lstm_layers = bilstm_layers(
                head, lstm_units, config.hidden_size, self.dtype_policy, returns_sequence=False
            )
        width = width_after(self.lstm_layers, num_read * config.hidden_size)
        self.dropout.build((None, width))
        self.head = OutputProjection(width, num_outputs, initializer_range=HEAD_INITIALIZER_RANGE, name="classifier")
        self.build_for_any_length()

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments in a JSON-serializable form."""
        return {
            **super().get_config(),
            "num_outputs": self._num_outputs,
            "window_length": self._window_length,
            "window_pooling": self._window_pooling,
            "feature_layers": self._feature_layers,
            **self._head_options,
        }

    def compute_output_spec(
        self, input_ids: Any, input_mask: Any = None, segment_ids: Any = None, training: bool = False
    ) -> Any:
        """Symbolic outputs; see `call`."""
        if holds_features(input_ids):
            return keras.KerasTensor((input_ids[FEATURES].shape[0], self._num_outputs), "float32")
        inputs = symbolic_inputs(input_ids, input_mask, segment_ids)
        if self._window_length is None:
            self.encoder.compute_output_spec(inputs)  # checks the length
        return keras.KerasTensor((inputs.input_ids.shape[0], self._num_outputs), "float32")

    def call(self, input_ids: Any, input_mask: Any = None, segment_ids: Any = None, training: bool = False) -> Any:
        """Score examples.

        Args:
          input_ids: int32 [B, S]; or all three inputs, as a dict by name or as a list in this order. With windows each
            is [B, W * S], window after window; windows that are all padding do not count. Or a dict of only `features`,
            float [B, K * D], precomputed by `features`.
          input_mask: as input_ids, 1 for a real position and 0 for padding; default: all real.
          segment_ids: as input_ids; default: all 0.
          training: whether to apply dropout.

        Returns:
          float32 [B, num_outputs], logits.

        Raises:
          UserError: see `BertEncoder.call`.
        """
        if holds_features(input_ids):
            features = ops.reshape(input_ids[FEATURES], (-1, *self.feature_shape))  # [B, K, D]
            return self.classify(features, training=training)
        inputs = complete_inputs(input_ids, input_mask, segment_ids)
        if self._window_length is None:
            return self._logits(inputs, training)
        num_examples = ops.shape(inputs.input_ids)[0]
        windows = EncoderInputs(*(ops.reshape(tensor, (-1, self._window_length)) for tensor in inputs))  # [B * W, S]
        logits = self._logits(windows, training)  # [B * W, C]
        logits = ops.reshape(logits, (num_examples, -1, logits.shape[-1]))  # [B, W, C]
        is_real = ops.reshape(windows.input_mask[:, 0] == 1, (num_examples, -1, 1))  # [B, W, 1]
        is_real = ops.concatenate(
            [ops.ones_like(is_real[:, :1]), is_real[:, 1:]], axis=1
        )  # each example has at least one window
        if self._window_pooling == "max":
            return ops.max(ops.where(is_real, logits, -np.inf), axis=1)
        return ops.sum(ops.where(is_real, logits, 0), axis=1) / ops.sum(ops.cast(is_real, logits.dtype), axis=1)

    def _logits(self, inputs, training):
        """Score sequences independently: float32 [B, num_outputs]."""
        if not self.lstm_layers:
            return self.classify(self.features(inputs, training=training), training=training)
        encoded = self.encoder(inputs, training=training and self.encoder.trainable)
        return self.from_encoded(encoded, inputs._asdict(), training=training)

    def from_encoded(self, encoded: Mapping[str, Any], inputs: Mapping[str, Any], training: bool = False) -> Any:
        """See `EncoderModel.from_encoded`; for sequences, not windows."""
        if not self.lstm_layers:
            return self.classify(self._features(encoded, inputs["input_mask"]), training=training)
        x = encoded["sequence_output"]  # [B, S, D]
        for layer in self.lstm_layers:
            x = layer(x, mask=ops.cast(inputs["input_mask"], "bool"), training=training)  # the last gives [B, 2 * U]
        return self.head(self.dropout(x, training=training))

    def features(self, inputs: Any, training: bool = False) -> Any:
        """Compute the classifier's input.

        Args:
          inputs: the encoder's, as a dict by name or as a list in order; see `call`.
          training: whether to apply dropout; a frozen encoder never does.

        Returns:
          float [B, K, D].
        """
        inputs = complete_inputs(inputs)
        training = training and self.encoder.trainable
        if self._feature_layers is None:
            return ops.expand_dims(self.encoder.pool(inputs, training=training), axis=1)  # [B, 1, D]
        return self._features(self.encoder(inputs, training=training), inputs.input_mask)

    def _features(self, encoded: Mapping[str, Any], input_mask):
        """Select the classifier's input: float [B, K, D]."""
        if self._feature_layers is None:
            return ops.expand_dims(encoded["pooled_output"], axis=1)
        return sequence_features(encoded["encoder_layers"], input_mask, self._feature_layers)

    def classify(self, features: Any, training: bool = False) -> Any:
        """Map the result of `features`, float [B, K, D], to logits, float32 [B, num_outputs]."""
        if self._feature_layers == WEIGHTED_SUM:
            features = ops.einsum("bkd,k->bd", features, ops.softmax(self.layer_weights))
        else:
            features = ops.reshape(features, (-1, self.feature_shape[0] * self.feature_shape[1]))  # [B, K * D]
        return self.head(self.dropout(features, training=training))


def holds_features(inputs: Any) -> bool:
    """Return True if the inputs of a model are precomputed features."""
    return isinstance(inputs, Mapping) and FEATURES in inputs
