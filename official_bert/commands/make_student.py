"""`make_student`: a model in, one with some of its layers out."""

import dataclasses

from absl import logging

from official_bert.config.bert_config import BertConfig
from official_bert.options.command import Command
from official_bert.options.model import ArchitectureOptions
from official_bert.options.option import MAX_AXIS, layer_numbers, option, options, restated
from official_bert.support.errors import UserError


@options(group="model")
class StudentConfig(ArchitectureOptions):
    """Flags of `make_student`."""

    init_checkpoint: str | None = option(
        None, "Checkpoint of the model whose layers are taken.", required=True, is_path=True
    )
    bert_config_file: str | None = restated(
        ArchitectureOptions, "bert_config_file", help="Model configuration of the checkpoint, a bert_config.json."
    )
    vocab_file: str | None = option(None, "Vocabulary of the model, to be copied beside the new one.", is_path=True)
    num_layers: int | None = option(
        None,
        "Number of layers of the new model, evenly spaced in the old one: with 6 of 12 layers 0, 2, 4, 6, 8 and 10.",
        minimum=1,
        maximum=MAX_AXIS,
    )
    layers: str | None = option(
        None,
        "Instead of --num_layers: comma-separated list of the layers to take, 0 is the first, -1 the last; a repeated "
        "list, as in 0,1,0,1, makes a deeper model.",
    )
    output_dir: str | None = option(
        None, "Folder to write bert_model.ckpt, bert_config.json and vocab.txt to.", required=True, is_path=True
    )

    def __post_init__(self):
        super().__post_init__()
        if (self.num_layers is None) == (self.layers is None):
            raise UserError("give either --num_layers or --layers")
        if self.layers is not None:
            layer_numbers(self.layers)

    def chosen_layers(self, num_hidden_layers: int) -> list[int]:
        """The layers to take of a model that has so many; negative ones are still to be checked."""
        if self.layers is not None:
            return layer_numbers(self.layers)
        return [place * num_hidden_layers // self.num_layers for place in range(self.num_layers)]


def check(config: StudentConfig) -> None:
    """Check the files before TensorFlow is imported."""
    from official_bert.checkpoints.state_file import find_checkpoint
    from official_bert.tokenization.vocab import Vocabulary
    from official_bert.training.model_files import check_fits

    bert_config = BertConfig.from_json_file(config.bert_config_file)
    bert_config.check_has_own_layers(config.bert_config_file)
    bert_config.check_layers(config.chosen_layers(bert_config.num_hidden_layers), config.bert_config_file)
    find_checkpoint(config.init_checkpoint, "init_checkpoint")
    if config.vocab_file is not None:
        check_fits(Vocabulary.from_file(config.vocab_file), bert_config, config)


def run(config: StudentConfig) -> None:
    """Writes the new model.

    Raises:
      UserError: the checkpoint cannot be read or does not fit the configuration, there is no such layer, or the output
        would overwrite a model.
    """
    from official_bert.checkpoints.opening import open_checkpoint
    from official_bert.checkpoints.surgery import num_layers, read_model, with_layers
    from official_bert.tokenization.vocab import Vocabulary
    from official_bert.training.model_files import check_fits
    from official_bert.training.model_folder import check_new_model, content_of, write_model

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


COMMAND = Command(
    name="make_student",
    config_class=StudentConfig,
    summary="Makes a model with some of the layers of another: the start of a smaller one, or of a deeper one.",
    usage=r"""
  {command} --init_checkpoint=bert_model.ckpt --bert_config_file=bert_config.json --num_layers=6 --output_dir=student
  {command} --init_checkpoint=bert_model.ckpt --bert_config_file=bert_config.json --layers=0,1,2,0,1,2 --output_dir=deep

Embeddings, pooler and heads are those of the other model.
""",
    check=check,
    run=run,
)
