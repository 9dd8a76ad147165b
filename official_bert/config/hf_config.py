"""The `config.json` of a Hugging Face BERT or ALBERT, read as a `BertConfig` and made from one."""

import dataclasses
from typing import Any

from official_bert.config.bert_config import ALBERT_KEYS, BertConfig
from official_bert.support import text_files
from official_bert.support.errors import UserError

# Theirs to ours. Of two names for one function the last is written: PyTorch computes it in one step.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
# What our encoder is and theirs may be otherwise; also what a missing key means.
_FIXED = {
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
# Of each model type, what a missing key means there, where it does not mean the same here.
_BERT, _ALBERT = "bert", "albert"
_DEFAULTS = {
    _BERT: {"vocab_size": 30522, "type_vocab_size": 2, "hidden_act": "gelu"},
    _ALBERT: {"vocab_size": 30000, "num_hidden_groups": 1, "hidden_act": "gelu_new"},
}


def read_hf_config(path: str) -> BertConfig:
    """Reads a `config.json`; keys that have nothing to do with the architecture are left out.

    Raises:
      UserError: the file is missing or malformed, or asks for something that our encoder does not compute.
    """
    values = text_files.read_json(path, "model config")
    try:
        return _from_hf(values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _from_hf(values: dict[str, Any]) -> BertConfig:
    model_type = values.get("model_type", _BERT)
    if model_type not in tuple(_DEFAULTS):
        raise UserError(
            f"model_type is {model_type!r:.80}; only {' and '.join(map(repr, _DEFAULTS))} are supported, so the model "
            "cannot be converted"
        )
    for key, ours in _FIXED.items():
        if values.get(key, ours) != ours:
            raise UserError(
                f"{key} is {values[key]!r:.80}; only {ours!r} is supported, so the model cannot be converted"
            )
    values = {**_DEFAULTS[model_type], **values}
    activation = values["hidden_act"]
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise UserError(f"hidden_act is {activation!r:.80}; only {', '.join(_ACTIVATIONS)} can be converted")
    names = {field.name for field in dataclasses.fields(BertConfig)} & set(values)
    if model_type == _BERT:  # in whose files keys of ALBERT mean nothing
        names -= set(ALBERT_KEYS)
    return BertConfig.from_dict({name: values[name] for name in names} | {"hidden_act": _ACTIVATIONS[activation]})


def make_hf_config(config: BertConfig, architecture: str, num_classes: int | None) -> dict[str, Any]:
    """Makes the content of a `config.json`.

    Args:
      config: ours.
      architecture: the class in `transformers` that the weights belong to.
      num_classes: classes of a classifier, None if there is none.

    Returns:
      Keys and values.

    Raises:
      UserError: Hugging Face's BERT cannot compute it.
    """
    if config.is_left_to_right:
        raise UserError("attention_direction is left_to_right, which Hugging Face's BERT has no equal of")
    activations = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
    model_type = _ALBERT if config.is_albert else _BERT
    values = {"architectures": [architecture], "model_type": model_type, **_FIXED, **config.to_dict()}
    values["hidden_act"] = activations[config.hidden_act]
    if num_classes is not None:
        labels = [f"LABEL_{index}" for index in range(num_classes)]
        values["id2label"] = {str(index): label for index, label in enumerate(labels)}
        values["label2id"] = {label: index for index, label in enumerate(labels)}
    return values
