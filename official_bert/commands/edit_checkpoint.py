"""`edit_checkpoint`: average checkpoints of a model or select some of its layers, without training state."""

import dataclasses

from absl import logging

from official_bert.commands.shared.edited_model import EditedModel, EditedModelOptions, read_edited_model
from official_bert.options.command import Command
from official_bert.options.option import MAX_AXIS, layer_numbers, option, options, redeclared
from official_bert.support.errors import UserError


@options(group="model")
class EditCheckpointConfig(EditedModelOptions):
    """Flags of `edit_checkpoint`."""

    init_checkpoint: str | None = redeclared(
        EditedModelOptions,
        "init_checkpoint",
        help="Checkpoint, or its folder; a comma-separated list of checkpoints of the same architecture averages their "
        "weights.",
    )
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
        not_with={"num_layers": "--num_layers and --layers exclude each other; give one"},
    )

    def __post_init__(self):
        super().__post_init__()
        if "" in self.paths:
            raise UserError(f"--init_checkpoint={self.init_checkpoint}: must be a comma-separated list of checkpoints")
        if self.layers is not None:
            layer_numbers(self.layers)

    @property
    def paths(self) -> list[str]:
        """See `EditedModelOptions`."""
        return [path.strip() for path in self.init_checkpoint.split(",")]


def check(config: EditCheckpointConfig) -> None:
    """Check the files before TensorFlow is imported."""
    _chosen_layers(config, read_edited_model(config))


def run(config: EditCheckpointConfig) -> None:
    """Write the new model."""
    from official_bert.checkpoints.editing import averaged, num_layers, read_model, with_layers
    from official_bert.checkpoints.opening import open_checkpoint
    from official_bert.training.model_folder import write_model
    from official_bert.training.run_folder import BERT_CONFIG_FILE

    model = read_edited_model(config)
    bert_config, layers = model.bert_config, _chosen_layers(config, model)
    readers = [open_checkpoint(prefix, "init_checkpoint") for prefix in model.prefixes]
    arrays = averaged(readers) if len(readers) > 1 else read_model(readers[0])
    num_left_out = len(readers[0].shapes) - len(readers[0].new_names) - len(arrays)
    if len(readers) > 1:
        logging.info("averaged %d checkpoints", len(readers))
    if layers is not None:
        if (there := num_layers(arrays)) != bert_config.num_hidden_layers:
            raise UserError(
                f"init_checkpoint {model.prefixes[0]} has {there} layers, {model.config_file} "
                f"{bert_config.num_hidden_layers}; use files that belong together"
            )
        arrays = with_layers(arrays, layers)
        student = dataclasses.replace(bert_config, num_hidden_layers=len(layers))
        logging.info(
            "took the layers %s: %s parameters instead of %s",
            ", ".join(map(str, layers)),
            f"{student.num_parameters:,}",
            f"{bert_config.num_parameters:,}",
        )
        bert_config = student
    prefix = write_model(config.output_dir, arrays, bert_config, model.vocabulary)
    logging.info("wrote %s with %d arrays, without %d arrays of training state", prefix, len(arrays), num_left_out)
    if bert_config is None:
        logging.warning(
            "there is no %s beside the checkpoint; copy the model's to %s", BERT_CONFIG_FILE, config.output_dir
        )


def _chosen_layers(config: EditCheckpointConfig, model: EditedModel) -> list[int] | None:
    if config.num_layers is None and config.layers is None:
        return None
    bert_config, config_file = model.bert_config, model.config_file
    if bert_config is None:
        raise UserError(
            "selecting layers needs --bert_config_file, the model's configuration, since none is beside the checkpoint"
        )
    bert_config.check_has_own_layers(config_file)
    count = bert_config.num_hidden_layers
    if config.layers is not None:
        layers = layer_numbers(config.layers)
        bert_config.check_layers(layers, config_file)
        return [layer % count for layer in layers]
    if config.num_layers > count:
        raise UserError(f"num_layers={config.num_layers}: {config_file} has {count} layers; give at most {count}")
    return [place * count // config.num_layers for place in range(config.num_layers)]


COMMAND = Command(
    name="edit_checkpoint",
    config_class=EditCheckpointConfig,
    summary="Averages checkpoints, selects layers of a model, or removes the optimizer state.",
    usage=r"""
Copies a checkpoint without the training state: a third of the size.

  {command} --init_checkpoint=out/model.ckpt-1000 --output_dir=stripped

Averages the weights of several checkpoints:

  {command} --init_checkpoint=out/model.ckpt-800,out/model.ckpt-900,out/model.ckpt-1000 --output_dir=averaged

Makes a shallower or deeper model from the layers of another one, to train further. Embeddings, pooler and heads are
copied.

  {command} --init_checkpoint=bert_model.ckpt --num_layers=6 --output_dir=student
  {command} --init_checkpoint=bert_model.ckpt --layers=0,1,2,0,1,2 --output_dir=deep
""",
    check=check,
    run=run,
)
