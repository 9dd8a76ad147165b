"""`run_squad`: train, evaluate, predict and export extractive question answering."""

from official_bert.commands.shared.models import check_finetuning, run_finetuning
from official_bert.options.command import Command
from official_bert.support import files
from official_bert.tasks.question_answering.options import SquadConfig


def check(config: SquadConfig) -> None:
    from official_bert.checkpoints.locate import locate
    from official_bert.tasks.question_answering.data import WindowOptions
    from official_bert.training.model_files import read_model_files

    WindowOptions.from_config(config)
    if not config.ensemble:
        check_finetuning(config)
    else:
        read_model_files(config)
        for path in config.ensemble:
            locate(path, "ensemble_checkpoints")
    for name in config.required_files:
        files.check_file(getattr(config, name), name)


def run(config: SquadConfig) -> None:
    from official_bert.tasks.question_answering.job import QuestionAnsweringJob

    run_finetuning(QuestionAnsweringJob, config)


COMMAND = Command(
    config_class=SquadConfig,
    summary="Fine-tunes BERT for question answering, and answers questions.",
    usage=r"""
  {command} --train_file=train-v1.1.json --predict_file=dev-v1.1.json --output_dir=out --vocab_file=vocab.txt \
      --bert_config_file=bert_config.json --init_checkpoint=bert_model.ckpt --do_train --do_predict
""",
    check=check,
    run=run,
    last_value_counts=True,
)
