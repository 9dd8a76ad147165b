"""`convert_hf_checkpoint`: convert models and LoRA adapters of Hugging Face to our files, or the reverse."""

import json
import os
from typing import TYPE_CHECKING, Any

from absl import logging

from official_bert.commands.shared.edited_model import (
    CHECKPOINT_FILE,
    SCOPE,
    EditedModel,
    model_card,
    read_edited_model,
    sentence_folder,
    write_folder,
    write_model,
)
from official_bert.config.bert_config import BertConfig, check_memory
from official_bert.config.sentence_modules import encoder_folder, has_modules
from official_bert.config.text_settings import TextSettings
from official_bert.families.family import label_keys
from official_bert.options.command import Command
from official_bert.options.groups import TextOptions
from official_bert.options.option import option, options
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError, format_names

if TYPE_CHECKING:
    from official_bert.checkpoints.locate import Source
    from official_bert.tokenization import Tokenizer
    from official_bert.training.run_folder import RunConfig

_HF_CONFIG_FILE, _HF_TOKENIZER_FILE, _CARD_FILE = "config.json", "tokenizer_config.json", "README.md"


@options(group="input")
class HfConversionConfig(TextOptions):
    output_dir: str | None = option(None, "Folder to write the converted files to.", required=True, is_path=True)
    hf_dir: str | None = option(
        None,
        "Hugging Face folder to read: config.json, model.safetensors, and vocab.txt or spiece.model.",
        is_path=True,
    )
    to_hf: bool = option(False, "Convert --init_checkpoint to a Hugging Face folder instead.")
    generator: bool = option(
        False, "With --to_hf: convert the generator of ELECTRA's pretraining, instead of the discriminator."
    )
    adapter_dir: str | None = option(
        None,
        "Folder of PEFT to read, with adapter_config.json and adapter_model.safetensors; it is merged into "
        "--init_checkpoint, its base model.",
        is_path=True,
    )
    init_checkpoint: str | None = option(
        None,
        "Checkpoint to read, with --to_hf or --adapter_dir. Without either, the adapter of this run with --lora_rank "
        "is written for PEFT.",
        is_path=True,
    )
    bert_config_file: str | None = option(
        None,
        "Model configuration of the checkpoint, a bert_config.json; by default the one beside it.",
        from_checkpoint=("to_hf",),
        is_path=True,
    )
    vocab_file: str | None = option(
        None, "Vocabulary of the checkpoint; by default the one beside it.", from_checkpoint=("to_hf",), is_path=True
    )
    spm_model_file: str | None = option(
        None, "SentencePiece model of the checkpoint, with --to_hf, instead of --vocab_file.", is_path=True
    )

    def __post_init__(self):
        if not self.to_hf:
            self.refuse("spm_model_file", "generator", *TextSettings._fields, because="needs --to_hf")
        super().__post_init__()
        if self.hf_dir is None and self.init_checkpoint is None:
            raise UserError("give --hf_dir, or --init_checkpoint with --to_hf or --adapter_dir or of a run with LoRA")
        if not self.init_checkpoint:
            names = ("to_hf", "adapter_dir", "bert_config_file", "vocab_file")
            self.refuse(*names, because="needs --init_checkpoint")
        if self.hf_dir:
            self.refuse("init_checkpoint", because="cannot be used with --hf_dir")
        if self.to_hf:
            self.refuse("adapter_dir", because="cannot be used with --to_hf")
        if self.spm_model_file:
            self.refuse("vocab_file", because="cannot be used with --spm_model_file")
        for name in ("bert_config_file", "vocab_file") if self.to_hf else ():
            if getattr(self, name) is None and not (name == "vocab_file" and self.spm_model_file):
                raise UserError(
                    f"--{name} is missing; it is needed with --to_hf, unless the folder of --init_checkpoint has it"
                )


def prepare(config: HfConversionConfig) -> Any:
    """Read all of what is converted but the weights."""
    from official_bert.checkpoints.locate import locate
    from official_bert.tokenization import read_tokenizer
    from official_bert.training.model_files import check_vocabulary

    if config.hf_dir:
        return BertConfig.from_json_file(os.path.join(encoder_folder(config.hf_dir), _HF_CONFIG_FILE))
    if config.to_hf:
        bert_config, tokenizer = BertConfig.from_json_file(config.bert_config_file), read_tokenizer(config)
        check_vocabulary(tokenizer.vocabulary, bert_config, config.bert_config_file, config.init_checkpoint)
        return bert_config, tokenizer, locate(config.init_checkpoint, "init_checkpoint")
    model = read_edited_model(config, [config.init_checkpoint])
    if model.bert_config is None:
        raise UserError("give --bert_config_file, the model's configuration, since none is beside the checkpoint")
    return model


def run(config: HfConversionConfig, inputs: Any) -> None:
    writing.check_new_folder(config.output_dir, "output_dir")
    if config.hf_dir:
        _convert_from_hf(config, inputs)
    elif config.to_hf:
        _convert_to_hf(config, *inputs)
    elif config.adapter_dir:
        _merge_adapter(config, inputs)
    else:
        _write_adapter(config, inputs)


