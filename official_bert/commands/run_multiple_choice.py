"""`run_multiple_choice`: train, evaluate, predict and export models that choose one of several texts."""

from typing import Any

from official_bert.commands.shared.models import finetuning_needs_tensorflow, prepare_finetuning, run_finetuning
from official_bert.options.command import Command
from official_bert.tasks.multiple_choice.options import MultipleChoiceConfig


def prepare(config: MultipleChoiceConfig) -> tuple[Any, ...]:
    from official_bert.tasks.multiple_choice.data import read_data

    return *prepare_finetuning(config, reads_pairs=True), read_data(config)


def run(config: MultipleChoiceConfig, inputs: tuple[Any, ...]) -> None:
    from official_bert.tasks.multiple_choice.job import MultipleChoiceJob

    run_finetuning(MultipleChoiceJob, config, inputs)


COMMAND = Command(
    config_class=MultipleChoiceConfig,
    summary="Fine-tunes BERT to choose one of several texts, such as endings or answers, evaluates it, and predicts.",
    usage=r"""
  {command} --task_name=swag --data_dir=swag --output_dir=out --init_checkpoint=uncased_L-12_H-768_A-12 \
      --do_train --do_eval --max_seq_length=80 --num_train_epochs=3 --learning_rate=2e-5 --train_batch_size=16
""",
    prepare=prepare,
    run=run,
    uses_tensorflow=finetuning_needs_tensorflow,
)
