"""What the encoder and the models on top of it have in common, and what a model needs of an encoder."""

import hashlib
from typing import Any, Protocol

import keras
import numpy as np

from official_bert.config.bert_config import BertConfig
from official_bert.config.tensor_names import ENCODER_INPUTS
from official_bert.modeling.layout import LayoutMaker


class Encoder(Protocol):
    """What models and tasks need of an encoder; beside this it is a `keras.Model`, all of whose variables exist.

    `BertEncoder` is one. To use another, pass it to the models; for the scripts see `encoders.create_encoder`.
    """

    config: BertConfig
    """Its hidden_size, num_layers, hidden_act and initializer_range shape the heads."""

    @property
    def word_embeddings(self) -> Any:
        """Variable [V, E]; what scores words shares it."""

    @property
    def max_length(self) -> int:
        """Maximum number of positions of a sequence."""

    def checkpoint_variables(self) -> dict[str, keras.Variable]:
        """The variables under their names in a checkpoint."""

    def call(self, input_ids, input_mask=None, segment_ids=None, training=False) -> dict[str, Any]:
        """Encodes: see `BertEncoder.call`, of whose results models read all but the attention probabilities."""

    def pool(self, input_ids, input_mask=None, segment_ids=None, training=False) -> Any:
        """Gives `pooled_output` alone, float [B, D]."""

    @property
    def transformer(self) -> Any:
        """The `TransformerStack`."""

    def replace_at_inference(self, stack: Any, layout_maker: LayoutMaker) -> None:
        """Lets something else compute the layers at inference: see `BertEncoder.replace_at_inference`."""


class TokenModel(keras.Model):
    """A Keras model of int32 tensors; it takes them as a dict, as a list or as arguments.

    Attributes:
      INPUTS: the names of the inputs, in the order of the arguments.
    """

    INPUTS: tuple[str, ...] = ENCODER_INPUTS

    def __init__(self, **kwargs):
        super().__init__(autocast=False, **kwargs)  # Keras would make int32 of all floats, features too

    def build_for_any_length(self) -> None:
        """Tells Keras the shapes of the inputs, for `summary()` and `export()`; none waits for a first call."""
        self.build(dict.fromkeys(self.INPUTS, (None, None)))

    def build(self, input_shape=None):
        """Has nothing to create: models create their variables when they are made.

        At a first call their paths would begin with the name of the model, and differ from those in checkpoints.
        """

    @property
    def input_dtype(self) -> str:
        """What TensorFlow's own saving makes of the inputs."""
        return "int32"

    def export(self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **kwargs):
        """Exports for inference; see `keras.Model.export`. By default the inputs are int32 [B, S] under their names."""
        if input_signature is None:
            input_signature = [
                {name: keras.InputSpec(dtype="int32", shape=(None, None), name=name) for name in self.INPUTS}
            ]
        super().export(filepath, format=format, verbose=verbose, input_signature=input_signature, **kwargs)

    def checkpoint_variables(self) -> dict[str, keras.Variable]:
        """The variables under their names in a checkpoint, whatever model they are part of."""
        raise NotImplementedError

    def save_checkpoint(self, path) -> str:
        """Writes the variables as a checkpoint of the reference's format, and `bert_config.json` beside it.

        Args:
          path: a folder, in which the checkpoint will be called `bert_model.ckpt`; or a prefix, whose last part holds
            `.ckpt`, as in `out/model.ckpt-3`. Folders are made.

        Returns:
          The prefix.

        Raises:
          UserError: beside it lies the `bert_config.json` of another model, or it cannot be written.
        """
        from official_bert.checkpoints.pretrained import save_pretrained  # imports TensorFlow

        return save_pretrained(path, self.checkpoint_variables(), self._architecture)

    @property
    def _architecture(self) -> BertConfig:
        """What goes into `bert_config.json`."""
        raise NotImplementedError


def model_fingerprint(model: keras.Model) -> str:
    """Hashes what decides a model's numbers: its weights, in their order, and a number format other than float32."""
    digest = hashlib.sha256()
    if model.compute_dtype != "float32":
        digest.update(model.compute_dtype.encode())
    for weight in model.weights:
        digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(weight)))
    return digest.hexdigest()
