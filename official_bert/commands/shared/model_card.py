"""Files of a Hugging Face folder beside the weights: the model card, and those of sentence-transformers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import official_bert
from official_bert.config.bert_config import BertConfig
from official_bert.config.model_formats import MODULES_FILE
from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.options import SentenceEncoderConfig
from official_bert.tokenization import Tokenizer

# `pipeline_tag` on the Hugging Face Hub for models with each head.
_PURPOSES = {
    "classifier": "text-classification",
    "tagger": "token-classification",
    "multiple-choice head": "multiple-choice",
    "span head": "question-answering",
    "masked-LM head": "fill-mask",
}
SCOPE = "sentence/"  # prefix of the variables after the encoder
_POOLINGS = ("cls", "max", "mean")  # the order in which sentence-transformers before version 6 concatenates them


def model_card(
    name: str,
    architecture: str,
    bert_config: BertConfig,
    tokenizer: Tokenizer,
    *,
    labels: Sequence[str] = (),
    training: Mapping[str, str],
) -> str:
    """Write the README."""
    heads = bert_config.family.hugging_face.heads_of_class(architecture)
    purpose = next((_PURPOSES[head] for head in heads if head in _PURPOSES), "feature-extraction")
    vocabulary = tokenizer.vocabulary
    rows = {
        "class in transformers": architecture,
        "family": bert_config.family_name,
        "parts": ", ".join(("encoder", *heads)),
        "layers": bert_config.num_layers,
        "hidden size": bert_config.hidden_size,
        "attention heads": bert_config.num_attention_heads,
        "inner size": bert_config.intermediate_size,
        "positions": bert_config.max_length,
        "parameters of the encoder": f"{bert_config.num_parameters:,}",
        "vocabulary": f"{vocabulary.size:,} entries, {vocabulary.file_name}",
        "text": ", ".join(f"{name}: {str(value).lower()}" for name, value in tokenizer.settings.changed.items()),
        **({"labels": ", ".join(f"`{label}`" for label in labels)} if labels else {}),
        **training,
    }
    table = "\n".join(f"| {key} | {_cell(value)} |" for key, value in rows.items())
    return f"""---
library_name: transformers
pipeline_tag: {purpose}
---

# {name}

| | |
|---|---|
{table}

Written by official_bert {official_bert.__version__} (`official-bert convert_hf_checkpoint --to_hf`).

This card was generated from the model's files. Before you publish the model, add its license, training data, evaluation
scores and limitations.
"""


def _cell(value: object) -> str:
    """Format a value as a Markdown table cell."""
    return " ".join(str(value).split()).replace("|", r"\|")


class SentenceFolder(NamedTuple):
    """The files of the folder besides those of the encoder."""

    values: dict[str, Any]  # the contents of the JSON files, by path in the folder
    arrays: dict[str, dict[str, np.ndarray]]  # the contents of the safetensors files, by path in the folder


def sentence_folder(
    config: SentenceEncoderConfig, arrays: Mapping[str, np.ndarray], hidden_size: int
) -> SentenceFolder:
    """Describe the modules of a trained sentence encoder."""
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
