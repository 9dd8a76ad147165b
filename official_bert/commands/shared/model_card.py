"""README of a Hugging Face folder: a model card generated from the model's files."""

from collections.abc import Mapping, Sequence

import official_bert
from official_bert.config.bert_config import BertConfig
from official_bert.tokenization import Tokenizer

# `pipeline_tag` on the Hugging Face Hub for models with each head.
_PURPOSES = {
    "classifier": "text-classification",
    "tagger": "token-classification",
    "multiple-choice head": "multiple-choice",
    "span head": "question-answering",
    "masked-LM head": "fill-mask",
}


def model_card(
    name: str,
    architecture: str,
    bert_config: BertConfig,
    tokenizer: Tokenizer,
    *,
    labels: Sequence[str] = (),
    training: Mapping[str, str],
) -> str:
    """Write the README.

    Args:
      name: the model's name.
      architecture: its class in `transformers`.
      bert_config: its architecture.
      tokenizer: its tokenizer.
      labels: class names, if any.
      training: known facts about its training, by name.
    """
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
