"""Base class of models with an encoder: the encoder, its checkpoints, and the layers of heads."""

import os
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops
from typing_extensions import Self

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.blocks import initializer
from official_bert.modeling.encoder import BertEncoder, create_encoder, is_needed
from official_bert.modeling.encoder_options import EncoderOptions
from official_bert.modeling.token_model import TokenModel

LINEAR, BILSTM, CRF = "linear", "bilstm", "crf"  # choices of `head`; the last one of taggers only

_NUM_LAYERS = 2  # BERT paper, section 5.3


class EncoderModel(TokenModel):
    """A model with an encoder, which it calls with complete `EncoderInputs`.

    Attributes:
      encoder: the encoder.
    """

    def __init__(self, encoder: BertEncoder, *, dtype: Any = None, **kwargs: Any):
        super().__init__(dtype=dtype or encoder.dtype_policy, **kwargs)
        self.encoder = encoder

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments in a JSON-serializable form."""
        return {**super().get_config(), "encoder": keras.saving.serialize_keras_object(self.encoder)}

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
    def _architecture(self) -> BertConfig:
        return self.encoder.config

    @classmethod
    def from_checkpoint(
        cls,
        path: str | os.PathLike[str],
        *,
        bert_config: BertConfig | str | os.PathLike[str] | None = None,
        dtype: Any = None,
        **options: Any,
    ) -> Self:
        """Create the model on a new encoder, with pretrained weights.

        Args:
          path: see `BertEncoder.from_checkpoint`. Variables of the model's head that the checkpoint lacks are newly
            initialized, with a warning that names them.
          bert_config: see `BertEncoder.from_checkpoint`.
          dtype: the dtype policy of encoder and model.
          **options: see the constructor, `num_outputs=2`.

        Raises:
          UserError: see `BertEncoder.from_checkpoint`.
        """
        from official_bert.checkpoints.loading import load  # imports TensorFlow
        from official_bert.checkpoints.pretrained import open_pretrained

        reader, config = open_pretrained(path, bert_config)
        model = cls(create_encoder(config, EncoderOptions(dtype=dtype)), **options)
        load(reader, model.checkpoint_variables(), required=is_needed).log(is_trained_next=False)
        return model


@keras.saving.register_keras_serializable(package="official_bert")
class OutputProjection(keras.layers.Layer):
    """A linear layer that computes float32 logits; its kernel is transposed, as in the reference.

    Its variables take the name scope in which the layer is created, without the layer's own name: in checkpoints a
    classifier has `output_weights` and a span head `cls/squad/output_weights`.

    Attributes:
      output_weights: variable [C, D].
      output_bias: variable [C].
    """

    def __init__(
        self,
        input_width: int,
        num_outputs: int,
        *,
        initializer_range: float = 0.02,
        name: str = "output_projection",
        trainable: bool = True,
    ):
        """Create the variables.

        Args:
          input_width: D.
          num_outputs: C.
          initializer_range: standard deviation of the initial weights.
          name: name of the layer.
          trainable: whether training changes the variables.
        """
        super().__init__(name=name, trainable=trainable, dtype="float32")
        self.supports_masking = True  # positions are independent
        self._arguments = {
            "input_width": input_width,
            "num_outputs": num_outputs,
            "initializer_range": initializer_range,
        }
        self._num_outputs = num_outputs
        self.output_weights = self._variable("output_weights", (num_outputs, input_width), initializer_range)
        self.output_bias = self._variable("output_bias", (num_outputs,), None)
        self.build((None, input_width))

    @staticmethod
    def _variable(name: str, shape: tuple[int, ...], initializer_range: float | None) -> keras.Variable:
        initial = initializer(initializer_range) if initializer_range else "zeros"
        return keras.Variable(keras.initializers.get(initial), shape=shape, name=name, autocast=False)

    def build(self, input_shape=None):
        """Do nothing; the variables exist already."""

    def compute_output_shape(self, input_shape):
        """Return the shape of x with last dimension C."""
        return (*input_shape[:-1], self._num_outputs)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments."""
        config = super().get_config()
        del config["dtype"]  # not a constructor argument
        return {**config, **self._arguments}

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
    """Create the layers between the encoder and a head's linear layer, named `lstm_0` and `lstm_1`.

    Call them in sequence with `mask`, bool [B, S].

    Args:
      head: "bilstm" for two layers; otherwise none.
      lstm_units: units per direction; None for `input_width`.
      input_width: D of their inputs, float [B, S, D].
      dtype_policy: the model's dtype policy.
      returns_sequence: whether the last layer returns a vector for every position, float [B, S, 2 * units]; otherwise
        the final state of each direction, float [B, 2 * units].

    Source: BERT paper, sections 5.1 and 5.3.
    """
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
