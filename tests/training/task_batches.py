"""A small model of every task, and a batch of examples of different lengths for it."""

import numpy as np
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder_options import EncoderOptions
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.tasks.multiple_choice.task import MultipleChoiceTask
from official_bert.tasks.pretraining.task import PretrainingTask
from official_bert.tasks.question_answering.data import TRAINING_SCHEMA
from official_bert.tasks.question_answering.task import QuestionAnsweringTask
from official_bert.tasks.tagging.task import TaggingTask

LENGTHS = np.array([12, 3, 7, 5])
SIZE, LENGTH, PREDICTIONS = len(LENGTHS), 12, 3
SIZES = {"max_seq_length": LENGTH, "max_predictions_per_seq": PREDICTIONS, "eval_batch_size": SIZE}
CONFIG = BertConfig(
    vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=48,
    max_position_embeddings=LENGTH, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip

# Dropout in heads is constant, and such gradients cannot be compared.
TASKS = {
    "pretraining": lambda options: PretrainingTask(CONFIG, **SIZES, encoder_options=options),
    "classification": lambda options: _classification(options),
    "classification of windows": lambda options: _classification(options, window_length=LENGTH // 2),
    "classification by all layers": lambda options: _classification(options, feature_layers="weighted_sum"),
    "tagging": lambda options: TaggingTask(CONFIG, num_tags=4, max_seq_length=LENGTH, encoder_options=options),
    "tagging by an LSTM": lambda options: TaggingTask(
        CONFIG, num_tags=4, max_seq_length=LENGTH, head="bilstm", lstm_units=8, encoder_options=options
    ),
    "multiple choice": lambda options: MultipleChoiceTask(
        CONFIG, num_choices=3, max_seq_length=LENGTH, encoder_options=options
    ),
    "question answering": lambda options: QuestionAnsweringTask(
        CONFIG, TRAINING_SCHEMA, max_seq_length=LENGTH, is_padding_scored=False, encoder_options=options
    ),
}


def _classification(options: EncoderOptions, **others) -> ClassificationTask:
    labels = {"problem": "single_label", "num_labels": 3, "metric_names": ()}
    sizes = {"max_length": LENGTH, "eval_batch_size": SIZE}
    return ClassificationTask(CONFIG, **labels, **sizes, encoder_options=options, **others)


def batch_of(name: str) -> dict[str, tf.Tensor]:
    """Return a batch for a task of the table."""
    rng = np.random.default_rng(1)
    mask = np.arange(LENGTH) < LENGTHS[:, None]
    batch = {
        "input_ids": np.where(mask, rng.integers(5, 50, mask.shape), 0),
        "input_mask": mask,
        "segment_ids": mask * (np.arange(LENGTH) > 2),
    }
    if name == "pretraining":
        batch["masked_lm_positions"] = rng.integers(0, LENGTHS[:, None], [SIZE, PREDICTIONS])
        batch["masked_lm_ids"] = rng.integers(5, 50, [SIZE, PREDICTIONS])
        batch["next_sentence_labels"] = rng.integers(0, 2, SIZE)
    elif name.startswith("classification"):
        batch |= {"label_ids": rng.integers(0, 3, SIZE), "is_real_example": np.ones(SIZE)}
    elif name == "multiple choice":  # sequences one after another; the last example has two choices
        batch |= {"text_lengths": [[4, 3, 5], [1, 1, 1], [2, 2, 3], [2, 3, 0]], "label_ids": [2, 0, 1, 1]}
    elif name.startswith("tagging"):
        batch["label_ids"] = mask * rng.integers(0, 5, mask.shape)
    else:
        batch |= {"start_positions": rng.integers(0, LENGTHS), "end_positions": rng.integers(0, LENGTHS)}
    tensors = {key: tf.constant(values, tf.int32) for key, values in batch.items()}
    if name == "pretraining":
        tensors["masked_lm_weights"] = tf.constant([[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 0]], tf.float32)
    return tensors
