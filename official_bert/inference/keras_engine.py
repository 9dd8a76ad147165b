"""The engine that computes a `TextModel` with Keras in this process, on TensorFlow or JAX."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from official_bert.data.batches import padded_lengths
from official_bert.data.schema import ENCODER_FIELDS
from official_bert.serving.engine_model import Engine
from official_bert.serving.signatures import Arrays
from official_bert.serving.text_model import Tensors, TextModel


def open_keras_engine(model: TextModel) -> Engine:
    return (TensorFlowEngine if keras.backend.backend() == "tensorflow" else JaxEngine)(model)


class TensorFlowEngine(Engine):
    """A graph for ids of any shape."""

    def __init__(self, model: TextModel):
        import tensorflow as tf

        smallest = {field.name: np.zeros([1, 1], np.int32) for field in ENCODER_FIELDS}
        inputs = model.prepared(smallest).items()
        signature = [{name: tf.TensorSpec([None] * values.ndim, values.dtype) for name, values in inputs}]
        self._compute = tf.function(model.numbers, input_signature=signature, autograph=False)
        self._prepared = model.prepared

    def __call__(self, ids: Arrays) -> Arrays:
        return {name: values.numpy() for name, values in self._compute(dict(self._prepared(ids))).items()}


class JaxEngine(Engine):
    """A function that is compiled for few shapes."""

    def __init__(self, model: TextModel):
        self._model = model
        specials = model.tokenizer.specials
        self._compute = jax_function(model.numbers, model.variables_of_model, model.most_positions, specials.pad_id)

    def most_rows(self, number: int) -> int:
        """Return a power of two, to which rows are filled up."""
        return 1 << (number.bit_length() - 1)

    def __call__(self, ids: Arrays) -> Arrays:
        found, length = self._compute(self._model.prepared(ids)), ids["input_ids"].shape[1]
        cut = self._model.per_position
        return {name: values[:, :length] if name in cut else values for name, values in found.items()}


def jax_function(
    compute: Callable[[Tensors], Any], variables: Sequence[keras.Variable], most_positions: int, pad_id: int = 0
) -> Callable[[Arrays], Any]:
    """Compile a function of ids and the like, [B, S] and [B, P], which calls models with these variables.

    Rows and positions are filled up to a few numbers of them, so that few shapes are compiled; the results, [B, ...],
    have no rows for the former, but values for further positions.
    """
    import jax

    lengths = padded_lengths(most_positions)

    def on_arrays(values: Sequence[Any], inputs: Tensors) -> Any:
        with keras.StatelessScope(zip(variables, values, strict=True)):
            return compute(inputs)

    compiled = jax.jit(on_arrays)

    def padded(name: str, values: np.ndarray) -> np.ndarray:
        num_rows, length = values.shape
        missing = (1 << (num_rows - 1).bit_length()) - num_rows
        width = next((size for size in lengths if size >= length), length)
        filler = pad_id if name == "input_ids" else 0
        return np.pad(values, [(0, missing), (0, width - length)], constant_values=filler)

    def call(inputs: Arrays) -> Any:
        num_rows = len(inputs["input_ids"])
        arrays = {name: padded(name, values) for name, values in inputs.items()}
        found = compiled([variable.value for variable in variables], arrays)
        return jax.tree.map(lambda values: np.asarray(values)[:num_rows], found)

    return call
