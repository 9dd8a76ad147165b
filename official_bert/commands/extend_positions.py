"""`extend_positions`: add positions to a model, for training on longer sequences."""

import dataclasses

from absl import logging

from official_bert.commands.shared.edited_model import EditedModel, EditedModelOptions, read_edited_model
from official_bert.config.bert_config import LARGEST_SIZE
from official_bert.options.command import Command
from official_bert.options.option import option, options
from official_bert.support.errors import UserError


@options(group="model")
class ExtendPositionsConfig(EditedModelOptions):
    """Flags of `extend_positions`."""

    max_position_embeddings: int | None = option(
        None,
        "Number of position embeddings of the new model, more than the old one has.",
        required=True,
        minimum=1,
        maximum=LARGEST_SIZE,
    )


def check(config: ExtendPositionsConfig) -> None:
    """Check the files before TensorFlow is imported."""
    _read_model(config)


def run(config: ExtendPositionsConfig) -> None:
    """Write the new model."""
    from official_bert.checkpoints.editing import read_model, with_positions
    from official_bert.checkpoints.opening import open_checkpoint
    from official_bert.config.bert_config import check_memory
    from official_bert.training.model_folder import write_model

    model = _read_model(config)
    extended = dataclasses.replace(model.bert_config, max_position_embeddings=config.max_position_embeddings)
    check_memory(extended, model.config_file, for_training=False)
    arrays = read_model(open_checkpoint(model.prefixes[0], "init_checkpoint"))
    arrays = with_positions(arrays, model.bert_config, config.max_position_embeddings)
    prefix = write_model(config.output_dir, arrays, extended, model.vocabulary)
    logging.info(
        "wrote %s with %d positions instead of %d; train it further on sequences of that length",
        prefix,
        extended.max_position_embeddings,
        model.bert_config.max_position_embeddings,
    )


def _read_model(config: ExtendPositionsConfig) -> EditedModel:
    model = read_edited_model(config)
    if model.bert_config is None:
        raise UserError("--bert_config_file is missing, the model's configuration; none is beside the checkpoint")
    there = model.bert_config.max_position_embeddings
    if config.max_position_embeddings <= there:
        raise UserError(
            f"max_position_embeddings={config.max_position_embeddings}: {model.config_file} has {there} already; give "
            "more"
        )
    return model


COMMAND = Command(
    name="extend_positions",
    config_class=ExtendPositionsConfig,
    summary="Extends a model to longer sequences by repeating its position embeddings.",
    usage=r"""
Extends a model from 512 to 2,048 positions: position 512 is initialized from position 0, and so on. Then train it
further with run_pretraining.py on records of longer sequences.

  {command} --init_checkpoint=bert_model.ckpt --max_position_embeddings=2048 --output_dir=long
""",
    check=check,
    run=run,
)
