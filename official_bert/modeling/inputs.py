"""What a model may be called with: a dict of named tensors, a list of them in order, or one argument for each."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from official_bert.support.errors import UserError

# What other libraries call our inputs; a mask that is passed over in silence would be the worst of mistakes.
_OTHER_NAMES = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}


def named_inputs(names: Sequence[str], first: Any, *others: Any) -> dict[str, Any]:
    """Gives the arguments of a call their names.

    >>> named_inputs(("input_ids", "input_mask"), [ids, mask], None)
    {'input_ids': ids, 'input_mask': mask}

    Args:
      names: the model's inputs, in the order of its arguments.
      first: the first input, or all of them: a dict, of which other keys are left alone, or a list or tuple in the
        order of `names`, whose end may be missing.
      *others: the other inputs, None where not given.

    Returns:
      Name to tensor; None for an input that was not given.

    Raises:
      UserError: an input is given twice, under a name of another library, or not at all though it is the first.
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
        raise UserError(f"{twice} is given beside the dict or list that holds all inputs; put it there")
    if values[0] is None:
        raise UserError(f"the model was called without {names[0]}; it was given {', '.join(map(str, first))}")
    return dict(zip(names, values, strict=True))


def completed(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of an encoder with those that were left out: all positions real, all of the first segment.

    Args:
      inputs: input_ids, and input_mask and segment_ids or None, each [B, S].

    Returns:
      The three as int32 [B, S].
    """
    input_ids = _int32(inputs["input_ids"])
    mask, segments = inputs["input_mask"], inputs["segment_ids"]
    return {
        "input_ids": input_ids,
        "input_mask": ops.ones_like(input_ids) if mask is None else _int32(mask),
        "segment_ids": ops.zeros_like(input_ids) if segments is None else _int32(segments),
    }


def refuse_within_sequential(encoder: keras.Model) -> None:
    """Raises if `keras.Sequential` is about to hand all results of an encoder to a layer that takes one tensor.

    That layer's own message would list nine tensors without a name. Keras tells an encoder nothing of the model that it
    becomes part of, so the callers are looked through; only symbolic calls, of which there are few, come here.

    Raises:
      UserError: the message says what to write instead.
    """
    frame = inspect.currentframe()
    while frame := frame.f_back:
        model = frame.f_locals.get("self")
        if isinstance(model, keras.Sequential) and encoder in model.layers[:-1]:
            follower = model.layers[model.layers.index(encoder) + 1]
            if follower.input_spec is not None:
                name = type(follower).__name__
                raise UserError(
                    f"keras.Sequential gives {name} all that the encoder gives, a dict, but it takes one tensor; write "
                    f'{name}(...)(encoder(input_ids)["pooled_output"]) in a keras.Model(inputs, outputs), or use '
                    "official_bert.ClassificationModel(encoder, num_outputs=...)"
                )


def _rank(value: Any) -> int:
    """Dimensions of a tensor or of nested lists."""
    return len(value.shape) if hasattr(value, "shape") else np.ndim(value)


def _int32(tensor: Any) -> Any:
    return ops.cast(ops.convert_to_tensor(tensor), "int32")
