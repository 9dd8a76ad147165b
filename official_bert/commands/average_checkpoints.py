"""`average_checkpoints`: checkpoints of one architecture in, their average out."""

from typing import TYPE_CHECKING

from absl import logging

from official_bert.config.bert_config import BertConfig
from official_bert.options.command import Command
from official_bert.options.option import check_options, option, options
from official_bert.support.errors import UserError

if TYPE_CHECKING:
    from official_bert.checkpoints.bundle import CheckpointReader


@options(group="output")
class AveragingConfig:
    """Flags of `average_checkpoints`."""

    checkpoints: str | None = option(
        None,
        "Comma-separated list of at least two checkpoints of one architecture, or folders that hold them.",
        required=True,
        is_path=True,
    )
    output_dir: str | None = option(
        None,
        "Folder to write bert_model.ckpt to, with the bert_config.json and vocab.txt that lie beside the checkpoints.",
        required=True,
        is_path=True,
    )

    def __post_init__(self):
        check_options(self)
        if len(self.paths) < 2 or "" in self.paths:
            raise UserError(f"--checkpoints={self.checkpoints}: must be a list of at least two checkpoints")

    @property
    def paths(self) -> list[str]:
        """The checkpoints."""
        return [path.strip() for path in self.checkpoints.split(",")]


def check(config: AveragingConfig) -> None:
    """Check the files before TensorFlow is imported."""
    from official_bert.checkpoints.state_file import find_checkpoint

    for path in config.paths:
        find_checkpoint(path, "--checkpoints")


def run(config: AveragingConfig) -> None:
    """Writes the average.

    Raises:
      UserError: a checkpoint cannot be read, they are of different models, or the output would overwrite one.
    """
    from official_bert.checkpoints.opening import open_checkpoint
    from official_bert.checkpoints.state_file import folders_of
    from official_bert.checkpoints.surgery import averaged
    from official_bert.training.model_folder import check_new_model, vocabulary_beside, write_model
    from official_bert.training.run_folder import BERT_CONFIG_FILE

    readers = [open_checkpoint(path, "--checkpoints") for path in config.paths]
    prefixes = [reader.prefix for reader in readers]
    twice = next((prefix for prefix in prefixes if prefixes.count(prefix) > 1), None)
    if twice:
        raise UserError(f"--checkpoints: {twice} is given twice; leave it out once")
    check_new_model(config.output_dir)
    configs = {reader.prefix: _architecture(reader) for reader in readers}
    known = {prefix: found for prefix, found in configs.items() if found}
    first = next(iter(known), None)
    other = next((prefix for prefix in known if known[prefix] != known[first]), None)
    if other:
        raise UserError(f"{first} and {other} are of different models, as the {BERT_CONFIG_FILE} beside them say")
    arrays = averaged(readers)
    folder = folders_of(first or readers[0].prefix)[0]
    prefix = write_model(config.output_dir, arrays, known.get(first), vocabulary_beside(folder))
    logging.info("wrote %s, the average of %d checkpoints, with %d arrays", prefix, len(readers), len(arrays))
    if not first:
        logging.warning(
            "none of the checkpoints has a %s beside it; copy the model's to %s", BERT_CONFIG_FILE, config.output_dir
        )


def _architecture(reader: "CheckpointReader") -> BertConfig | None:
    from official_bert.checkpoints.state_file import config_beside

    path = config_beside(reader.prefix)
    return BertConfig.from_json_file(path) if path is not None else None


COMMAND = Command(
    name="average_checkpoints",
    config_class=AveragingConfig,
    summary="Averages the weights of several checkpoints of one architecture.",
    usage="""
  {command} --checkpoints=out/model.ckpt-800,out/model.ckpt-900,out/model.ckpt-1000 --output_dir=averaged
""",
    check=check,
    run=run,
)
