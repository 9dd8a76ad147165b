"""Flags, reading and writing of commands that create a new model from an existing one, and its model card."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import official_bert
from official_bert.config.bert_config import BertConfig
from official_bert.config.sentence_modules import MODULES_FILE, OLDER_KEYS, SPLADE, SPLADE_KEYS, SPLADE_POOLINGS
from official_bert.options.option import Options, option, options
from official_bert.support import writing
from official_bert.support.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from official_bert.checkpoints.locate import Source
    from official_bert.tasks.sentence_encoder.options import SentenceEncoderConfig
    from official_bert.tokenization import Tokenizer, Vocabulary

CHECKPOINT_FILE = "bert_model.ckpt"
# `pipeline_tag` on the Hugging Face Hub for models with each head.
_PURPOSES = {
    "classifier": "text-classification",
    "tagger": "token-classification",
    "multiple-choice head": "multiple-choice",
    "span head": "question-answering",
    "masked-LM head": "fill-mask",
}
SCOPE = "sentence/"  # prefix of the variables after the encoder


@options(group="model")
class EditedModelOptions(Options):
    """Flags for the source model and the output folder."""

    init_checkpoint: str | None = option(None, "Checkpoint, or its folder.", required=True, is_path=True)
    bert_config_file: str | None = option(
        None, "Model configuration, a bert_config.json; by default the one beside the checkpoint.", is_path=True
    )
    vocab_file: str | None = option(
        None, "Vocabulary of the model; by default the one beside the checkpoint, if there is one.", is_path=True
    )
    output_dir: str | None = option(
        None, "Folder to write bert_model.ckpt, bert_config.json and vocab.txt to.", required=True, is_path=True
    )


class EditedModel(NamedTuple):
    sources: "list[Source]"  # its checkpoints; several are of one architecture
    config_file: str | None  # the architecture file; None if there is none
    bert_config: BertConfig | None  # the architecture
    vocabulary: "Vocabulary | None"  # the vocabulary, if known


def read_edited_model(config: EditedModelOptions, paths: Sequence[str]) -> EditedModel:
    """Find the checkpoints and read their files, without TensorFlow."""
    from official_bert.checkpoints.locate import locate, model_folders
    from official_bert.tokenization import read_vocabulary_file
    from official_bert.tokenization.tokenizer_files import try_find_vocabulary
    from official_bert.training.model_files import check_vocabulary

    writing.check_new_folder(config.output_dir, "output_dir")
    found = {}
    for path in paths:
        source = locate(path, "init_checkpoint")
        if source.prefix in found:
            raise UserError(f"--init_checkpoint: {source.prefix} is given twice; leave it out once")
        found[source.prefix] = source
    known = {
        prefix: path for prefix, source in found.items() if (path := config.bert_config_file or source.config_file)
    }
    config_file = next(iter(known.values()), None)
    bert_config = BertConfig.from_json_file(config_file) if config_file else None
    for prefix, path in known.items():
        if BertConfig.from_json_file(path) != bert_config:
            raise UserError(
                f"{next(iter(known))} and {prefix} are of different models, as the bert_config.json beside them say"
            )
    vocab_file = config.vocab_file or try_find_vocabulary(model_folders(config_file or next(iter(found)))[0])
    vocabulary = read_vocabulary_file(vocab_file) if vocab_file else None
    if config.vocab_file is not None and bert_config is not None:
        check_vocabulary(vocabulary, bert_config, config_file, next(iter(found)))
    return EditedModel(list(found.values()), config_file, bert_config, vocabulary)


def write_model(
    output_dir: str,
    arrays: "Mapping[str, np.ndarray]",
    bert_config: BertConfig | None,
    vocabulary: "Vocabulary | None",
    *,
    labels: Sequence[str] | None = None,
) -> str:
    """Write the checkpoint with the architecture, the vocabulary and the labels, if known, to a new folder."""
    from official_bert.training.run_folder import BERT_CONFIG_FILE, LABELS_FILE

    contents = {}
    if vocabulary is not None:
        contents[vocabulary.file_name] = vocabulary.file_content
    if bert_config is not None:
        contents[BERT_CONFIG_FILE] = bert_config.to_json_string().encode()
    if labels:
        contents[LABELS_FILE] = json.dumps(labels, ensure_ascii=False).encode()
    write_folder(output_dir, contents, {}, checkpoint=arrays)
    return os.path.join(output_dir, CHECKPOINT_FILE)


def write_folder(
    output_dir: str,
    contents: Mapping[str, bytes],
    tensors: "Mapping[str, Mapping[str, np.ndarray]]",
    checkpoint: "Mapping[str, np.ndarray] | None" = None,
) -> None:
    """Write files, safetensors files and a checkpoint of our own to a new folder."""
    from official_bert.checkpoints import safetensors
    from official_bert.checkpoints.bundle import write_checkpoint

    with writing.complete_folder(output_dir, "output_dir") as folder:
        paths = {name: os.path.join(folder, name) for name in (*contents, *tensors)}
        for path in paths.values():
            writing.make_folders(os.path.dirname(path))
        for name, arrays in tensors.items():
            safetensors.write_file(paths[name], arrays)
        for name, content in contents.items():
            writing.write_file(paths[name], content)
        if checkpoint is not None:
            write_checkpoint(os.path.join(folder, CHECKPOINT_FILE), checkpoint)


def model_card(
    name: str,
    architecture: str,
    bert_config: BertConfig,
    tokenizer: "Tokenizer",
    *,
    labels: Sequence[str] = (),
    training: Mapping[str, str],
) -> str:
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
    cells = {key: " ".join(str(value).split()).replace("|", r"\|") for key, value in rows.items()}
    table = "\n".join(f"| {key} | {cell} |" for key, cell in cells.items())
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


def sentence_folder(
    config: "SentenceEncoderConfig", arrays: "Mapping[str, np.ndarray]", hidden_size: int
) -> "tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]":
    """Return the JSON and the safetensors files of a trained sentence encoder's modules, by path in the folder."""
    unknown = next((pooling for pooling in config.poolings if pooling not in (*OLDER_KEYS, SPLADE)), None)
    if unknown is not None:
        raise UserError(f"sentence-transformers does not support pooling={unknown}, only {', '.join(OLDER_KEYS)}")
    if config.poolings == [name for name in OLDER_KEYS if name in config.poolings]:  # versions before 6 need this form
        pooling = {key: name in config.poolings for name, key in OLDER_KEYS.items()}
    else:
        pooling = {"pooling_mode": config.poolings}
    settings = [("", {}), ("Pooling", {"word_embedding_dimension": hidden_size, **pooling})]
    package, first = "sentence_transformers.models", "Transformer"
    if config.is_sparse:
        settings[1] = ("SpladePooling", dict(zip(SPLADE_KEYS, SPLADE_POOLINGS[SPLADE], strict=True)))
        package, first = "sentence_transformers.sparse_encoder.models", "MLMTransformer"
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
            {"idx": number, "name": str(number), "path": folder, "type": f"{package}.{kind or first}"}
            for number, (folder, (kind, _)) in enumerate(zip(folders, settings, strict=True))
        ],
        "sentence_bert_config.json": {"max_seq_length": config.max_seq_length, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "model_type": "SparseEncoder" if config.is_sparse else "SentenceTransformer",
            "prompts": config.prompts,
            "default_prompt_name": "query" if config.query_prefix else None,
        },
    }
    values |= {f"{folder}/config.json": of for folder, (_, of) in zip(folders, settings, strict=True) if folder}
    return values, weights
