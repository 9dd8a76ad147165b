"""`tools/average_checkpoints.py`: checkpoints of one architecture in, their average out."""

from absl import logging

from official_bert.checkpoints.bundle import CheckpointReader
from official_bert.checkpoints.opening import open_checkpoint
from official_bert.checkpoints.state_file import config_beside, folders_of
from official_bert.checkpoints.surgery import averaged
from official_bert.config.bert_config import BertConfig
from official_bert.config.run_configs.tools import AveragingConfig
from official_bert.runs.model_folder import check_new_model, vocabulary_beside, write_model
from official_bert.support.errors import UserError
from official_bert.training.run_folder import BERT_CONFIG_FILE


def run(config: AveragingConfig) -> None:
    """Writes the average.

    Raises:
      UserError: a checkpoint cannot be read, they are of different models, or the output would overwrite one.
    """
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


def _architecture(reader: CheckpointReader) -> BertConfig | None:
    path = config_beside(reader.prefix)
    return BertConfig.from_json_file(path) if path is not None else None
