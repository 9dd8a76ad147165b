"""Conversion of a `run_sentence_encoder` model to the module files of a sentence-transformers folder."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from official_bert.config.sentence_modules import MODULES_FILE
from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.options import SentenceEncoderConfig

SCOPE = "sentence/"  # prefix of the variables after the encoder
_POOLINGS = ("cls", "max", "mean")  # the order in which sentence-transformers before version 6 concatenates them


class SentenceFolder(NamedTuple):
    """The files of the folder besides those of the encoder.

    Attributes:
      values: the contents of the JSON files, by path in the folder.
      arrays: the contents of the safetensors files, by path in the folder.
    """

    values: dict[str, Any]
    arrays: dict[str, dict[str, np.ndarray]]


def sentence_folder(
    config: SentenceEncoderConfig, arrays: Mapping[str, np.ndarray], hidden_size: int
) -> SentenceFolder:
    """Describe the modules of a trained sentence encoder.

    Args:
      config: the flags of the run.
      arrays: the arrays of its checkpoint.
      hidden_size: hidden size of the encoder.

    Raises:
      UserError: sentence-transformers does not support the pooling.
    """
    unknown = next((pooling for pooling in config.poolings if pooling not in _POOLINGS), None)
    if unknown is not None:
        raise UserError(f"sentence-transformers does not support pooling={unknown}, only {', '.join(_POOLINGS)}")
    if config.poolings == [name for name in _POOLINGS if name in config.poolings]:  # versions before 6 need this form
        modes = {f"pooling_mode_{name}{'_token' if name == 'cls' else '_tokens'}": name for name in _POOLINGS}
        pooling = {key: name in config.poolings for key, name in modes.items()}
    else:
        pooling = {"pooling_mode": config.poolings}
    settings = [("", {}), ("Pooling", {"word_embedding_dimension": hidden_size, **pooling})]
    weights = {}
    for number, layer in enumerate(config.layers_after):
        name = f"{SCOPE}dense_{number}"
        if layer is None:
            settings.append(("Normalize", {}))
            continue
        weight = arrays[f"{name}/kernel"].T  # [out, in]
        weights[f"{len(settings)}_Dense/model.safetensors"] = {
            "linear.weight": weight,
            "linear.bias": arrays[f"{name}/bias"],
        }
        sizes = {"in_features": weight.shape[1], "out_features": weight.shape[0], "bias": True}
        settings.append(("Dense", {**sizes, "activation_function": "torch.nn.modules.activation.Tanh"}))
    folders = [f"{number}_{kind}" if kind else "" for number, (kind, _) in enumerate(settings)]
    values = {
        MODULES_FILE: [
            {
                "idx": number,
                "name": str(number),
                "path": folder,
                "type": f"sentence_transformers.models.{kind or 'Transformer'}",
            }
            for number, (folder, (kind, _)) in enumerate(zip(folders, settings, strict=True))
        ],
        "sentence_bert_config.json": {"max_seq_length": config.max_seq_length, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": config.prompts,
            "default_prompt_name": "query" if config.query_prefix else None,
        },
    }
    values |= {f"{folder}/config.json": of for folder, (_, of) in zip(folders, settings, strict=True) if folder}
    return SentenceFolder(values, weights)
