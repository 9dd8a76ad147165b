"""The keys of a Hugging Face `config.json`, in those of a `bert_config.json`."""

from collections.abc import Collection
from typing import Any

from official_bert.support.errors import UserError

# Theirs to ours. Of two names for one function the last is written: PyTorch computes it in one step.
ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
# What our encoder is and theirs may be otherwise; also what a missing key means.
FIXED = {
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
# Of each model type, what a missing key means there, where it does not mean the same here.
BERT, ALBERT = "bert", "albert"
_DEFAULTS = {
    BERT: {"vocab_size": 30522, "type_vocab_size": 2, "hidden_act": "gelu"},
    ALBERT: {"vocab_size": 30000, "num_hidden_groups": 1, "hidden_act": "gelu_new"},
}
_ALBERT_KEYS = ("embedding_size", "num_hidden_groups", "inner_group_num")
_THEIRS = ("model_type", "architectures", "transformers_version")  # keys that no bert_config.json has


def is_hf(values: dict[str, Any], path: str) -> bool:
    """Tells whether a file with these keys is of Hugging Face.

    Raises:
      UserError: it is of Keras.
    """
    if "class_name" in values:
        raise UserError(
            f"{path} describes a Keras model, {values['class_name']!s:.40}, as KerasHub presets do, and is not read; "
            "give the bert_config.json of the same model's first release, or the config.json of its Hugging Face folder"
        )
    return path.endswith("/config.json") or path == "config.json" or any(key in values for key in _THEIRS)


def from_hf(values: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Translates the keys; those that have nothing to do with the architecture are left out.

    Args:
      values: what the file holds.
      known: the keys of a `bert_config.json`.

    Returns:
      Keys and values of a `bert_config.json`.

    Raises:
      UserError: it asks for something that our encoder does not compute.
    """
    model_type = values.get("model_type", BERT)
    if model_type not in tuple(_DEFAULTS):
        raise UserError(
            f"model_type is {model_type!r:.80}; only {' and '.join(map(repr, _DEFAULTS))} are supported, so the model "
            "cannot be converted"
        )
    for key, ours in FIXED.items():
        if values.get(key, ours) != ours:
            raise UserError(
                f"{key} is {values[key]!r:.80}; only {ours!r} is supported, so the model cannot be converted"
            )
    values = {**_DEFAULTS[model_type], **values}
    activation = values["hidden_act"]
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise UserError(f"hidden_act is {activation!r:.80}; only {', '.join(ACTIVATIONS)} can be converted")
    names = set(known) & set(values)
    if model_type == BERT:  # in whose files keys of ALBERT mean nothing
        names -= set(_ALBERT_KEYS)
    return {name: values[name] for name in names} | {"hidden_act": ACTIVATIONS[activation]}
