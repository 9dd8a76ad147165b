"""Small pieces that the whole model is made of."""

import keras

LAYER_NORM_EPSILON = 1e-12  # reference value; Keras's default of 1e-3 misses the golden activations


def gelu(x):
    """Gaussian error linear unit in its tanh form, which the released models were trained with."""
    return keras.activations.gelu(x, approximate=True)


def gelu_erf(x):
    """Gaussian error linear unit in its exact form, which most later BERT models use."""
    return keras.activations.gelu(x, approximate=False)


# The names are those of `config.bert_config.ACTIVATION_NAMES`.
ACTIVATIONS = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "relu": keras.activations.relu,
    "tanh": keras.activations.tanh,
    "linear": keras.activations.linear,
}


def initializer(initializer_range: float) -> keras.Initializer:
    """Truncated normal with the given standard deviation; each call draws other numbers."""
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


def dense(width: int, initializer_range: float, *, activation=None, name: str = "dense") -> keras.layers.Dense:
    """A linear layer with the model's initialization."""
    return keras.layers.Dense(
        width, activation=activation, kernel_initializer=initializer(initializer_range), name=name
    )


def layer_norm() -> keras.layers.LayerNormalization:
    """Layer normalization under the name that checkpoints and weight decay know."""
    return keras.layers.LayerNormalization(epsilon=LAYER_NORM_EPSILON, name="LayerNorm")


class ResidualOutput(keras.layers.Layer):
    """Projects back to the hidden width, drops out, adds the input of the block and normalizes."""

    def __init__(self, input_width: int, hidden_size: int, *, initializer_range: float, dropout: float):
        super().__init__(name="output")
        self._input_width, self._hidden_size = input_width, hidden_size
        self.dense = dense(hidden_size, initializer_range)
        self.dropout = keras.layers.Dropout(dropout)
        self.layer_norm = layer_norm()

    def build(self):
        """Creates the variables; their shapes need no input."""
        self.dense.build((None, self._input_width))
        self.layer_norm.build((None, self._hidden_size))

    def call(self, x, residual, training=False):
        """Computes the output of a block.

        Args:
          x: float [..., input_width].
          residual: float [..., D], the input of the block.
          training: whether to drop out.

        Returns:
          float [..., D].
        """
        return self.layer_norm(residual + self.dropout(self.dense(x), training=training))
