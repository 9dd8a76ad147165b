"""`run_squad`: train, evaluate, predict and export extractive question answering."""

from typing import Any

from official_bert.commands.shared.models import finetuning_needs_tensorflow, prepare_finetuning, run_finetuning
from official_bert.options.command import Command
from official_bert.support import files
from official_bert.tasks.question_answering.options import SquadConfig


def prepare(config: SquadConfig) -> tuple[Any, ...]:
    from official_bert.tasks.question_answering.data import WindowOptions, read_data

    WindowOptions.from_config(config)
    for name in config.required_files:
        files.check_file(getattr(config, name), name)
    return *prepare_finetuning(config, reads_pairs=True), read_data(config)


def run(config: SquadConfig, inputs: tuple[Any, ...]) -> None:
    from official_bert.tasks.question_answering.job import QuestionAnsweringJob

    run_finetuning(QuestionAnsweringJob, config, inputs)


COMMAND = Command(
    config_class=SquadConfig,
    summary="Fine-tunes BERT for question answering, and answers questions.",
    usage=r"""
  {command} --train_file=train-v1.1.json --predict_file=dev-v1.1.json --output_dir=out --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --do_train --do_predict
""",
    prepare=prepare,
    run=run,
    uses_tensorflow=finetuning_needs_tensorflow,
    last_value_counts=True,
)
