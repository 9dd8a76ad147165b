"""Base class of the encoder and the models on top of it, and their input handling.

Inputs may be a dict of named tensors, a list of tensors in order, or separate arguments.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from official_bert.config.bert_config import ENCODER_INPUTS, TEXT_LENGTHS, BertConfig
from official_bert.support.errors import UserError

# Names of our inputs in other libraries; silently ignoring a mask would be the worst mistake.
_OTHER_NAMES = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}


def unjoined_texts(inputs: Mapping[str, Any], length: int | None = None) -> dict[str, Any]:
    """Separate the K joined texts of examples: int32 [B, S] to [B, K, length], by default of the longest text."""
    lengths = inputs[TEXT_LENGTHS]  # [B, K]
    starts = ops.cumsum(lengths, axis=1) - lengths
    if length is None:
        length = ops.maximum(ops.max(lengths), 1)  # a replica's part of a batch may have only padding examples
    offsets = ops.arange(length, dtype="int32")
    is_real = offsets < ops.expand_dims(lengths, -1)  # [B, K, length]
    places = ops.where(is_real, ops.expand_dims(starts, -1) + offsets, 0)
    flat = ops.reshape(places, (ops.shape(places)[0], -1))  # [B, K * length]
    mask = ops.cast(is_real, "int32")
    return {
        name: ops.reshape(ops.take_along_axis(inputs[name], flat, axis=1), ops.shape(places)) * mask
        for name in ENCODER_INPUTS
    }


class EncoderInputs(NamedTuple):
    """Complete inputs of an encoder; each is int32 [B, S]. A model completes its inputs once and passes these on."""

    input_ids: Any
    input_mask: Any
    segment_ids: Any


class TokenModel(keras.Model):
    """A Keras model with int32 inputs, given as a dict, a list or separate arguments.

    Attributes:
      INPUTS: the names of the inputs, in the order of the arguments.
    """

    INPUTS: tuple[str, ...] = ENCODER_INPUTS

    def __init__(self, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)  # Keras would cast all floats, including features, to int32

    def build_for_any_length(self) -> None:
        """Set the input shapes for `summary()` and `export()`, so that these work before a first call."""
        self.build(dict.fromkeys(self.INPUTS, (None, None)))

    def build(self, input_shape: Any = None) -> None:
        """Do nothing: variables made at a first call would have paths that begin with the model's name."""

    @property
    def input_dtype(self) -> str:
        """Return the input dtype that TensorFlow's SavedModel export uses."""
        return "int32"

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: Any = None,
        **kwargs: Any,
    ) -> None:
        """Export for inference; see `keras.Model.export`. By default the inputs are int32 [B, S], by name."""
        if input_signature is None:
            input_signature = [
                {name: keras.InputSpec(dtype="int32", shape=(None, None), name=name) for name in self.INPUTS}
            ]
        super().export(filepath, format=format, verbose=verbose, input_signature=input_signature, **kwargs)

    def checkpoint_variables(self) -> dict[str, keras.Variable]:
        """Return the variables by their names in a checkpoint, which do not depend on the enclosing model."""
        raise NotImplementedError

    def save_checkpoint(self, path: str | os.PathLike[str]) -> str:
        """Write the variables as a checkpoint in the reference's format, with `bert_config.json` beside it.

        Args:
          path: a folder, for a checkpoint named `bert_model.ckpt`, or a prefix whose last part contains
            `.ckpt`, such as `out/model.ckpt-3`. Missing folders are created.

        Returns:
          The prefix.

        Raises:
          UserError: the `bert_config.json` of another model is in the same folder, or the files cannot be written.
        """
        from official_bert.checkpoints.loading import save_pretrained  # imports TensorFlow

        return save_pretrained(path, self.checkpoint_variables(), self._architecture)

    @property
    def _architecture(self) -> BertConfig:
        """The contents of `bert_config.json`."""
        raise NotImplementedError


def named_inputs(names: Sequence[str], first: Any, *others: Any) -> dict[str, Any]:
    """Map the arguments of a call to input names.

    >>> named_inputs(("input_ids", "input_mask"), [ids, mask], None)
    {'input_ids': ids, 'input_mask': mask}

    Args:
      first: the first input, or all of them: a dict, of which other keys are ignored, or a list or tuple in the order
        of `names`, from whose end inputs may be omitted.
    """
    if isinstance(first, Mapping):
        wrong = next((name for name in first if name in _OTHER_NAMES), None)
        if wrong:
            raise UserError(f"the input {wrong!r} is called {_OTHER_NAMES[wrong]!r} here; rename it")
        values = [first.get(name) for name in names]
    elif isinstance(first, (list, tuple)) and first and _rank(first[0]) == 2:
        if len(first) > len(names):
            raise UserError(f"the model was given {len(first)} inputs; it has {', '.join(names)}")
        values = [*first, *[None] * (len(names) - len(first))]
    else:
        return dict(zip(names, (first, *others), strict=True))
    twice = next((name for name, other in zip(names[1:], others, strict=True) if other is not None), None)
    if twice:
        raise UserError(f"{twice} is given beside a dict or list of inputs; put it there")
    if values[0] is None:
        raise UserError(f"the model was called without {names[0]}; it was given {', '.join(map(str, first))}")
    return dict(zip(names, values, strict=True))


def complete_inputs(first: Any, *others: Any) -> EncoderInputs:
    """Return the inputs of an encoder with defaults: all positions real, all in the first segment."""
    if isinstance(first, EncoderInputs):
        return first
    ids, mask, segments = named_inputs(ENCODER_INPUTS, first, *(others or (None, None))).values()
    ids = _int32(ids)
    return EncoderInputs(
        ids,
        ops.ones_like(ids) if mask is None else _int32(mask),
        ops.zeros_like(ids) if segments is None else _int32(segments),
    )


def _rank(value: Any) -> int:
    """Return the number of dimensions of a tensor or of nested lists."""
    return len(value.shape) if hasattr(value, "shape") else np.ndim(value)


def _int32(tensor: Any) -> Any:
    return ops.cast(ops.convert_to_tensor(tensor), "int32")


def model_fingerprint(model: keras.Model) -> str:
    """Hash a model's weights, in order, and its compute dtype if not float32."""
    digest = hashlib.sha256()
    if model.compute_dtype != "float32":
        digest.update(model.compute_dtype.encode())
    for weight in model.weights:
        digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(weight)))
    return digest.hexdigest()
