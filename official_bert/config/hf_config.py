"""The `config.json` of a Hugging Face BERT or ALBERT, read as a `BertConfig` and made from one."""

import dataclasses
from typing import Any

from official_bert.config.bert_config import BertConfig
from official_bert.config.hf_keys import ACTIVATIONS, ALBERT, BERT, FIXED, from_hf, is_hf
from official_bert.support import text_files
from official_bert.support.errors import UserError


def read_hf_config(path: str) -> BertConfig:
    """Reads a `config.json`; keys that have nothing to do with the architecture are left out.

    Raises:
      UserError: the file is missing or malformed, or asks for something that our encoder does not compute.
    """
    values = text_files.read_json(path, "model config")
    is_hf(values, path)
    try:
        return BertConfig.from_dict(from_hf(values, [field.name for field in dataclasses.fields(BertConfig)]))
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


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
    activations = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    model_type = ALBERT if config.is_albert else BERT
    values = {"architectures": [architecture], "model_type": model_type, **FIXED, **config.to_dict()}
    values["hidden_act"] = activations[config.hidden_act]
    if num_classes is not None:
        labels = [f"LABEL_{index}" for index in range(num_classes)]
        values["id2label"] = {str(index): label for index, label in enumerate(labels)}
        values["label2id"] = {label: index for index, label in enumerate(labels)}
    return values