def _convert_from_hf(config: HfConversionConfig, bert_config: BertConfig) -> None:
    import numpy as np

    from official_bert.checkpoints import safetensors
    from official_bert.tokenization import read_vocabulary_file
    from official_bert.tokenization.tokenizer_files import find_settings, find_vocabulary
    from official_bert.tokenization.vocab import CLS, SEP, UNK
    from official_bert.training.run_folder import BERT_CONFIG_FILE, read_labels

    hf_dir, output_dir = encoder_folder(config.hf_dir), config.output_dir
    hf_config_file = os.path.join(hf_dir, _HF_CONFIG_FILE)
    check_memory(bert_config, hf_config_file, for_training=False)
    vocabulary = read_vocabulary_file(find_vocabulary(hf_dir))
    vocabulary.require(UNK, CLS, SEP)
    bert_config.check_vocabulary(vocabulary, hf_config_file)
    used = find_settings(hf_dir, vocabulary, {}).flags
    weights = safetensors.read_model(hf_dir, bert_config)
    arrays = {name: np.asarray(array) for name, array in weights.arrays.items()}

    names = (vocabulary.file_name, BERT_CONFIG_FILE, CHECKPOINT_FILE)
    vocab_file, config_file, prefix = (os.path.join(output_dir, name) for name in names)
    has_labels = not {"classifier", "tagger"}.isdisjoint(weights.parts)
    labels = read_labels(hf_dir) if has_labels else None
    write_model(output_dir, arrays, bert_config, vocabulary, labels=labels)
    logging.info("wrote %s: %s; %d arrays", prefix, ", ".join(weights.parts), len(weights.arrays))
    if weights.new:
        logging.warning(
            "%s has no pooler; %s are newly initialized: anything that uses the pooled output, such as a classifier, "
            "must be trained first",
            hf_dir,
            " and ".join(sorted(weights.new)),
        )
    logging.info("wrote %s (hidden_act %s) and %s", config_file, bert_config.hidden_act, vocab_file)
    if has_modules(config.hf_dir):
        logging.warning("the modules of %s after its encoder, such as its pooling, are not converted", config.hf_dir)
    logging.info("use them with %s", used)


def _convert_to_hf(
    config: HfConversionConfig, bert_config: BertConfig, tokenizer: "Tokenizer", source: "Source"
) -> None:
    from official_bert.checkpoints import safetensors
    from official_bert.checkpoints.loading import generator_of, open_checkpoint
    from official_bert.options.option import config_from_saved
    from official_bert.tasks.sentence_encoder.options import SentenceEncoderConfig
    from official_bert.training.run_folder import read_run_config

    check_memory(bert_config, config.bert_config_file, for_training=False)
    folder = source.folders[-1]
    reader, trained = open_checkpoint(source, "init_checkpoint"), read_run_config(folder)
    if config.generator:
        reader, bert_config = generator_of(discriminator := reader, bert_config)
        if reader is discriminator:
            raise UserError(f"{reader.name} has no generator of an ELECTRA; leave out generator")
    arrays, modules, tensors = {name: reader.read(name) for name in reader.shapes}, {}, {}
    if trained and trained.task == SentenceEncoderConfig.task:
        of_run = config_from_saved(SentenceEncoderConfig, trained.flags, trained.path)
        modules, tensors = sentence_folder(of_run, arrays, bert_config.hidden_size)
        arrays = {name: array for name, array in arrays.items() if not name.startswith(SCOPE)}
    weights = safetensors.to_hf(arrays, bert_config, reader.prefix)
    labels = {} if weights.num_classes is None else _labels(folder, trained, weights.num_classes)
    training = {"task": trained.task, "data set": trained.flags.get("task_name")} if trained else {}
    card = model_card(
        os.path.basename(files.absolute_path(config.output_dir)),
        weights.architecture,
        bert_config,
        tokenizer,
        labels=list(labels.get("label2id", ())),
        training={name: value for name, value in training.items() if value},
    )
    contents = {
        **_tokenizer_files(tokenizer, bert_config, config),
        _HF_CONFIG_FILE: _json(
            bert_config.to_hugging_face(weights.architecture, weights.num_classes)
            | labels
            | {"pad_token_id": tokenizer.vocabulary.pad_id}
        ),
        _CARD_FILE: card.encode(),
        **{name: _json(values) for name, values in modules.items()},
    }
    write_folder(config.output_dir, contents, {safetensors.WEIGHTS_FILE: weights.arrays, **tensors})
    logging.info("wrote %s: %s with %d tensors", config.output_dir, weights.architecture, len(weights.arrays))


