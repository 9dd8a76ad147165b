"""`run_ner`: train, evaluate, predict and export taggers of words."""

from typing import Any

from official_bert.commands.shared.models import finetuning_needs_tensorflow, prepare_finetuning, run_finetuning
from official_bert.options.command import Command
from official_bert.tasks.tagging.options import TaggingConfig


def prepare(config: TaggingConfig) -> tuple[Any, ...]:
    from official_bert.tasks.tagging.records import read_configured

    return *prepare_finetuning(config), {name: read_configured(config, name) for name in config.required_files}


def run(config: TaggingConfig, inputs: tuple[Any, ...]) -> None:
    from official_bert.tasks.tagging.job import TaggingJob

    run_finetuning(TaggingJob, config, inputs)


COMMAND = Command(
    config_class=TaggingConfig,
    summary="Fine-tunes BERT for named entities and other tags of words, evaluates it, and tags texts.",
    usage=r"""
  {command} --data_dir=conll2003 --output_dir=out --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --do_train --do_eval --do_predict
""",
    prepare=prepare,
    run=run,
    uses_tensorflow=finetuning_needs_tensorflow,
)
