"""Small models and a few steps of Keras's `fit`, for the tests of every optimizer."""

import keras
import numpy as np

# The fused kernel computes 1 - 0.999 in float32, which differs from 0.001 by 1.3e-5.
TOLERANCE = 5e-5


def variable(values, *scopes, name):
    if scopes:
        with keras.name_scope(scopes[0]):
            return variable(values, *scopes[1:], name=name)
    return keras.Variable(np.array(values, np.float32), name=name)


def make_variables():
    return [
        variable([[1.0, -2.0], [0.5, 3.0]], "layer", "dense", name="kernel"),
        variable([1.0, -2.0], "layer", "dense", name="bias"),
        variable([1.0, 4.0], "layer", "LayerNorm", name="gamma"),
    ]


@keras.saving.register_keras_serializable(package="tests")
class Rates(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return keras.ops.take(keras.ops.convert_to_tensor([0.1, 0.01, 0.3]), step)


def small_model():
    keras.utils.set_random_seed(1)
    inputs = keras.Input([3])
    hidden = keras.layers.LayerNormalization(name="LayerNorm")(keras.layers.Dense(4)(inputs))
    return keras.Model(inputs, keras.layers.Dense(1)(hidden))


def small_batches():
    rng = np.random.default_rng(1)
    numbers = rng.normal(size=[24, 3]).astype(np.float32)
    # Large, so that clipping takes effect.
    return numbers, 100 * numbers.sum(axis=1, keepdims=True)


def fitted(model, epochs=1, optimizer=None):
    if optimizer is not None:
        model.compile(optimizer=optimizer, loss="mse", jit_compile=False)
    model.fit(*small_batches(), batch_size=4, epochs=epochs, shuffle=False, verbose=0)
    return model


def assert_same_weights(model, expected, tolerance):
    for ours, theirs in zip(model.trainable_variables, expected.trainable_variables, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=tolerance, err_msg=ours.path)
