"""`run_classifier.py`: texts and labels in; checkpoints, scores, predictions and an exported model out."""

from official_bert.config.run_configs.classification import ClassifierConfig
from official_bert.tasks.classification.job import ClassificationJob
from official_bert.training.finetuning import finetune
from official_bert.training.model_files import read_model_files


def run(config: ClassifierConfig) -> None:
    """Trains, evaluates, predicts, and exports, as its flags say.

    Raises:
      UserError: a flag, the data or a checkpoint is wrong.
    """
    is_encoder_trained = config.do_train and config.trainable_encoder
    bert_config, tokenizer = read_model_files(
        config, for_training=is_encoder_trained, attention_direction=config.attention_direction
    )
    finetune(ClassificationJob(config, bert_config, tokenizer))
