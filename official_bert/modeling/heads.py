"""The base class of models with a head, and the models that score classes, answers and choices."""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
from keras import ops
from typing_extensions import Self

from official_bert.config.bert_config import FEATURES, TEXT_LENGTHS, BertConfig
from official_bert.modeling.encoder import BertEncoder, create_encoder
from official_bert.modeling.encoder_options import EncoderOptions
from official_bert.modeling.pooling import WEIGHTED_SUM, num_vectors, sequence_features
from official_bert.modeling.token_model import EncoderInputs, TokenModel, complete_inputs, unjoined_texts
from official_bert.modeling.transformer import Dropout, initializer
from official_bert.support.errors import UserError

LINEAR, BILSTM, CRF = "linear", "bilstm", "crf"  # choices of `head`; the last one of taggers only

_NUM_LAYERS = 2  # BERT paper, section 5.3
# Fixed in the reference, regardless of the config.
HEAD_DROPOUT = 0.1
HEAD_INITIALIZER_RANGE = 0.02


class EncoderModel(TokenModel):
    """A model with an encoder, which it calls with complete `EncoderInputs`."""

    _options: Mapping[str, Any] = MappingProxyType({})  # other constructor arguments, which Keras stores

    def __init__(self, encoder: BertEncoder, *, dtype: Any = None, **kwargs: Any):
        if isinstance(encoder, (str, os.PathLike)):
            raise UserError(f"encoder={encoder!r:.80} is no BertEncoder; use {type(self).__name__}.from_checkpoint")
        super().__init__(dtype=dtype or encoder.dtype_policy, **kwargs)
        self.encoder = encoder

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments in a JSON-serializable form."""
        encoder = keras.saving.serialize_keras_object(self.encoder)
        return {**super().get_config(), "encoder": encoder, **self._options}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Self:
        """Create the model from the result of `get_config`."""
        encoder = keras.saving.deserialize_keras_object(config["encoder"], custom_objects=custom_objects)
        return cls(**{**config, "encoder": encoder})

    def checkpoint_variables(self) -> dict[str, keras.Variable]:
        """Return the variables under their names in a checkpoint."""
        variables = self.encoder.checkpoint_variables()
        of_encoder = {id(variable) for variable in self.encoder.weights}
        return {**variables, **{weight.path: weight for weight in self.weights if id(weight) not in of_encoder}}

    def from_encoded(self, encoded: Mapping[str, Any], inputs: Mapping[str, Any], training: bool = False) -> Any:
        """Compute the result of `call` from encoder outputs.

        Args:
          encoded: the result of `BertEncoder.call`.
          inputs: all inputs of `call`, by name.
          training: whether to apply dropout in the head.
        """
        raise NotImplementedError

    @property
    def config(self) -> BertConfig:
        """The architecture of the encoder."""
        return self.encoder.config

    @classmethod
    def _of_architecture(cls, config: BertConfig, *, dtype: Any = None, **options: Any) -> Self:
        return cls(create_encoder(config, EncoderOptions(dtype=dtype)), **options)


class OutputProjection(keras.layers.Layer):
    """Linear layer with float32 logits; its variables take the name scope in which it is created, without its name."""

    def __init__(
        self,
        input_width: int,
        num_outputs: int,
        *,
        initializer_range: float = HEAD_INITIALIZER_RANGE,
        name: str = "output_projection",
    ):
        super().__init__(name=name, dtype="float32")
        self.supports_masking = True  # positions are independent
        self._num_outputs = num_outputs
        self.output_weights = keras.Variable(
            initializer(initializer_range), shape=(num_outputs, input_width), name="output_weights", autocast=False
        )
        self.output_bias = keras.Variable(
            keras.initializers.Zeros(), shape=(num_outputs,), name="output_bias", autocast=False
        )
        self.build((None, input_width))

    def build(self, input_shape=None):
        """Do nothing; the variables exist already."""

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self._num_outputs)  # shown by `summary()`

    def call(self, x):
        """Map float [..., D] to logits, float32 [..., C]."""
        return ops.matmul(x, ops.transpose(self.output_weights)) + self.output_bias


def bilstm_layers(
    head: str,
    lstm_units: int | None,
    input_width: int,
    dtype_policy: keras.DTypePolicy,
    *,
    returns_sequence: bool = True,
) -> list[keras.layers.Layer]:
    """Create `lstm_0` and `lstm_1`, called with `mask`, bool [B, S], for [B, S, D]: BERT paper, section 5.3."""
    if head != BILSTM:
        return []
    if dtype_policy.variable_dtype != "float32":  # orthogonal initialization of an LSTM needs float32
        dtype_policy = keras.DTypePolicy(f"mixed_{dtype_policy.compute_dtype}")
    units, layers = lstm_units or input_width, []
    for number in range(_NUM_LAYERS):
        is_sequence = returns_sequence or number < _NUM_LAYERS - 1
        lstm = keras.layers.LSTM(units, return_sequences=is_sequence, dtype=dtype_policy, name="lstm")
        layers.append(keras.layers.Bidirectional(lstm, dtype=dtype_policy, name=f"lstm_{number}"))
        layers[-1].build((None, None, input_width))
        input_width = 2 * units
    return layers


def width_after(layers: list[keras.layers.Layer], input_width: int) -> int:
    """Return the output width of the layers, or their input width if there are none."""
    return 2 * layers[-1].forward_layer.units if layers else input_width


def make_layer_weights(num_layers: int) -> keras.Variable:
    """Return the variable of a weighted sum of layers; equal weights at first."""
    return keras.Variable(keras.initializers.Zeros(), shape=(num_layers,), name="layer_weights", autocast=False)


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
        self._options = {
            "num_outputs": num_outputs,
            "window_length": window_length,
            "window_pooling": window_pooling,
            "feature_layers": feature_layers,
            "head": head,
            "lstm_units": lstm_units,
            "head_dropout": head_dropout,
        }
        self._window_length, self._feature_layers = window_length, feature_layers
        config = encoder.config
        self.feature_shape = (num_vectors(feature_layers, config.num_layers), config.hidden_size)
        self.dropout = Dropout(head_dropout, dtype=self.dtype_policy)
        num_read = self.feature_shape[0]
        if feature_layers == WEIGHTED_SUM:
            self.layer_weights = make_layer_weights(num_read)
            num_read = 1
        with keras.name_scope("classification"):
            self.lstm_layers = bilstm_layers(
                head, lstm_units, config.hidden_size, self.dtype_policy, returns_sequence=False
            )
        width = width_after(self.lstm_layers, num_read * config.hidden_size)
        self.dropout.build((None, width))
        self.head = OutputProjection(width, num_outputs, name="classifier")
        self.build_for_any_length()

    def call(self, input_ids: Any, input_mask: Any = None, segment_ids: Any = None, training: bool = False) -> Any:
        """Score examples.

        Args:
          input_ids: as the others, see `BertEncoder.call`. With windows each is [B, W * S], window after window; those
            that are all padding do not count. Or a dict of only `features`, float [B, K * D], made by `features`.

        Returns:
          float32 [B, num_outputs], logits.
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
        if self._options["window_pooling"] == "max":
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
    return isinstance(inputs, Mapping) and FEATURES in inputs


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
            self.head = OutputProjection(width, 2, name="start_and_end")
        self.build_for_any_length()

    def call(self, input_ids: Any, input_mask: Any = None, segment_ids: Any = None, training: bool = False) -> Any:
        """Score positions.

        The arguments and errors are those of `BertEncoder.call`.

        Returns:
          A dict: start_logits and end_logits, float32 [B, S].
        """
        inputs = complete_inputs(input_ids, input_mask, segment_ids)
        return self.from_encoded(self.encoder(inputs, training=training), inputs._asdict(), training=training)

    def from_encoded(self, encoded: Mapping[str, Any], inputs: Mapping[str, Any], training: bool = False) -> Any:
        """See `EncoderModel.from_encoded`."""
        x = self.encoder.for_heads(encoded["sequence_output"])
        for layer in self.lstm_layers:
            x = layer(x, mask=ops.cast(inputs["input_mask"], "bool"), training=training)
        logits = self.head(x)  # [B, S, 2]
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}


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
            self.head = OutputProjection(width, 1)
        self.build_for_any_length()

    def call(self, input_ids: Any, input_mask: Any = None, segment_ids: Any = None, training: bool = False) -> Any:
        """Score sequences.

        Args:
          input_ids: int32 [B, N, S], for each example N sequences of the context and a choice; or [B, S], sequences of
            any choices. Or all three inputs, as a dict by name. Or the fields of records: a dict of the inputs,
            int32 [B, S], in which the sequences of an example follow one another, or of their `features`,
            float [B, N * D], and of `text_lengths`, int32 [B, N], with 0 for a missing choice.
          input_mask, segment_ids, training: see `BertEncoder.call`.

        Returns:
          float32 [B, N], or [B]; `NO_CHOICE` for a missing choice, a sequence that is all padding.
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
        is_trained = training and self.encoder.trainable
        if len(inputs.input_ids.shape) == 2:  # LiteRT's converter needs to see the shape
            return self.encoder.pool(inputs, training=is_trained)
        shape = ops.shape(inputs.input_ids)
        flat = EncoderInputs(*(ops.reshape(tensor, (-1, shape[-1])) for tensor in inputs))
        pooled = self.encoder.pool(flat, training=is_trained)
        return ops.reshape(pooled, (*shape[:-1], self.encoder.config.hidden_size))

    def _scores(self, features, is_real, training):
        scores = self.head(self.dropout(features, training=training))[..., 0]
        return ops.where(is_real, scores, NO_CHOICE)
