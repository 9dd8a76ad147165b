"""The stack of transformer layers."""

import keras

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.attention import AttentionBlock, AttentionOutput
from official_bert.modeling.blocks import ACTIVATIONS, LAYER_NORM_NAME, Configured, ResidualOutput, dense
from official_bert.modeling.layout import PADDED, Layout
from official_bert.modeling.recomputation import call_recomputed


@keras.saving.register_keras_serializable(package="official_bert")
class Intermediate(Configured, keras.layers.Layer):
    """The wide half of the feed-forward block."""

    def __init__(self, config: BertConfig, *, name: str = "intermediate", **kwargs):
        """Creates the projection; for `**kwargs` see `keras.layers.Layer`."""
        super().__init__(config, name=name, **kwargs)
        self.dense = dense(
            config.intermediate_size,
            config.initializer_range,
            dtype=self.dtype_policy,
            activation=ACTIVATIONS[config.hidden_act],
        )

    def build(self, input_shape=None):
        """Creates the variables for vectors of this shape; by default they have the model's width."""
        self.dense.build((None, input_shape[-1] if input_shape else self.config.hidden_size))

    def compute_output_shape(self, input_shape):
        """The shape of x with I as its last dimension."""
        return (*input_shape[:-1], self.config.intermediate_size)

    def call(self, x):
        """Maps float [..., D] to float [..., I]."""
        return self.dense(x)


@keras.saving.register_keras_serializable(package="official_bert")
class TransformerLayer(Configured, keras.layers.Layer):
    """Attention and feed-forward, each with residual and normalization after it.

    Attributes:
      NORM_NAME: name of the last layer normalization.
    """

    NORM_NAME = LAYER_NORM_NAME

    def __init__(self, config: BertConfig, *, name: str = "layer_0", **kwargs):
        """Creates the parts; for `**kwargs` see `keras.layers.Layer`."""
        super().__init__(config, name=name, **kwargs)
        self.attention = AttentionBlock(config, dtype=self.dtype_policy)
        self.intermediate = Intermediate(config, dtype=self.dtype_policy)
        self.residual_output = ResidualOutput(
            config.intermediate_size,
            config.hidden_size,
            initializer_range=config.initializer_range,
            dropout=config.hidden_dropout_prob,
            norm_name=self.NORM_NAME,
            dtype=self.dtype_policy,
        )

    def build(self, input_shape=None):
        """Creates the variables of the parts."""
        hidden = (None, None, self.config.hidden_size)
        self.attention.build(hidden)
        self.intermediate.build(hidden)
        self.residual_output.build((None, None, self.config.intermediate_size))

    @property
    def output_shape(self):
        """The shape of the context, which stands for both outputs in `summary()`."""
        return (None, None, self.config.hidden_size)

    def compute_output_spec(self, x, bias=None, *, first_only=False, **options):
        """Symbolic outputs; see `call`."""
        return self.attention.compute_output_spec(x, bias, first_only=first_only)

    def call(self, x, bias=None, *, layout: Layout = PADDED, first_only=False, training=False):
        """Transforms sequences.

        Args:
          x: float [..., D].
          bias: float, added to the attention scores; None adds nothing.
          layout: the `Layout` of `x`.
          first_only: whether to transform only the first vector of each sequence, which attends to all.
          training: whether to drop out.

        Returns:
          An `AttentionOutput`: the layer's output and its attention probabilities.
        """
        attended, probabilities = self.attention(x, bias, layout=layout, first_only=first_only, training=training)
        output = self.residual_output(self.intermediate(attended), attended, training=training)
        return AttentionOutput(output, probabilities)


@keras.saving.register_keras_serializable(package="official_bert")
class TransformerStack(Configured, keras.layers.Layer):
    """All layers, one after the other."""

    def __init__(self, config: BertConfig, *, recompute_layers: bool = False, name: str = "encoder", **kwargs):
        """Creates the layers.

        Args:
          config: the architecture.
          recompute_layers: see `BertEncoder`.
          name: the layer's.
          **kwargs: see `keras.layers.Layer`.
        """
        super().__init__(config, name=name, **kwargs)
        self._recompute_layers = recompute_layers
        self.layers = self._make_layers()

    def _make_layers(self) -> list[TransformerLayer]:
        """The L layers, in the order in which they are computed."""
        return [
            TransformerLayer(self.config, name=f"layer_{index}", dtype=self.dtype_policy)
            for index in range(self.config.num_hidden_layers)
        ]

    def build(self, input_shape=None):
        """Creates the variables of the layers."""
        for layer in self.layers:
            layer.build((None, None, self.config.hidden_size))

    def project(self, embedded):
        """Gives what enters the first layer, float [B, S, D]: the embeddings themselves."""
        return embedded

    @property
    def num_heads(self) -> int:
        """Number of attention heads that the vectors of a `Layout` are split into."""
        return self.config.num_attention_heads

    @property
    def output_shape(self):
        """The shape of the last layer's output, which stands for all in `summary()`."""
        return (None, None, self.config.hidden_size)

    def compute_output_spec(self, x, bias=None, *, first_only=False, **options):
        """Symbolic outputs; see `call`."""
        *lower, last = self.layers
        return [
            *(layer.compute_output_spec(x) for layer in lower),
            last.compute_output_spec(x, first_only=first_only),
        ]

    def call(self, x, bias=None, *, layout: Layout = PADDED, first_only=False, training=False):
        """Transforms sequences.

        Args:
          x: float [..., D].
          bias: float, added to the attention scores; None adds nothing.
          layout: the `Layout` of `x`.
          first_only: whether the last layer is wanted of the first vector of each sequence alone.
          training: whether to drop out.

        Returns:
          A list of L `AttentionOutput`s, first layer first; in training with `recompute_layers` their probabilities
          are None.
        """
        outputs = []
        for number, layer in enumerate(self.layers, 1):
            is_last = number == len(self.layers)
            options = {"layout": layout, "first_only": first_only and is_last, "training": training}
            if training and self._recompute_layers:
                outputs.append(AttentionOutput(call_recomputed(layer, x, bias, **options), None))
            else:
                outputs.append(layer(x, bias, **options))
            x = outputs[-1].context
        return outputs
