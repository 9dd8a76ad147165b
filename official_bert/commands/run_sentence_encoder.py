"""`run_sentence_encoder`: train, evaluate and export a sentence encoder, and compute its vectors."""

import dataclasses
import os

from official_bert.commands.shared.models import check_finetuning, run_finetuning
from official_bert.options.command import Command
from official_bert.support import files
from official_bert.tasks.sentence_encoder.options import SentenceEncoderConfig


def check(config: SentenceEncoderConfig) -> None:
    from official_bert.tasks.sentence_encoder.data import read_rows

    check_finetuning(config)
    layout = config.layout
    needed = {"train": config.do_train, "dev": config.is_evaluated, "test": config.do_predict}
    for split, file in layout.files.items():
        if needed[split]:  # the first row shows whether the columns are there
            of_split = dataclasses.replace(layout, scores=(), label=None) if split == "test" else layout
            next(read_rows(os.path.join(config.data_dir, file), of_split))
    if config.is_evaluated and config.retrieval_dir:
        files.check_folder(config.retrieval_dir, "retrieval_dir")


def run(config: SentenceEncoderConfig) -> None:
    from official_bert.tasks.sentence_encoder.job import SentenceEncoderJob

    run_finetuning(SentenceEncoderJob, config)


COMMAND = Command(
    config_class=SentenceEncoderConfig,
    summary="Trains a sentence encoder, which maps texts to vectors so that similar texts have similar vectors.",
    usage=r"""
  {command} --data_dir=faq --train_file=train.tsv --eval_file=dev.tsv --text_columns=question,answer \
      --output_dir=out --init_checkpoint=uncased_L-4_H-512_A-8 --do_train --do_eval
""",
    check=check,
    run=run,
)
