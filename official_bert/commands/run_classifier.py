"""`run_classifier`: train, evaluate, predict and export classifiers of texts or text pairs."""

import os
from typing import Any

from official_bert.commands.shared.models import finetuning_needs_tensorflow, prepare_finetuning, run_finetuning
from official_bert.options.command import Command
from official_bert.support import files
from official_bert.tasks.classification.options import ClassifierConfig


def prepare(config: ClassifierConfig) -> tuple[Any, ...]:
    from official_bert.tasks.classification.data import CUSTOM
    from official_bert.tasks.classification.records import read_data, reads_pairs

    for name in config.required_files if config.task_name.lower() == CUSTOM else ():
        files.check_file(os.path.join(config.data_dir, getattr(config, name)), name)
    return *prepare_finetuning(config, reads_pairs=reads_pairs(config)), read_data(config)


def run(config: ClassifierConfig, inputs: tuple[Any, ...]) -> None:
    from official_bert.tasks.classification.job import ClassificationJob

    run_finetuning(ClassificationJob, config, inputs)


COMMAND = Command(
    config_class=ClassifierConfig,
    summary="Fine-tunes BERT for classification of sentences or pairs, evaluates it, and predicts.",
    usage=r"""
  {command} --task_name=mrpc --data_dir=MRPC --output_dir=out --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --do_train --do_eval --do_predict
""",
    prepare=prepare,
    run=run,
    uses_tensorflow=finetuning_needs_tensorflow,
    last_value_counts=True,
)
