"""`run_multiple_choice`: train, evaluate, predict and export models that choose one of several texts."""

from official_bert.commands.shared.models import check_finetuning, run_finetuning
from official_bert.options.command import Command
from official_bert.tasks.multiple_choice.options import MultipleChoiceConfig


def check(config: MultipleChoiceConfig) -> None:
    from official_bert.tasks.multiple_choice.data import find_files, read_examples

    check_finetuning(config)
    layout = config.layout
    needed = {"train": config.do_train, "dev": config.is_evaluated, "test": config.do_predict}
    for split, is_needed in needed.items():
        if is_needed and config.task_name == "custom":
            read_examples(config.data_dir, layout, split)
        elif is_needed:
            find_files(config.data_dir, layout.files[split])


def run(config: MultipleChoiceConfig) -> None:
    from official_bert.tasks.multiple_choice.job import MultipleChoiceJob

    run_finetuning(MultipleChoiceJob, config)


COMMAND = Command(
    config_class=MultipleChoiceConfig,
    summary="Fine-tunes BERT to choose one of several texts, such as endings or answers, evaluates it, and predicts.",
    usage=r"""
  {command} --task_name=swag --data_dir=swag --output_dir=out --init_checkpoint=uncased_L-12_H-768_A-12 \
      --do_train --do_eval --max_seq_length=80 --num_train_epochs=3 --learning_rate=2e-5 --train_batch_size=16
""",
    check=check,
    run=run,
)
