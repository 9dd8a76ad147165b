"""Base class of the encoder and the models on top of it, and their input handling.

Inputs may be a dict of named tensors, a list of tensors in order, or separate arguments.
"""

import difflib
import functools
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from absl import logging
from keras import ops
from typing_extensions import Self

from official_bert.config.bert_config import ENCODER_INPUTS, LORA, TEXT_LENGTHS, BertConfig
from official_bert.support.errors import UserError, no_attribute

ENCODER_SCOPE = "bert"  # prefix of an encoder's variables in a checkpoint

# Names of our inputs in transformers, KerasHub and TensorFlow Hub, of options, and arguments without effect here.
_OTHER_NAMES = {
    **dict.fromkeys(("token_ids", "input_word_ids"), "input_ids"),
    **dict.fromkeys(("attention_mask", "padding_mask"), "input_mask"),
    **dict.fromkeys(("token_type_ids", "input_type_ids"), "segment_ids"),
    **dict.fromkeys(("num_labels", "num_classes"), "num_outputs"),
    **dict.fromkeys(("output_hidden_states", "output_attentions", "return_dict")),
}
_SIMILARITY = 0.8  # of a misspelt name, for `difflib`
_ADVICE = {  # for their attributes
    "save_pretrained": "save_checkpoint(folder) or, with the tokenizer, official_bert.save_model",
    "get_input_embeddings": "word_embeddings of the encoder",
    **dict.fromkeys(("bert", "backbone"), "encoder"),
    **dict.fromkeys(("train", "eval"), "fit to train; a call has no dropout unless training=True"),
}
# How TensorFlow reports ids beyond a table (on CPUs), and positions beyond it in a graph for any length.
_WRONG_ID = re.compile(r"indices\[[\d,]+\] = (-?\d+) is not in \[0, (\d+)\)")
_WRONG_LENGTH = re.compile(r"Incompatible shapes: \[\d+,(\d+),\d+\] vs\. \[(\d+),\d+\]")


def is_needed(name: str) -> bool:
    """Return True if a checkpoint must contain a variable: all but updates, and the pooler of some families."""
    return LORA not in name and name.startswith(f"{ENCODER_SCOPE}/") and not name.startswith(f"{ENCODER_SCOPE}/pooler/")


def unjoined_texts(inputs: Mapping[str, Any], length: int | None = None) -> dict[str, Any]:
    """Separate the K joined texts of examples: int32 [B, S] to [B, K, length], by default of the longest text."""
    lengths = inputs[TEXT_LENGTHS]  # [B, K]
    starts = ops.cumsum(lengths, axis=1) - lengths
    if length is None:
        length = ops.maximum(ops.max(lengths), 1)  # a replica's part of a batch may have only padding examples
    elif (size := inputs["input_ids"].shape[1]) is not None:
        length = min(length, size)
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