def _tokenizer_files(tokenizer: "Tokenizer", bert_config: BertConfig, config: HfConversionConfig) -> dict[str, bytes]:
    """Return the files of a tokenizer for `transformers`; warn of what these do not say."""
    from official_bert.tokenization.hf_tokenizer import TOKENIZER_FILE

    if bert_config.type_vocab_size == 1:  # `transformers` has no second segment then
        tokenizer.vocabulary.layout = {**tokenizer.vocabulary.layout, "second_segment": 0}
    values = tokenizer.to_hugging_face(bert_config.family, bert_config.max_length)
    tokenizer_json = tokenizer.to_tokenizer_json()
    if config.morphemes and "mecab_kwargs" not in values:
        logging.warning("transformers knows no morphemes=%s; give it tokenizer.split_text(text)", config.morphemes)
    if values.get("do_basic_tokenize") is False:
        logging.warning(
            "%s says do_basic_tokenize: false, which only the Python tokenizer of transformers 4 respects "
            "(use_fast=False), and tokenizers with tokenizer.json; others would split the text at punctuation",
            os.path.join(config.output_dir, _HF_TOKENIZER_FILE),
        )
    return {
        **({} if tokenizer_json is None else {TOKENIZER_FILE: _json(tokenizer_json)}),
        **tokenizer.vocabulary.their_files,
        _HF_TOKENIZER_FILE: _json(values),
    }


def _labels(folder: str, run: "RunConfig | None", num_classes: int) -> dict[str, Any]:
    """Return the `config.json` keys for the class names, if the model's folder has them."""
    from official_bert.training.run_folder import read_labels

    labels = read_labels(folder)
    if labels and len(labels) != num_classes:
        raise UserError(
            f"the model has {num_classes} classes, but {folder} names {len(labels)}: {format_names(labels)}; correct "
            "its labels.json or config.json"
        )
    keys = label_keys(labels) if labels else {}
    hf_config_file = os.path.join(folder, _HF_CONFIG_FILE)
    if files.exists(hf_config_file) and not run:
        keys["problem_type"] = text_files.read_json(hf_config_file, "model config").get("problem_type")
    elif run and run.task == "classification":
        several = run.flags.get("multi_label")
        problem = "regression" if not labels else "multi_label" if several else "single_label"
        keys["problem_type"] = problem if problem == "regression" else f"{problem}_classification"
    return keys


def _json(values: Any) -> bytes:
    return (json.dumps(values, indent=2, sort_keys=True) + "\n").encode()


def _write_adapter(config: HfConversionConfig, model: EditedModel) -> None:
    from official_bert.checkpoints.bundle import CheckpointReader
    from official_bert.checkpoints.editing import ADAPTER_FILE, adapter_of
    from official_bert.config.model_formats import ADAPTER_CONFIG_FILE
    from official_bert.training.run_folder import read_run_config

    (source,) = model.sources
    trained = read_run_config(source.folders[-1])
    base_model = trained and trained.flags.get("init_checkpoint")
    adapter = adapter_of(CheckpointReader(source, "init_checkpoint"), model.bert_config, base_model)
    write_folder(config.output_dir, {ADAPTER_CONFIG_FILE: _json(adapter.values)}, {ADAPTER_FILE: adapter.arrays})
    size = sum(array.nbytes for array in adapter.arrays.values())
    logging.info("wrote %s: %d arrays, %.1f MB", config.output_dir, len(adapter.arrays), size / 1e6)


def _merge_adapter(config: HfConversionConfig, model: EditedModel) -> None:
    from official_bert.checkpoints.editing import read_adapter, read_model, with_adapter
    from official_bert.checkpoints.loading import open_checkpoint

    adapter = read_adapter(config.adapter_dir)
    arrays = read_model(open_checkpoint(model.sources[0], "init_checkpoint"))
    merged = with_adapter(arrays, adapter, model.bert_config, config.adapter_dir)
    prefix = write_model(config.output_dir, merged, model.bert_config, model.vocabulary)
    logging.info("wrote %s with the adapter of %s", prefix, config.adapter_dir)


COMMAND = Command(
    config_class=HfConversionConfig,
    summary="Converts a Hugging Face BERT or LoRA adapter to a checkpoint, or the reverse.",
    usage=r"""
Reads config.json, model.safetensors and vocab.txt; writes bert_model.ckpt, bert_config.json and vocab.txt:

  {command} --hf_dir=all-MiniLM-L6-v2 --output_dir=minilm

Converts a checkpoint of these scripts or of Google's BERT to a Hugging Face BERT:

  {command} --to_hf --init_checkpoint=bert_model.ckpt \
      --bert_config_file=bert_config.json --vocab_file=vocab.txt --output_dir=hf

Writes the LoRA adapter of a run for PEFT, adapter_model.safetensors and adapter_config.json, a few megabytes:

  {command} --init_checkpoint=out/classifier --output_dir=adapter

Merges an adapter that PEFT has trained into its base model:

  {command} --adapter_dir=adapter --init_checkpoint=bert-base-uncased --output_dir=merged
""",
    prepare=prepare,
    run=run,
)
