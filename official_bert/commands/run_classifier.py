"""`run_classifier`: train, evaluate, predict and export classifiers of texts or text pairs."""

import os

from official_bert.commands.shared.models import check_finetuning, run_finetuning
from official_bert.options.command import Command
from official_bert.support import files
from official_bert.tasks.classification.options import ClassifierConfig


def check(config: ClassifierConfig) -> None:
    from official_bert.tasks.classification.data import CUSTOM
    from official_bert.tasks.classification.datasets import named_dataset
    from official_bert.tasks.classification.records import configured_dataset

    check_finetuning(config)
    if config.task_name.lower() == CUSTOM:
        for name in config.required_files:
            files.check_file(os.path.join(config.data_dir, getattr(config, name)), name)
        dataset = configured_dataset(config)
        for split in dataset.splits:
            examples = dataset.examples(None, split)
            if split not in dataset.test_splits:
                dataset.check_labels(examples)
        return
    dataset = named_dataset(config.task_name, config.xnli_language, config.train_file)
    splits = [
        *(("train",) if config.do_train else ()),
        *(dataset.eval_splits if config.is_evaluated else ()),
        *(dataset.test_splits if config.do_predict else ()),
    ]
    for split in splits:
        dataset.find(config.data_dir, split)


def run(config: ClassifierConfig) -> None:
    from official_bert.tasks.classification.job import ClassificationJob

    run_finetuning(ClassificationJob, config)


COMMAND = Command(
    config_class=ClassifierConfig,
    summary="Fine-tunes BERT for classification of sentences or pairs, evaluates it, and predicts.",
    usage=r"""
  {command} --task_name=mrpc --data_dir=MRPC --output_dir=out --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --do_train --do_eval --do_predict
""",
    check=check,
    run=run,
    last_value_counts=True,
)
