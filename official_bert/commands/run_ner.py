"""`run_ner`: train, evaluate, predict and export taggers of words."""

from official_bert.commands.shared.models import check_finetuning, run_finetuning
from official_bert.options.command import Command
from official_bert.tasks.tagging.options import TaggingConfig


def check(config: TaggingConfig) -> None:
    from official_bert.tasks.tagging.records import configured_file

    check_finetuning(config)
    for name in config.required_files:
        configured_file(config, name)


def run(config: TaggingConfig) -> None:
    from official_bert.tasks.tagging.job import TaggingJob

    run_finetuning(TaggingJob, config)


COMMAND = Command(
    config_class=TaggingConfig,
    summary="Fine-tunes BERT for named entities and other tags of words, evaluates it, and tags texts.",
    usage=r"""
  {command} --data_dir=conll2003 --output_dir=out --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --do_train --do_eval --do_predict
""",
    check=check,
    run=run,
)
