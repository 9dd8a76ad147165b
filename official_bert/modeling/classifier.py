"""The classification model: the encoder and a linear layer on one vector a sequence."""

import keras
import numpy as np
from keras import ops

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.blocks import initializer
from official_bert.modeling.encoder import BertEncoder
from official_bert.modeling.layout import LayoutMaker, padded_sequences
from official_bert.modeling.pooling import WEIGHTED_SUM, num_vectors, sequence_features

HEAD_DROPOUT = 0.1  # reference values, both whatever the config says
HEAD_INITIALIZER_RANGE = 0.02

FEATURES = "features"
ENCODER_INPUTS = ("input_ids", "input_mask", "segment_ids")


class ClassificationModel(keras.Model):
    """Encoder and classifier; with windows, the classifier's scores of an example's windows become one.

    Attributes:
      feature_shape: (K, D), the vectors that the classifier reads of each sequence.
    Source: BERT paper, section 4.1; feature-based use: section 5.3.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        num_outputs: int,
        window_length: int | None = None,
        window_pooling: str = "mean",
        trainable_encoder: bool = True,
        feature_layers: str | None = None,
        use_one_hot_embeddings: bool = False,
        layout_maker: LayoutMaker = padded_sequences,
    ):
        """Creates all variables under the names of the reference's checkpoints.

        Args:
          config: the architecture.
          num_outputs: classes, or 1 for regression.
          window_length: positions of a window, if an example may consist of several; None if it is one sequence.
          window_pooling: how the scores of windows become one: "mean" or "max".
          trainable_encoder: whether training changes the encoder; otherwise only what stands on it.
          feature_layers: what the classifier reads; see `pooling.sequence_features`.
          use_one_hot_embeddings: see `BertEncoder`.
          layout_maker: see `BertEncoder`.
        """
        super().__init__(name="classification")
        self._window_length, self._window_pooling = window_length, window_pooling
        self._trainable_encoder, self._feature_layers = trainable_encoder, feature_layers
        self.feature_shape = (num_vectors(feature_layers, config.num_hidden_layers), config.hidden_size)
        self.encoder = BertEncoder(config, use_one_hot_embeddings=use_one_hot_embeddings, layout_maker=layout_maker)
        self.encoder.trainable = trainable_encoder
        self.dropout = keras.layers.Dropout(HEAD_DROPOUT)
        num_read = self.feature_shape[0]
        if feature_layers == WEIGHTED_SUM:
            self.layer_weights = self._variable("layer_weights", (num_read,), "zeros")
            num_read = 1
        # Stored transposed, as in the reference.
        self.output_weights = self._variable(
            "output_weights", (num_outputs, num_read * config.hidden_size), initializer(HEAD_INITIALIZER_RANGE)
        )
        self.output_bias = self._variable("output_bias", (num_outputs,), "zeros")
        self.built = True  # nothing waits for a first call, whose name scope would change the variables' paths

    @staticmethod
    def _variable(name, shape, initial):
        """A variable whose path is its bare name, float32 under every policy, and so are the logits."""
        return keras.Variable(keras.initializers.get(initial), shape=shape, name=name, autocast=False)

    def call(self, inputs, training=False):
        """Scores examples.

        Args:
          inputs: dict of int32 tensors input_ids, input_mask and segment_ids [B, S]; with windows [B, W * S], window
            after window, where one that is all padding does not count. Or `features` alone, float [B, K * D], as
            `features` gave them before.
          training: whether to drop out.

        Returns:
          float32 [B, num_outputs], logits.
        """
        if FEATURES in inputs:
            features = ops.reshape(inputs[FEATURES], (-1, *self.feature_shape))  # [B, K, D]
            return self.classify(features, training=training)
        if self._window_length is None:
            return self.classify(self.features(inputs, training=training), training=training)
        num_examples = ops.shape(inputs["input_ids"])[0]
        windows = {name: ops.reshape(inputs[name], (-1, self._window_length)) for name in ENCODER_INPUTS}  # [B * W, S]
        logits = self.classify(self.features(windows, training=training), training=training)  # [B * W, C]
        logits = ops.reshape(logits, (num_examples, -1, logits.shape[-1]))  # [B, W, C]
        is_real = ops.reshape(windows["input_mask"][:, 0] == 1, (num_examples, -1, 1))  # [B, W, 1]
        is_real = ops.concatenate([ops.ones_like(is_real[:, :1]), is_real[:, 1:]], axis=1)  # so that none has no window
        if self._window_pooling == "max":
            return ops.max(ops.where(is_real, logits, -np.inf), axis=1)
        return ops.sum(ops.where(is_real, logits, 0), axis=1) / ops.sum(ops.cast(is_real, logits.dtype), axis=1)

    def features(self, inputs, training=False):
        """Computes what the classifier reads.

        Args:
          inputs: dict of int32 tensors input_ids, input_mask and segment_ids [B, S].
          training: whether to drop out; a frozen encoder never does.

        Returns:
          float [B, K, D].
        """
        encoder_inputs = [inputs[name] for name in ENCODER_INPUTS]
        training = training and self._trainable_encoder
        if self._feature_layers is None:
            return ops.expand_dims(self.encoder.pool(*encoder_inputs, training=training), axis=1)  # [B, 1, D]
        encoded = self.encoder(*encoder_inputs, training=training)
        return sequence_features(encoded["encoder_layers"], inputs["input_mask"], self._feature_layers)

    def classify(self, features, training=False):
        """Scores what `features` gives: float [B, K, D] to logits, float32 [B, num_outputs]."""
        if self._feature_layers == WEIGHTED_SUM:
            features = ops.einsum("bkd,k->bd", features, ops.softmax(self.layer_weights))
        else:
            features = ops.reshape(features, (-1, self.feature_shape[0] * self.feature_shape[1]))  # [B, K * D]
        features = self.dropout(features, training=training)
        return ops.matmul(features, ops.transpose(self.output_weights)) + self.output_bias
