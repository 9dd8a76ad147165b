"""`tools/strip_checkpoint.py`: a checkpoint of a training run in, one for fine-tuning out."""

import os

from absl import logging

from official_bert.checkpoints.bundle import is_training_state, write_checkpoint
from official_bert.checkpoints.opening import open_checkpoint
from official_bert.config.run_configs.tools import StripCheckpointConfig
from official_bert.support import files, writing
from official_bert.support.errors import UserError

_FILE_NAME = "bert_model.ckpt"


def run(config: StripCheckpointConfig) -> None:
    """Copies all arrays but the training state.

    Raises:
      UserError: the checkpoint cannot be read, or the copy would overwrite one.
    """
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
