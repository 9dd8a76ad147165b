"""`tools/convert_hf_checkpoint.py`: a Hugging Face folder in and our files out, or the other way round."""

import json
import os
from typing import Any

from absl import logging

from official_bert.checkpoints import safetensors
from official_bert.checkpoints.bundle import CheckpointReader, write_checkpoint
from official_bert.config.bert_config import BertConfig
from official_bert.config.hf_config import make_hf_config, read_hf_config
from official_bert.config.run_configs.tools import HfConversionConfig
from official_bert.config.text_settings import TextSettings
from official_bert.support import files, text_files
from official_bert.tokenization import hf_tokenizer

_CHECKPOINT, _CONFIG_FILE, _VOCAB_FILE = "bert_model.ckpt", "bert_config.json", "vocab.txt"
_HF_CONFIG_FILE, _HF_TOKENIZER_FILE = "config.json", "tokenizer_config.json"


def run(config: HfConversionConfig) -> None:
    """Converts in the direction that the flags ask for.

    Raises:
      UserError: a file is missing, damaged or does not fit the others, or would be overwritten.
    """
    if config.to_hf:
        _convert_to_hf(config)
    else:
        _convert_from_hf(config)


def _convert_from_hf(config: HfConversionConfig) -> None:
    hf_dir, output_dir = config.hf_dir, config.output_dir
    hf_config_file = os.path.join(hf_dir, _HF_CONFIG_FILE)
    bert_config = read_hf_config(hf_config_file)
    bert_config.check_memory(hf_config_file, for_training=False)
    tokens = hf_tokenizer.read_tokens(hf_dir)
    bert_config.check_vocab_size(len(tokens), hf_dir, hf_config_file)
    settings = hf_tokenizer.read_settings(hf_dir)
    weights = safetensors.from_hf(safetensors.read_folder(hf_dir), bert_config, hf_dir)

    files.make_folders(output_dir)
    vocab_file, config_file, prefix = (
        os.path.join(output_dir, name) for name in (_VOCAB_FILE, _CONFIG_FILE, _CHECKPOINT)
    )
    sources = [os.path.join(hf_dir, name) for name in files.list_folder(hf_dir)]
    files.check_no_overwriting([vocab_file, config_file, prefix + ".index"], sources, name="output_dir")
    _write_text(vocab_file, "\n".join([*tokens, ""]))
    _write_text(config_file, bert_config.to_json_string())
    write_checkpoint(prefix, weights.arrays)
    logging.info("wrote %s: %s; %d arrays", prefix, ", ".join(weights.parts), len(weights.arrays))
    logging.info("wrote %s (hidden_act %s) and %s", config_file, bert_config.hidden_act, vocab_file)
    if "do_lower_case" not in settings:
        logging.warning(
            "%s does not say whether text is lowercased; find out and pass --do_lower_case to the scripts", hf_dir
        )
    else:
        used = TextSettings(**settings).changed.items()
        logging.info("use them with %s", " ".join(f"--{name}={str(value).lower()}" for name, value in used))


def _convert_to_hf(config: HfConversionConfig) -> None:
    bert_config = BertConfig.from_json_file(config.bert_config_file)
    bert_config.check_memory(config.bert_config_file, for_training=False)
    reader = CheckpointReader(config.init_checkpoint, "init_checkpoint")
    weights = safetensors.to_hf({name: reader.read(name) for name in reader.shapes}, bert_config, reader.prefix)
    tokens = list(text_files.LineReader(config.vocab_file))
    bert_config.check_vocab_size(len(tokens), config.vocab_file, config.bert_config_file)

    files.make_folders(config.output_dir)
    texts = {
        _VOCAB_FILE: "\n".join([*tokens, ""]),
        _HF_TOKENIZER_FILE: _json_text(
            hf_tokenizer.make_tokenizer_config(config.text_settings, max_length=bert_config.max_position_embeddings)
        ),
        _HF_CONFIG_FILE: _json_text(make_hf_config(bert_config, weights.architecture, weights.num_classes)),
    }
    paths = [os.path.join(config.output_dir, name) for name in (*texts, safetensors.WEIGHTS_FILE)]
    files.check_no_overwriting(paths, [config.vocab_file, config.bert_config_file], name="output_dir")
    safetensors.write_file(paths[-1], weights.arrays)  # first: if the disk is too full for them, nothing is left behind
    for path, text in zip(paths, texts.values(), strict=False):
        _write_text(path, text)
    if not config.basic_tokenize:
        logging.warning(
            "%s says do_basic_tokenize: false, which only the Python tokenizer of transformers 4 obeys "
            "(use_fast=False); others would split the text at punctuation",
            os.path.join(config.output_dir, _HF_TOKENIZER_FILE),
        )
    logging.info("wrote %s: a %s with %d tensors", config.output_dir, weights.architecture, len(weights.arrays))


def _json_text(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2, sort_keys=True) + "\n"


def _write_text(path: str, text: str) -> None:
    with files.atomic_write(path) as sink:
        sink.write(text)
