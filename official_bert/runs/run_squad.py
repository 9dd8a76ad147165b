"""`run_squad.py`: questions and texts in; checkpoints, answers, scores and an exported model out."""

from official_bert.config.run_configs.question_answering import SquadConfig
from official_bert.tasks.question_answering.job import QuestionAnsweringJob
from official_bert.training.finetuning import finetune
from official_bert.training.model_files import read_model_files


def run(config: SquadConfig) -> None:
    """Trains, predicts, and exports, as its flags say.

    Raises:
      UserError: a flag, the data or a checkpoint is wrong.
    """
    bert_config, tokenizer = read_model_files(
        config, for_training=config.do_train, attention_direction=config.attention_direction
    )
    finetune(QuestionAnsweringJob(config, bert_config, tokenizer))