def _our_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the names of other libraries by ours."""
    named = {}
    for name, value in given.items():
        ours = _OTHER_NAMES.get(name, name)
        if ours in named:
            raise UserError(f"{ours} is given twice, also as {name}; leave one out")
        if ours:
            named[ours] = value
    return named


def _wrong_inputs(message: str, config: BertConfig) -> str | None:
    """Explain an error of TensorFlow about inputs; None for another error."""
    if match := _WRONG_ID.search(message):
        for name, field in (("input_ids", "vocab_size"), ("segment_ids", "type_vocab_size")):
            if (size := getattr(config, field)) == int(match[2]):
                return f"{name} contains {match[1]}, but the model has {field}={size}: ids from 0 to {size - 1}"
    match = _WRONG_LENGTH.search(message)
    return too_long(match[1], config) if match and match[2] == str(config.max_position_embeddings) else None


def too_long(length: int | str, config: BertConfig) -> str:
    of_model = f"the model has max_position_embeddings={config.max_position_embeddings}"
    return f"input_ids has {length} positions, but {of_model}; truncate the sequences to {config.max_length} positions"


def _guided(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of `keras.Model` report wrong inputs in one line; calls accept the names of other libraries."""

    @functools.wraps(method)
    def guided(self, *args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else None
        if isinstance(first[0] if isinstance(first, (list, tuple)) and first else first, str):
            raise UserError(f"{first!r:.80} is a text, but the model reads ids: model(tokenizer(texts))")
        if method is keras.Model.__call__:
            kwargs = _our_names(kwargs)
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            if (message := _wrong_inputs(str(error), self.config)) is None:
                raise
            raise UserError(message) from None

    return guided


class TokenModel(keras.Model):
    """A Keras model with int32 inputs, given as a dict, a list or separate arguments.

    Attributes:
      INPUTS: the names of the inputs, in the order of the arguments.
    """

    INPUTS: tuple[str, ...] = ENCODER_INPUTS
    config: BertConfig  # the architecture

    __call__, fit = _guided(keras.Model.__call__), _guided(keras.Model.fit)
    evaluate, predict = _guided(keras.Model.evaluate), _guided(keras.Model.predict)

    def __init__(self, **kwargs: Any):
        _require_float32()
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
        """Write the variables as a checkpoint in the reference's format, or under Hugging Face's names.

        Args:
          path: a folder, for a checkpoint named `bert_model.ckpt`, or a prefix whose last part contains
            `.ckpt`, such as `out/model.ckpt-3`; `bert_config.json` is written beside it. Or a path that ends in
            `model.safetensors`, which needs no TensorFlow; `config.json` is written beside it. Missing folders are
            created.

        Returns:
          The prefix, or the path of the weights.

        Raises:
          UserError: the config of another model is in the same folder, `transformers` has no class with these heads, or
            the files cannot be written.
        """
        from official_bert.checkpoints.loading import save_pretrained

        return save_pretrained(path, self.checkpoint_variables(), self.config)

    @classmethod
    def from_checkpoint(
        cls,
        path: str | os.PathLike[str],
        *,
        bert_config: BertConfig | str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Self:
        """Create the model with pretrained weights.

        Examples:
          >>> encoder = BertEncoder.from_checkpoint("uncased_L-12_H-768_A-12")
          >>> classifier = ClassificationModel.from_checkpoint("uncased_L-12_H-768_A-12", num_outputs=2)

        Args:
          path: a folder of a released BERT (`bert_config.json` and `bert_model.ckpt.*`) or ALBERT
            (`albert_config.json`), the output folder of a run or its `best`, a checkpoint prefix in one of these
            (`out/model.ckpt-1000`), or a Hugging Face folder (`config.json` and `model.safetensors`), also from its
            hub: `hf://owner/name`. Variables of the model's head that the checkpoint lacks are newly initialized, with
            a warning that names them; other heads are ignored.
          bert_config: the architecture, or its file, if it is not the `bert_config.json` beside the checkpoint.
          **options: see the constructor; `dtype` is that of the encoder, too.

        Raises:
          UserError: a file is missing or damaged, they do not match, or the model is too large for this
            machine.
        """
        from official_bert.checkpoints.loading import load, open_pretrained

        reader, config = open_pretrained(path, bert_config)
        model = cls._of_architecture(config, **_our_names(options))
        load(reader, model.checkpoint_variables(), required=is_needed).log(is_trained_next=False)
        return model

    from_pretrained = from_preset = from_checkpoint  # in transformers and KerasHub

    def __getattr__(self, name: str) -> Any:
        if name not in _ADVICE and hasattr(keras.Model, "__getattr__"):  # PyTorch keeps parameters there
            return super().__getattr__(name)
        raise no_attribute(self, name, _ADVICE)


def _require_float32() -> None:
    """Make float32 the default type of Keras: with another `floatx`, layers, losses and constants would change."""
    if (default := keras.config.floatx()) != "float32":
        keras.config.set_floatx("float32")
        if keras.config.dtype_policy().name == default:  # derived from it
            keras.config.set_dtype_policy("float32")
        logging.warning(
            "Keras's default type is set to float32, instead of the floatx=%s of keras.json: the models compute in "
            "float32 unless mixed_precision or their dtype chooses another type",
            default,
        )


def named_inputs(names: Sequence[str], first: Any, *others: Any) -> dict[str, Any]:
    """Map the arguments of a call to input names.

    >>> named_inputs(("input_ids", "input_mask"), [ids, mask], None)
    {'input_ids': ids, 'input_mask': mask}

    Args:
      first: the first input, or all of them: a dict, of which other keys are ignored, or a list or tuple in the order
        of `names`, from whose end inputs may be omitted.
    """
    if isinstance(first, Mapping):
        first = _our_names(first)
        values = [first.get(name) for name in names]
        for other in first.keys() - set(names):  # silently ignoring a mask would be the worst mistake
            if similar := difflib.get_close_matches(other, set(names) - first.keys(), cutoff=_SIMILARITY):
                raise UserError(f"the model has no input {other!r}; is it {similar[0]!r}?")
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
