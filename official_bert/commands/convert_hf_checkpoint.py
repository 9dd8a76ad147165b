"""`convert_hf_checkpoint`: convert a Hugging Face folder to this package's files, or the reverse."""

import json
import os
from typing import TYPE_CHECKING, Any

from absl import logging

from official_bert.config.bert_config import BertConfig, check_memory
from official_bert.config.sentence_modules import encoder_folder, has_modules
from official_bert.config.text_settings import TextSettings
from official_bert.families.hugging_face import label_keys
from official_bert.options.command import Command
from official_bert.options.groups import TextOptions
from official_bert.options.option import option, options, redeclared
from official_bert.support import files, text_files, writing
from official_bert.support.errors import UserError, format_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from official_bert.commands.shared.model_card import SentenceFolder

# Flags that other flags need.
_TO_HF = {"to_hf": (True,)}


def _text_option(name: str) -> Any:
    return redeclared(TextOptions, name, circumstances="With --to_hf: ", only_with=_TO_HF)


@options(group="input")
class HfConversionConfig(TextOptions):
    """Flags of `convert_hf_checkpoint`."""

    output_dir: str | None = option(None, "Folder to write the converted files to.", required=True, is_path=True)
    hf_dir: str | None = option(
        None,
        "Hugging Face folder to read: config.json, model.safetensors, and vocab.txt or spiece.model.",
        only_with={"to_hf": (False,)},
        is_path=True,
    )
    to_hf: bool = option(False, "Convert --init_checkpoint to a Hugging Face folder instead.")
    init_checkpoint: str | None = option(None, "Checkpoint to read, with --to_hf.", only_with=_TO_HF, is_path=True)
    bert_config_file: str | None = option(
        None,
        "Model configuration of the checkpoint, a bert_config.json, with --to_hf.",
        from_checkpoint=("to_hf",),
        only_with=_TO_HF,
        is_path=True,
    )
    vocab_file: str | None = option(
        None,
        "Vocabulary of the checkpoint, with --to_hf.",
        from_checkpoint=("to_hf",),
        only_with=_TO_HF,
        not_with={"spm_model_file": "--vocab_file cannot be used with --spm_model_file"},
        is_path=True,
    )
    spm_model_file: str | None = option(
        None,
        "SentencePiece model of the checkpoint, with --to_hf, instead of --vocab_file.",
        only_with=_TO_HF,
        is_path=True,
    )
    do_lower_case: bool = _text_option("do_lower_case")
    strip_accents: bool = _text_option("strip_accents")
    basic_tokenize: bool = _text_option("basic_tokenize")
    tokenize_chinese_chars: bool = _text_option("tokenize_chinese_chars")
    strip_accents_only: bool = _text_option("strip_accents_only")

    def __post_init__(self):
        super().__post_init__()
        for name in ("init_checkpoint", "bert_config_file", "vocab_file") if self.to_hf else ("hf_dir",):
            if getattr(self, name) is None and not (name == "vocab_file" and self.spm_model_file):
                advice = ", unless the folder of --init_checkpoint has it" if name.endswith("_file") else ""
                circumstances = "with" if self.to_hf else "without"
                raise UserError(f"--{name} is missing; it is needed {circumstances} --to_hf{advice}")


def check(config: HfConversionConfig) -> None:
    """Check the files before TensorFlow is imported."""
    from official_bert.checkpoints.state_file import find_checkpoint
    from official_bert.tokenization import read_tokenizer
    from official_bert.training.model_files import check_fits

    if config.to_hf:
        check_fits(read_tokenizer(config).vocabulary, BertConfig.from_json_file(config.bert_config_file), config)
        find_checkpoint(config.init_checkpoint, "init_checkpoint")
    else:
        BertConfig.from_json_file(os.path.join(encoder_folder(config.hf_dir), _HF_CONFIG_FILE))


