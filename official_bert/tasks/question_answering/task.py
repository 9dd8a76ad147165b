"""Extractive question answering task: model, losses and logits of each window."""

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.data.schema import Field, RecordSchema
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import PLAIN, EncoderOptions, UnpaddedLayout
from official_bert.modeling.heads import SpanModel
from official_bert.training.distillation import TEACHER_LOGITS, soft_cross_entropy
from official_bert.training.task import WeightedSum

LOGITS = ("start_logits", "end_logits")

_LOW = -1e4  # never chosen, but small enough for finite differences
MASKED_LOGIT = np.finfo(np.float32).min  # logit of positions beyond the padded batch length


class QuestionAnsweringTask:
    """Prediction of the start and end of an answer in a window.

    Source: BERT paper, section 4.2.
    """

    def __init__(
        self,
        config: BertConfig,
        schema: RecordSchema,
        *,
        max_seq_length: int,
        is_padding_scored: bool,
        encoder_options: EncoderOptions = PLAIN,
        **model_options,
    ):
        """Define the task.

        Args:
          is_padding_scored: whether padding positions take part in the softmax, as in the reference. The loss depends
            on the padded batch length. Ignored if the encoder removes padding.
        """
        self._config = config
        self._max_seq_length = max_seq_length
        self._is_padding_scored = is_padding_scored
        self._is_padding_computed = encoder_options.layout is not UnpaddedLayout
        self._encoder_options = encoder_options
        self._model_options = model_options
        self.schema = self.sized(schema)  # the training record schema, with lengths and limits
        # the teacher's start and end logits at each position of a record
        self.teacher_field = Field(
            TEACHER_LOGITS, (max_seq_length, len(LOGITS)), "float32", is_per_position=True, is_trimmed=True
        )

    def sized(self, schema: RecordSchema) -> RecordSchema:
        """Return a schema with this task's lengths and limits."""
        return schema.sized(S=self._max_seq_length, V=self._config.vocab_size, T=self._config.num_segments)

    def build_model(self) -> keras.Model:
        return SpanModel(create_encoder(self._config, self._encoder_options), **self._model_options)

    def losses(self, outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, WeightedSum]:
        """Return the mean of the start and end losses, each a softmax over all positions.

        As in the reference, padding positions are included, unless the encoder removes padding.
        """
        outputs = outputs if self._is_padding_computed else _without_padding(outputs, batch)
        losses = [
            tf.nn.sparse_softmax_cross_entropy_with_logits(batch[positions], tf.cast(outputs[logits], tf.float32))
            for positions, logits in zip(("start_positions", "end_positions"), LOGITS, strict=True)
        ]
        total = tf.reduce_sum(sum(losses)) / 2
        return {"span": WeightedSum(total, tf.cast(tf.size(losses[0]), tf.float32))}

    def logits(self, outputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """See `DistillableTask`; float32 [B, S, 2]."""
        return tf.stack([outputs[name] for name in LOGITS], axis=-1)

    def soft_target_loss(
        self,
        outputs: Mapping[str, tf.Tensor],
        teacher_logits: tf.Tensor,
        batch: Mapping[str, tf.Tensor],
        temperature: float,
    ) -> WeightedSum:
        """See `DistillableTask`: the mean over start and end, each a softmax over all positions except padding."""
        is_real = batch["input_mask"][:, :, None] == 1
        student, teacher = (tf.where(is_real, logits, _LOW) for logits in (self.logits(outputs), teacher_logits))
        losses = soft_cross_entropy(student, teacher, temperature, axis=1)  # [B, 2]
        return WeightedSum(tf.reduce_sum(losses) / len(LOGITS), tf.cast(tf.shape(losses)[0], tf.float32))

    def predictions(self, outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return the outputs per window: start_logits and end_logits, float32 [B, S], for any batch length."""
        num_missing = self._max_seq_length - tf.shape(batch["input_ids"])[1]
        if not (self._is_padding_scored and self._is_padding_computed):
            outputs = _without_padding(outputs, batch)
        return {
            name: tf.pad(outputs[name], [[0, 0], [0, num_missing]], constant_values=MASKED_LOGIT) for name in LOGITS
        }


def _without_padding(outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Set logits at padding so low that they are never chosen."""
    return {name: tf.where(batch["input_mask"] == 1, outputs[name], MASKED_LOGIT) for name in LOGITS}
