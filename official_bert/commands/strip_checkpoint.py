"""`strip_checkpoint`: a checkpoint of a training run in, one for fine-tuning out."""

import os

from absl import logging

from official_bert.options.command import Command
from official_bert.options.option import check_options, option, options
from official_bert.support import files, writing
from official_bert.support.errors import UserError


@options(group="rarely needed")
class StripCheckpointConfig:
    """Flags of `strip_checkpoint`."""

    init_checkpoint: str | None = option(
        None, "Checkpoint written by a training run.", required=True, waived_with="checkpoint", is_path=True
    )
    output_dir: str | None = option(
        None, "Folder to write bert_model.ckpt to.", required=True, waived_with="output", is_path=True
    )
    checkpoint: str | None = option(None, "Old name of --init_checkpoint.", is_path=True)
    output: str | None = option(
        None, "Instead of --output_dir: name of the checkpoint to write, such as out/bert_model.ckpt.", is_path=True
    )

    def __post_init__(self):
        check_options(self)
        for name, other in (("init_checkpoint", "checkpoint"), ("output_dir", "output")):
            if getattr(self, name) is not None and getattr(self, other) is not None:
                raise UserError(f"--{name} and --{other} exclude each other; give one")


def check(config: StripCheckpointConfig) -> None:
    """Check the files before TensorFlow is imported."""
    from official_bert.checkpoints.state_file import find_checkpoint

    if config.init_checkpoint is not None:
        find_checkpoint(config.init_checkpoint, "init_checkpoint")
    else:
        find_checkpoint(config.checkpoint, "--checkpoint")


_FILE_NAME = "bert_model.ckpt"


def run(config: StripCheckpointConfig) -> None:
    """Copies all arrays but the training state.

    Raises:
      UserError: the checkpoint cannot be read, or the copy would overwrite one.
    """
    from official_bert.checkpoints.bundle import is_training_state, write_checkpoint
    from official_bert.checkpoints.opening import open_checkpoint

    source, source_flag = config.init_checkpoint, "init_checkpoint"
    if source is None:
        source, source_flag = config.checkpoint, "--checkpoint"
    reader = open_checkpoint(source, source_flag)
    if config.output is None:
        target, target_flag = os.path.join(config.output_dir, _FILE_NAME), "output_dir"
        writing.make_folders(config.output_dir)
    else:
        target, target_flag = config.output, "output"
    writing.check_writable_folder(target, name=target_flag)
    if files.exists(target + ".index"):
        given = getattr(config, target_flag)
        raise UserError(f"{target_flag}={given}: the checkpoint {target} exists already; give another name")
    kept = [name for name in sorted(reader.shapes) if not is_training_state(name, reader.shapes)]
    write_checkpoint(target, {name: reader.read(name) for name in kept})
    logging.info(
        "wrote %s with %d arrays; left out %d arrays of training state",
        target,
        len(kept),
        len(reader.shapes) - len(kept),
    )


COMMAND = Command(
    name="strip_checkpoint",
    config_class=StripCheckpointConfig,
    summary="Copies a checkpoint without the optimizer state: a third of the size.",
    usage="""
  {command} --init_checkpoint=out/model.ckpt-1000 --output_dir=stripped

Leaves out the optimizer state and the global step, which only training needs.
""",
    check=check,
    run=run,
)
