"""`tools/make_student.py`: a model in, one with some of its layers out."""

import dataclasses

from absl import logging

from official_bert.checkpoints.opening import open_checkpoint
from official_bert.checkpoints.surgery import num_layers, read_model, with_layers
from official_bert.config.bert_config import BertConfig
from official_bert.config.run_configs.tools import StudentConfig
from official_bert.runs.model_folder import check_new_model, content_of, write_model
from official_bert.support.errors import UserError
from official_bert.tokenization.vocab import Vocabulary
from official_bert.training.model_files import check_fits


def run(config: StudentConfig) -> None:
    """Writes the new model.

    Raises:
      UserError: the checkpoint cannot be read or does not fit the configuration, there is no such layer, or the output
        would overwrite a model.
    """
    bert_config = BertConfig.from_json_file(config.bert_config_file)
    bert_config.check_has_own_layers(config.bert_config_file)
    count = bert_config.num_hidden_layers
    layers = config.chosen_layers(count)
    if config.num_layers is not None and config.num_layers > count:
        raise UserError(
            f"num_layers={config.num_layers}: {config.bert_config_file} has {count} layers; give at most so many"
        )
    bert_config.check_layers(layers, config.bert_config_file)
    if config.vocab_file is not None:
        check_fits(Vocabulary.from_file(config.vocab_file), bert_config, config)
    check_new_model(config.output_dir)
    reader = open_checkpoint(config.init_checkpoint, "init_checkpoint")
    there = num_layers(reader.shapes)
    if there != count:
        raise UserError(
            f"init_checkpoint {reader.prefix} has {there} layers, {config.bert_config_file} {count}; use files that "
            "belong together"
        )
    layers = [layer % count for layer in layers]
    arrays = with_layers(read_model(reader), layers)
    student = dataclasses.replace(bert_config, num_hidden_layers=len(layers))
    vocabulary = {Vocabulary.file_name: content_of(config.vocab_file)} if config.vocab_file is not None else {}
    prefix = write_model(config.output_dir, arrays, student, vocabulary)
    logging.info(
        "wrote %s with the layers %s of %s: %s parameters instead of %s",
        prefix,
        ", ".join(map(str, layers)),
        reader.prefix,
        f"{student.num_parameters:,}",
        f"{bert_config.num_parameters:,}",
    )
