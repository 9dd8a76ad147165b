"""Masked-LM and next-sentence pretraining as a task: model, losses and scores."""

from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoders import PLAIN, EncoderOptions, create_encoder
from official_bert.modeling.model import Encoder
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.tasks.pretraining.records import PRETRAINING_SCHEMA
from official_bert.training.task import WeightedSum

EMPTY_WEIGHT = 1e-5  # reference value; keeps a batch without masked words finite


class PretrainingTask:
    """Learns to fill in masked words and to distinguish the next sentence from a random one.

    Attributes:
      schema: the records, with lengths and limits.
    Source: BERT paper, section 3.1.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        max_seq_length: int,
        max_predictions_per_seq: int,
        eval_batch_size: int,
        use_next_sentence: bool = True,
        encoder_options: EncoderOptions = PLAIN,
        make_encoder: Callable[[BertConfig, EncoderOptions], Encoder] = create_encoder,
    ):
        """Describes the task.

        Args:
          config: the architecture.
          max_seq_length: positions in a record.
          max_predictions_per_seq: masked positions in a record.
          eval_batch_size: the batches whose mean loss is the score `loss`.
          use_next_sentence: whether the next sentence is learned and scored; otherwise nothing changes its head and
            the pooler.
          encoder_options: how the encoder computes.
          make_encoder: makes the encoder; called as `create_encoder`.
        """
        self._config = config
        self._eval_batch_size = eval_batch_size
        self._use_next_sentence = use_next_sentence
        self._encoder_options = encoder_options
        self._make_encoder = make_encoder
        self.schema = PRETRAINING_SCHEMA.sized(
            S=max_seq_length, P=max_predictions_per_seq, V=config.vocab_size, T=config.type_vocab_size
        )

    def build_model(self) -> keras.Model:
        """Creates the model, variables included."""
        return PretrainingModel(self._make_encoder(self._config, self._encoder_options))

    def losses(self, outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, WeightedSum]:
        """The two losses: masked_lm over the masked positions, next_sentence over the examples."""
        weights = batch["masked_lm_weights"]
        masked_lm = _cross_entropy(batch["masked_lm_ids"], outputs["masked_lm_logits"])  # [B, P]
        losses = {"masked_lm": WeightedSum(tf.reduce_sum(masked_lm * weights), tf.reduce_sum(weights) + EMPTY_WEIGHT)}
        if self._use_next_sentence:
            next_sentence = _cross_entropy(batch["next_sentence_labels"], outputs["next_sentence_logits"])  # [B]
            count = tf.cast(tf.size(next_sentence), tf.float32)
            losses["next_sentence"] = WeightedSum(tf.reduce_sum(next_sentence), count)
        return losses

    def predictions(self, outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Losses and hits of each example: masked_lm_* [B, P] and next_sentence_* [B]."""
        names = ("masked_lm", "next_sentence") if self._use_next_sentence else ("masked_lm",)
        labels = {"masked_lm": batch["masked_lm_ids"], "next_sentence": batch["next_sentence_labels"]}
        predictions = {"masked_lm_weight": batch["masked_lm_weights"]}
        for name in names:
            logits = outputs[f"{name}_logits"]
            predictions[f"{name}_loss"] = _cross_entropy(labels[name], logits)
            predictions[f"{name}_hit"] = _hits(labels[name], logits)
        return predictions

    def scores(self, predictions: Mapping[str, np.ndarray]) -> dict[str, float]:
        """The reference's five scores; without the next sentence the three others.

        masked_lm_loss and masked_lm_accuracy are over all masked positions, next_sentence_loss and
        next_sentence_accuracy over all examples. `loss` is the mean over batches of what training minimizes.
        """
        predictions = {name: value.astype(np.float64) for name, value in predictions.items()}
        weights = predictions["masked_lm_weight"]
        scores = {
            "loss": self._mean_batch_loss(predictions),
            "masked_lm_accuracy": _weighted_mean(predictions["masked_lm_hit"], weights),
            "masked_lm_loss": _weighted_mean(predictions["masked_lm_loss"], weights),
        }
        if self._use_next_sentence:
            scores["next_sentence_accuracy"] = float(np.mean(predictions["next_sentence_hit"]))
            scores["next_sentence_loss"] = float(np.mean(predictions["next_sentence_loss"]))
        return scores

    def _mean_batch_loss(self, predictions: Mapping[str, np.ndarray]) -> float:
        starts = range(0, len(predictions["masked_lm_loss"]), self._eval_batch_size)
        losses = []
        for start in starts:
            batch = {name: value[start : start + self._eval_batch_size] for name, value in predictions.items()}
            masked_lm = np.sum(batch["masked_lm_loss"] * batch["masked_lm_weight"])
            masked_lm /= np.sum(batch["masked_lm_weight"]) + EMPTY_WEIGHT
            losses.append(masked_lm + (np.mean(batch["next_sentence_loss"]) if self._use_next_sentence else 0))
        return float(np.mean(losses))


def _cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32))


def _hits(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.argmax(logits, axis=-1, output_type=labels.dtype) == labels, tf.float32)


def _weighted_mean(values: np.ndarray, weights: np.ndarray) -> float:
    total = np.sum(weights)
    return float(np.sum(values * weights) / total) if total else 0.0
