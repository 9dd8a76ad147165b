"""`tools/strip_checkpoint.py`: a checkpoint of a training run in, one for fine-tuning out."""

from absl import logging

from official_bert import files
from official_bert.checkpoints.bundle import CheckpointReader, is_training_state, write_checkpoint
from official_bert.config.run_configs import StripCheckpointConfig
from official_bert.errors import UserError


def run(config: StripCheckpointConfig) -> None:
    """Copies all arrays but the training state.

    Raises:
      UserError: the checkpoint cannot be read, or the copy would overwrite one.
    """
    files.check_writable_folder(config.output, flag="output")
    reader = CheckpointReader(config.checkpoint, "--checkpoint")
    if files.exists(config.output + ".index"):
        raise UserError(f"--output={config.output}: there is a checkpoint of this name already; give another name")
    kept = [name for name in sorted(reader.shapes) if not is_training_state(name)]
    write_checkpoint(config.output, {name: reader.read(name) for name in kept})
    logging.info(
        "wrote %s with %d arrays; left out %d of optimizer and step",
        config.output,
        len(kept),
        len(reader.shapes) - len(kept),
    )
