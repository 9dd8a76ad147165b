"""Building blocks of the model."""

import functools
import math
import operator
from typing import Any

import keras
from keras import ops

from official_bert.config.bert_config import BertConfig

LAYER_NORM_NAME = "LayerNorm"
NARROW_TYPES = ("bfloat16", "float16")


def gelu(x):
    """Gaussian error linear unit, tanh approximation; used by the released models."""
    return keras.activations.gelu(x, approximate=True)


def gelu_erf(x):
    """Gaussian error linear unit, exact form; used by most later BERT models.

    Keras's own form uses the complement of the error function, which TensorFlow computes one number at a time in
    bfloat16. TensorFlow fuses this form with the product before it, and ONNX has its operations.
    """
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


# The names are those of `config.bert_config.ACTIVATION_NAMES`.
ACTIVATIONS = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "relu": keras.activations.relu,
    "tanh": keras.activations.tanh,
    "linear": keras.activations.linear,
}


class EncoderLayer(keras.layers.Layer):
    """Base class of an encoder's layers; they are saved and restored by the encoder that contains them."""

    def __init__(self, config: BertConfig, **kwargs: Any):
        super().__init__(**kwargs)
        self.config = config

    @property
    def output_shape(self):
        """The shape shown by `summary()`."""
        return (None, None, self.config.hidden_size)


def initializer(initializer_range: float) -> keras.Initializer:
    """Return a truncated normal with this standard deviation; each call gets its own seed."""
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


def dense(
    width: int,
    initializer_range: float,
    *,
    dtype: keras.DTypePolicy,
    activation=None,
    use_bias: bool = True,
    name: str = "dense",
) -> keras.layers.Dense:
    return keras.layers.Dense(
        width,
        activation=activation,
        use_bias=use_bias,
        kernel_initializer=initializer(initializer_range),
        dtype=dtype,
        name=name,
    )


def normalize(x, gamma, beta, epsilon: float):
    """Normalize float [..., D] in float32; `keras.ops.layer_normalization` needs more computation."""
    x, gamma, beta = (ops.cast(tensor, "float32") for tensor in (x, gamma, beta))
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    return centered * ops.rsqrt(variance + epsilon) * gamma + beta


class LayerNorm(keras.layers.Layer):
    """Layer normalization, computed in float32 under every dtype policy; see `normalize`."""

    def __init__(self, *, epsilon: float, name: str = LAYER_NORM_NAME, **kwargs):
        """Initialize; checkpoints and weight decay depend on the default name."""
        super().__init__(name=name, **kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        width = (input_shape[-1],)
        # variable [D], the scale
        self.gamma = self.add_weight(name="gamma", shape=width, initializer="ones", autocast=False)
        # variable [D], the shift
        self.beta = self.add_weight(name="beta", shape=width, initializer="zeros", autocast=False)

    def call(self, x):
        """Normalize float [..., D]."""
        return ops.cast(normalize(x, self.gamma, self.beta, self.epsilon), self.compute_dtype)


class Dropout(keras.layers.Dropout):
    """Keras's dropout, with an accurate rate in narrow dtypes too.

    TensorFlow's random bfloat16 numbers are multiples of 1/128, which turns a rate of 0.1 into 13/128. Here the rate is
    exact to 1/65536, and drawing takes half as long.
    """

    def call(self, inputs, training=False):
        """Drop out; see `keras.layers.Dropout`."""
        if not training or not self.rate or self.compute_dtype not in NARROW_TYPES:
            return super().call(inputs, training=training)
        shape = ops.shape(inputs)
        size = functools.reduce(operator.mul, shape)
        pairs = keras.random.randint(((size + 1) // 2, 1), -(2**31), 2**31 - 1, dtype="int32", seed=self.seed_generator)
        bits = ops.reshape(ops.reshape(ops.view(pairs, "int16"), (-1,))[:size], shape)
        return ops.where(bits >= round(self.rate * 2**16) - 2**15, inputs * (1 / (1 - self.rate)), 0)


class ResidualOutput(EncoderLayer):
    """Projects back to the hidden width, applies dropout, adds the residual and normalizes."""

    def __init__(
        self, config: BertConfig, input_width: int, *, norm_name: str = LAYER_NORM_NAME, name: str = "output", **kwargs
    ):
        super().__init__(config, name=name, **kwargs)
        self._input_width = input_width
        self.dense = dense(config.hidden_size, config.initializer_range, dtype=self.dtype_policy)
        self.dropout = Dropout(config.hidden_dropout_prob, dtype=self.dtype_policy)
        self.layer_norm = LayerNorm(epsilon=config.layer_norm_eps, dtype=self.dtype_policy, name=norm_name)

    def build(self, input_shape=None):
        self.dense.build((None, self._input_width))
        self.layer_norm.build((None, self.config.hidden_size))

    def call(self, x, residual, training=False):
        """Map x, float [..., input_width], and the block's input, float [..., D], to its output, float [..., D]."""
        return self.layer_norm(residual + self.dropout(self.dense(x), training=training))
