"""What the models that stand on an encoder have in common."""

from collections.abc import Mapping
from typing import Any

import keras

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import is_of_encoder
from official_bert.modeling.encoders import EncoderOptions, create_encoder
from official_bert.modeling.model import Encoder, TokenModel


class EncoderModel(TokenModel):
    """A model that has an encoder.

    Attributes:
      encoder: the encoder.
    """

    def __init__(self, encoder: Encoder, *, dtype=None, **kwargs):
        super().__init__(dtype=dtype or encoder.dtype_policy, **kwargs)
        self.encoder = encoder

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor as JSON can hold them."""
        return {**super().get_config(), "encoder": keras.saving.serialize_keras_object(self.encoder)}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None):
        """Makes the model that `get_config` described."""
        encoder = keras.saving.deserialize_keras_object(config["encoder"], custom_objects=custom_objects)
        return cls(**{**config, "encoder": encoder})

    def checkpoint_variables(self) -> dict[str, keras.Variable]:
        """The variables under their names in a checkpoint."""
        variables = self.encoder.checkpoint_variables()
        of_encoder = {id(variable) for variable in self.encoder.weights}
        return {**variables, **{weight.path: weight for weight in self.weights if id(weight) not in of_encoder}}

    def from_encoded(self, encoded: Mapping[str, Any], inputs: Mapping[str, Any], training=False):
        """Gives what `call` does, from what the encoder has computed of the inputs before.

        Args:
          encoded: what `BertEncoder.call` returned.
          inputs: the inputs of `call` by name, none left out.
          training: whether to drop out in the head.
        """
        raise NotImplementedError

    @property
    def _architecture(self) -> BertConfig:
        return self.encoder.config

    @classmethod
    def from_checkpoint(cls, path, *, bert_config=None, dtype=None, **options):
        """Makes the model on a new encoder, with the weights that a path means.

        Args:
          path: see `BertEncoder.from_checkpoint`. Variables of the model's head that the checkpoint lacks are newly
            initialized, with a warning that names them.
          bert_config: see `BertEncoder.from_checkpoint`.
          dtype: the dtype policy of encoder and model.
          **options: see the constructor, `num_outputs=2`.

        Raises:
          UserError: see `BertEncoder.from_checkpoint`.
        """
        from official_bert.checkpoints.pretrained import load_pretrained, open_pretrained  # imports TensorFlow

        arrays, config = open_pretrained(path, bert_config)
        model = cls(create_encoder(config, EncoderOptions(dtype=dtype)), **options)
        load_pretrained(arrays, model.checkpoint_variables(), required=is_of_encoder)
        return model
