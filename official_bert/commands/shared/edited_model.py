"""Flags, reading and writing of commands that create a new model from an existing one."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from official_bert.config.bert_config import BertConfig
from official_bert.options.option import Options, option, options
from official_bert.support import writing
from official_bert.support.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from official_bert.checkpoints.locate import Source
    from official_bert.tokenization import Vocabulary

CHECKPOINT_FILE = "bert_model.ckpt"


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
    """The source model."""

    sources: "list[Source]"  # its checkpoints; several are of one architecture
    config_file: str | None  # the architecture file; None if there is none
    bert_config: BertConfig | None  # the architecture
    vocabulary: "Vocabulary | None"  # the vocabulary, if known


def read_edited_model(config: EditedModelOptions, paths: Sequence[str]) -> EditedModel:
    """Find the checkpoints and read their files, without TensorFlow."""
    from official_bert.checkpoints.locate import locate, model_folders
    from official_bert.tokenization import read_vocabulary_file
    from official_bert.tokenization.tokenizer_files import try_find_vocabulary
    from official_bert.training.model_files import check_fits

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
        check_fits(vocabulary, bert_config, config_file, next(iter(found)))
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
    from official_bert.checkpoints.bundle import write_checkpoint
    from official_bert.training.run_folder import BERT_CONFIG_FILE, write_labels

    contents = {}
    if vocabulary is not None:
        contents[vocabulary.file_name] = vocabulary.file_content
    if bert_config is not None:
        contents[BERT_CONFIG_FILE] = bert_config.to_json_string().encode()
    with writing.complete_folder(output_dir, "output_dir") as folder:
        for name, content in contents.items():
            with writing.atomic_write(os.path.join(folder, name), "wb") as sink:
                sink.write(content)
        if labels:
            write_labels(folder, labels)
        write_checkpoint(os.path.join(folder, CHECKPOINT_FILE), arrays)
    return os.path.join(output_dir, CHECKPOINT_FILE)
