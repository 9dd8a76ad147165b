"""`run_pretraining`: train, evaluate and export pretrained models from records."""

from typing import TYPE_CHECKING

from official_bert.commands.shared.models import check_checkpoints
from official_bert.options.command import Command
from official_bert.tasks.pretraining.options import PretrainingConfig

if TYPE_CHECKING:
    from official_bert.tasks.pretraining.data import PretrainingInputs


def prepare(config: PretrainingConfig) -> "PretrainingInputs":
    from official_bert.tasks.pretraining.data import read_inputs

    inputs = read_inputs(config)
    check_checkpoints(inputs.config, inputs.bert_config)
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
