"""A model that also returns its encoder's layers, to compare a student with its teacher."""

from typing import Any, NamedTuple

import keras

from official_bert.modeling.blocks import dense
from official_bert.modeling.heads import EncoderModel
from official_bert.modeling.token_model import complete_inputs


class OutputsAndLayers(NamedTuple):
    """Outputs of a `LayeredModel`.

    Attributes:
      outputs: the outputs of the wrapped model.
      layers: L + 1 float [B, S, D] or [B, S, projected_size]: the embeddings and each encoder layer.
    """

    outputs: Any
    layers: list[Any]


class LayeredModel(keras.Model):
    """A model that also returns its encoder's layers, in one forward pass.

    Its variables are those of the model and, if enabled, of two projections: `distillation/embeddings` and
    `distillation/layers`.

    Attributes:
      model: the wrapped model.
      encoder: its encoder.
    Source: the projections are those of Jiao et al., "TinyBERT" (2020), equations 8 and 9.
    """

    def __init__(self, model: EncoderModel, *, projected_size: int | None = None):
        """Wrap a model.

        Args:
          model: a model that reads sequences, not windows.
          projected_size: output width of trainable projections of the layers, without bias; None for no projections.
        """
        super().__init__(autocast=False, dtype=model.dtype_policy, name="layered")
        self.model = model
        self.projections = []
        if projected_size is not None:
            config = model.encoder.config
            with keras.name_scope("distillation"):
                for name in ("embeddings", "layers"):
                    projection = dense(
                        projected_size, config.initializer_range, dtype=self.dtype_policy, use_bias=False, name=name
                    )
                    projection.build((None, None, config.hidden_size))
                    self.projections.append(projection)
        self.built = True

    @property
    def encoder(self):
        """The model's encoder."""
        return self.model.encoder

    def call(self, inputs, training=False) -> OutputsAndLayers:
        """Compute outputs and layers; the inputs are those of the model, as a dict by name."""
        named = {name: inputs[name] for name in self.model.INPUTS}
        complete = complete_inputs(named)
        named.update(complete._asdict())
        encoded = self.encoder(complete, training=training)
        layers = [encoded["embedding_output"], *encoded["encoder_layers"]]
        if self.projections:
            of_embeddings, of_layers = self.projections
            layers = [of_embeddings(layers[0]), *map(of_layers, layers[1:])]
        return OutputsAndLayers(self.model.from_encoded(encoded, named, training=training), layers)
