"""`run_ner.py`: sentences with tags in; checkpoints, scores, predicted tags and an exported model out."""

from official_bert.config.run_configs.tagging import TaggingConfig
from official_bert.tasks.tagging.job import TaggingJob
from official_bert.training.finetuning import finetune
from official_bert.training.model_files import read_model_files


def run(config: TaggingConfig) -> None:
    """Trains, evaluates, predicts, and exports, as its flags say.

    Raises:
      UserError: a flag, the data or a checkpoint is wrong.
    """
    is_encoder_trained = config.do_train and config.trainable_encoder
    bert_config, tokenizer = read_model_files(
        config, for_training=is_encoder_trained, attention_direction=config.attention_direction
    )
    finetune(TaggingJob(config, bert_config, tokenizer))