_HF_CONFIG_FILE, _HF_TOKENIZER_FILE, _CARD_FILE = "config.json", "tokenizer_config.json", "README.md"


def run(config: HfConversionConfig) -> None:
    """Convert in the direction that the flags select."""
    writing.check_new_folder(config.output_dir, "output_dir")
    if config.to_hf:
        _convert_to_hf(config)
    else:
        _convert_from_hf(config)


def _convert_from_hf(config: HfConversionConfig) -> None:
    import numpy as np

    from official_bert.checkpoints import safetensors
    from official_bert.tokenization import read_vocabulary_file
    from official_bert.tokenization.tokenizer_files import find_vocabulary, read_settings
    from official_bert.tokenization.vocab import CLS, SEP, UNK
    from official_bert.training.model_folder import CHECKPOINT_FILE, write_model
    from official_bert.training.run_folder import BERT_CONFIG_FILE, read_labels

    hf_dir, output_dir = encoder_folder(config.hf_dir), config.output_dir
    hf_config_file = os.path.join(hf_dir, _HF_CONFIG_FILE)
    bert_config = BertConfig.from_json_file(hf_config_file)
    check_memory(bert_config, hf_config_file, for_training=False)
    vocabulary = read_vocabulary_file(find_vocabulary(hf_dir))
    vocabulary.require(UNK, CLS, SEP)
    bert_config.check_vocabulary(vocabulary, hf_config_file)
    settings = read_settings(hf_dir)
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
    if not vocabulary.changes_text:
        logging.info("use them with --do_lower_case=false")
    elif "do_lower_case" not in settings:
        logging.warning(
            "%s does not say whether the model is uncased; find out, and pass --do_lower_case or --nodo_lower_case to "
            "the scripts",
            hf_dir,
        )
    else:
        used = TextSettings(**settings).changed.items()
        logging.info("use them with %s", " ".join(f"--{name}={str(value).lower()}" for name, value in used))


def _convert_to_hf(config: HfConversionConfig) -> None:
    from official_bert.checkpoints import safetensors
    from official_bert.checkpoints.opening import open_checkpoint
    from official_bert.commands.shared.model_card import SCOPE, model_card
    from official_bert.tokenization import read_tokenizer
    from official_bert.tokenization.hf_tokenizer import TOKENIZER_FILE
    from official_bert.training.model_files import check_fits

    bert_config = BertConfig.from_json_file(config.bert_config_file)
    check_memory(bert_config, config.bert_config_file, for_training=False)
    reader = open_checkpoint(config.init_checkpoint, "init_checkpoint")
    arrays = {name: reader.read(name) for name in reader.shapes}
    modules = _sentence_modules(config.init_checkpoint, arrays, bert_config.hidden_size)
    if modules:
        arrays = {name: array for name, array in arrays.items() if not name.startswith(SCOPE)}
    weights = safetensors.to_hf(arrays, bert_config, reader.prefix)
    tokenizer = read_tokenizer(config)
    vocabulary = tokenizer.vocabulary
    check_fits(vocabulary, bert_config, config)
    tokenizer_config = tokenizer.to_hugging_face(bert_config.family, bert_config.max_length)

    labels, training = _labels(config.init_checkpoint, weights.num_classes), _training(config.init_checkpoint)
    hf_config = bert_config.to_hugging_face(weights.architecture, weights.num_classes) | labels
    card = model_card(
        os.path.basename(files.absolute_path(config.output_dir)),
        weights.architecture,
        bert_config,
        tokenizer,
        labels=list(labels.get("label2id", ())),
        training=training,
    )
    tokenizer_json = tokenizer.to_tokenizer_json()
    contents = {
        **({} if tokenizer_json is None else {TOKENIZER_FILE: _json(tokenizer_json)}),
        **vocabulary.their_files,
        _HF_TOKENIZER_FILE: _json(tokenizer_config),
        _HF_CONFIG_FILE: _json(hf_config),
        _CARD_FILE: card.encode(),
    }
    tensors = {safetensors.WEIGHTS_FILE: weights.arrays}
    if modules:
        contents |= {name: _json(values) for name, values in modules.values.items()}
        tensors |= modules.arrays
    with writing.complete_folder(config.output_dir, "output_dir") as folder:
        paths = {name: os.path.join(folder, name) for name in (*contents, *tensors)}
        for path in paths.values():
            writing.make_folders(os.path.dirname(path))
        for name, of_file in tensors.items():
            safetensors.write_file(paths[name], of_file)
        for name, content in contents.items():
            with writing.atomic_write(paths[name], "wb") as sink:
                sink.write(content)
    if not config.basic_tokenize:
        logging.warning(
            "%s says do_basic_tokenize: false, which only the Python tokenizer of transformers 4 respects "
            "(use_fast=False), and tokenizers with tokenizer.json; others would split the text at punctuation",
            os.path.join(config.output_dir, _HF_TOKENIZER_FILE),
        )
    logging.info("wrote %s: a %s with %d tensors", config.output_dir, weights.architecture, len(weights.arrays))


