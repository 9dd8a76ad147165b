"""`run_pretraining`: train, evaluate and export pretrained models from records."""

from typing import TYPE_CHECKING

from official_bert.options.command import Command
from official_bert.support import files
from official_bert.tasks.pretraining.options import PretrainingConfig

if TYPE_CHECKING:
    from official_bert.tasks.pretraining.data import PretrainingInputs


def prepare(config: PretrainingConfig) -> "PretrainingInputs":
    from official_bert.checkpoints.locate import locate
    from official_bert.tasks.pretraining.data import read_inputs
    from official_bert.training.run_folder import check_has_checkpoint

    inputs = read_inputs(config)
    config = inputs.config
    if config.init_checkpoint:
        locate(config.init_checkpoint, "init_checkpoint")
    if config.teacher and not files.is_folder(config.teacher):  # may be a Hugging Face folder
        locate(config.teacher, "teacher")
    check_has_checkpoint(config)
    return inputs


def run(config: PretrainingConfig, inputs: "PretrainingInputs") -> None:
    from official_bert.tasks.pretraining.job import pretrain

    del config  # `inputs` completes it
    pretrain(inputs)


COMMAND = Command(
    config_class=PretrainingConfig,
    summary="Pretrains BERT with masked language modeling and next sentence prediction, and evaluates it.",
    usage=r"""
  {command} --input_file=records.tfrecord --output_dir=out --bert_config_file=bert_config.json \
      --do_train --do_eval
""",
    prepare=prepare,
    run=run,
    last_value_counts=True,
)
