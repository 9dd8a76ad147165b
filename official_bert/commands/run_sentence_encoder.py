"""`run_sentence_encoder`: train, evaluate and export a sentence encoder, and compute its vectors."""

from typing import Any

from official_bert.commands.shared.models import finetuning_needs_tensorflow, prepare_finetuning, run_finetuning
from official_bert.options.command import Command
from official_bert.support import files
from official_bert.tasks.sentence_encoder.options import SentenceEncoderConfig


def prepare(config: SentenceEncoderConfig) -> tuple[Any, ...]:
    from official_bert.tasks.sentence_encoder.data import read_data

    if config.is_evaluated and config.retrieval_dir:
        files.check_folder(config.retrieval_dir, "retrieval_dir")
    return *prepare_finetuning(config), read_data(config)


def run(config: SentenceEncoderConfig, inputs: tuple[Any, ...]) -> None:
    from official_bert.tasks.sentence_encoder.job import SentenceEncoderJob

    run_finetuning(SentenceEncoderJob, config, inputs)


COMMAND = Command(
    config_class=SentenceEncoderConfig,
    summary="Trains a sentence encoder, which maps texts to vectors so that similar texts have similar vectors.",
    usage=r"""
  {command} --data_dir=faq --train_file=train.tsv --eval_file=dev.tsv --text_columns=question,answer \
      --output_dir=out --init_checkpoint=uncased_L-4_H-512_A-8 --do_train --do_eval
""",
    prepare=prepare,
    run=run,
    uses_tensorflow=finetuning_needs_tensorflow,
)