def _sentence_modules(
    init_checkpoint: str, arrays: "Mapping[str, np.ndarray]", hidden_size: int
) -> "SentenceFolder | None":
    """Return the modules of a trained sentence encoder; None for other models."""
    from official_bert.checkpoints.state_file import model_folders
    from official_bert.commands.shared.model_card import sentence_folder
    from official_bert.options.option import config_from_saved
    from official_bert.tasks.sentence_encoder.options import SentenceEncoderConfig
    from official_bert.training.run_folder import read_run_config

    run = read_run_config(model_folders(init_checkpoint)[-1])
    if run is None or run.task != SentenceEncoderConfig.task:
        return None
    return sentence_folder(config_from_saved(SentenceEncoderConfig, run.flags, run.path), arrays, hidden_size)


def _labels(init_checkpoint: str, num_classes: int | None) -> dict[str, Any]:
    """Return the `config.json` keys for the class names, if the model's folder has them."""
    from official_bert.checkpoints.state_file import model_folders
    from official_bert.training.run_folder import read_labels, read_run_config

    if num_classes is None:
        return {}
    folder = model_folders(init_checkpoint)[-1]
    labels, run = read_labels(folder), read_run_config(folder)
    if labels and len(labels) != num_classes:
        raise UserError(
            f"{init_checkpoint} has {num_classes} classes, but {folder} names {len(labels)}: {format_names(labels)}; "
            "correct its labels.json or config.json"
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


def _training(init_checkpoint: str) -> dict[str, str]:
    """Return the task and data set of a checkpoint's training, if a run created it."""
    from official_bert.checkpoints.state_file import model_folders
    from official_bert.training.run_folder import read_run_config

    run = read_run_config(model_folders(init_checkpoint)[-1])
    if run is None:
        return {}
    found = {"task": run.task, "data set": run.flags.get("task_name")}
    return {name: value for name, value in found.items() if value}


def _json(values: Any) -> bytes:
    return (json.dumps(values, indent=2, sort_keys=True) + "\n").encode()


COMMAND = Command(
    name="convert_hf_checkpoint",
    config_class=HfConversionConfig,
    summary="Converts a Hugging Face BERT to a checkpoint, or the reverse.",
    usage=r"""
Reads config.json, model.safetensors and vocab.txt; writes bert_model.ckpt, bert_config.json and vocab.txt:

  {command} --hf_dir=all-MiniLM-L6-v2 --output_dir=minilm

Converts a checkpoint of these scripts or of Google's BERT to a Hugging Face BERT:

  {command} --to_hf --init_checkpoint=bert_model.ckpt \
      --bert_config_file=bert_config.json --vocab_file=vocab.txt --output_dir=hf
""",
    check=check,
    run=run,
)
