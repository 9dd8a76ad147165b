"""The sentence encoder task: model, losses and predictions."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from official_bert.config.bert_config import BertConfig
from official_bert.data.schema import Field, RecordSchema
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import PLAIN, EncoderOptions
from official_bert.modeling.sentence import SentenceGroupModel, SentenceModel
from official_bert.options.vectors import check_vector_size
from official_bert.support.errors import UserError
from official_bert.tasks.sentence_encoder.losses import (
    LOSSES,
    of_all_sizes,
    similarities,
    soft_targets,
    softmax,
)
from official_bert.training.distillation import TEACHER_LOGITS
from official_bert.training.task import WeightedSum


class SentenceEncoderTask:
    """The task of learning vectors of texts from pairs, triplets, scores or classes.

    Attributes:
      schema: the record schema, with lengths and limits.
      teacher_field: the record field with the teacher's similarities.
      compares_examples: True, since the loss of an example depends on the other examples of the batch.
    """

    compares_examples = True

    def __init__(
        self,
        config: BertConfig,
        schema: RecordSchema,
        *,
        loss: str,
        loss_options: Mapping[str, Any] | None = None,
        soft_target_options: Mapping[str, Any] | None = None,
        vector_sizes: Sequence[int] = (),
        exported_size: int = 0,
        max_seq_length: int,
        num_texts: int,
        num_classes: int = 0,
        is_padded_to_longest: bool = True,
        bm25: Mapping[str, object] | None = None,
        encoder_options: EncoderOptions = PLAIN,
        **model_options,
    ):
        """Define the task.

        Args:
          config: the architecture.
          schema: the record schema; see `records.example_schema`.
          loss: a key of `LOSSES`, or "softmax".
          loss_options: keyword arguments of the loss.
          soft_target_options: keyword arguments of `soft_targets`.
          vector_sizes: sizes of truncated vectors on which the loss is also computed.
          exported_size: number of leading components to export; 0 for all.
          max_seq_length: maximum number of positions per text.
          num_texts: K, number of texts per example.
          num_classes: number of classes of pairs, for "softmax".
          is_padded_to_longest: see `SentenceGroupModel`.
          bm25: values of `SentenceModel.bm25`, for the pooling "bm25".
          encoder_options: computation options of the encoder.
          **model_options: see `SentenceModel`.
        """
        self._config, self.schema = config, schema
        self._loss, self._loss_options, self._vector_sizes = loss, loss_options or {}, tuple(vector_sizes)
        self._exported_size = exported_size
        self._soft_target_options = soft_target_options or {}
        self._encoder_options, self._model_options, self._bm25 = encoder_options, model_options, bm25
        self._group_options = {
            "max_seq_length": max_seq_length,
            "num_classes": num_classes if loss == "softmax" else 0,
            "is_padded_to_longest": is_padded_to_longest,
        }
        self.teacher_field = Field(TEACHER_LOGITS, (max(num_texts - 1, 1),), "float32")

    def build_model(self) -> keras.Model:
        """Create the model and its variables."""
        sentence = SentenceModel(create_encoder(self._config, self._encoder_options), **self._model_options)
        check_vector_size(self._exported_size, sentence.width)
        too_large = [size for size in self._vector_sizes if size >= sentence.width]
        if too_large:
            raise UserError(f"matryoshka_sizes: {too_large[0]} must be less than the vector size, {sentence.width}")
        for name, value in (self._bm25 or {}).items():
            sentence.bm25[name].assign(value)
        return SentenceGroupModel(sentence, **self._group_options)

    def losses(self, outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, WeightedSum]:
        """Return the loss on full vectors and on vectors truncated to each of `vector_sizes`."""
        if self._loss == "softmax":
            return {"softmax": softmax(outputs["logits"], batch)}

        def loss(vectors):
            return LOSSES[self._loss](vectors, batch, **self._loss_options)

        return of_all_sizes(loss, self._loss, outputs["vectors"], self._vector_sizes)

    def logits(self, outputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """See `DistillableTask`: the similarities of anchor and candidates, float32 [B, K - 1]."""
        return similarities(outputs["vectors"])

    def soft_target_loss(
        self,
        outputs: Mapping[str, tf.Tensor],
        teacher_logits: tf.Tensor,
        batch: Mapping[str, tf.Tensor],
        temperature: float,
    ) -> WeightedSum:
        """See `DistillableTask`; the temperature of `soft_target_options` is used."""
        del temperature
        return soft_targets(outputs["vectors"], teacher_logits, batch, **self._soft_target_options)

    def predictions(self, outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return the vectors, float32 [B, K, D]."""
        del batch
        return {"vectors": outputs["vectors"]}
