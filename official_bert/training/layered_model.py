"""A model on an encoder that shows what its layers compute, for a student to be compared with its teacher."""

from typing import Any, NamedTuple

import keras

from official_bert.modeling.blocks import dense
from official_bert.modeling.heads import EncoderModel
from official_bert.modeling.token_model import complete_inputs


class OutputsAndLayers(NamedTuple):
    """The outputs of a `LayeredModel`.

    Attributes:
      outputs: what the model alone would return.
      layers: L + 1 float [B, S, D] or [B, S, projected_size]: the embeddings, and each layer of the encoder.
    """

    outputs: Any
    layers: list[Any]


class LayeredModel(keras.Model):
    """A model and the layers of its encoder, from the same computation.

    Its variables are those of the model, and of two projections if it has them: `distillation/embeddings` and
    `distillation/layers`.

    Attributes:
      model: the model.
      encoder: the model's.
    Source: the projections are those of Jiao et al., "TinyBERT" (2020), equations 8 and 9.
    """

    def __init__(self, model: EncoderModel, *, projected_size: int | None = None):
        """Wrap a model.

        Args:
          model: reads sequences, not windows.
          projected_size: width that trainable projections without bias give the layers; None for none.
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
        """Compute both; the inputs are those of the model, as a dict by name."""
        named = {name: inputs[name] for name in self.model.INPUTS}
        complete = complete_inputs(named)
        named.update(complete._asdict())
        encoded = self.encoder(complete, training=training)
        layers = [encoded["embedding_output"], *encoded["encoder_layers"]]
        if self.projections:
            of_embeddings, of_layers = self.projections
            layers = [of_embeddings(layers[0]), *map(of_layers, layers[1:])]
        return OutputsAndLayers(self.model.from_encoded(encoded, named, training=training), layers)
