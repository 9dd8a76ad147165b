"""Pretraining with a teacher: a larger pretrained model, which reads each batch together with its student."""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from official_bert.checkpoints.pretrained import load_pretrained, open_pretrained
from official_bert.checkpoints.state_file import folders_of
from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoders import PLAIN, EncoderOptions, create_encoder
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.task import EMPTY_WEIGHT, PretrainingTask
from official_bert.tokenization import Vocabulary
from official_bert.training.distillation import soft_cross_entropy, weighted
from official_bert.training.layered_model import LayeredModel, OutputsAndLayers
from official_bert.training.run_folder import knows_vocabulary, other_vocabulary
from official_bert.training.task import WeightedSum

_NEXT_SENTENCE_HEAD = "cls/seq_relationship/"  # the only part of a teacher that nothing asks


class DistilledPretrainingTask(PretrainingTask):
    """Pretraining whose student also learns a teacher's predictions of the masked words, and its last layer.

    Evaluation is that of pretraining, and needs no teacher.

    Source: Sanh et al., "DistilBERT, a distilled version of BERT" (2019), section 2.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        teacher: str,
        temperature: float,
        soft_target_weight: float,
        masked_lm_weight: float,
        hidden_state_weight: float,
        encoder_options: EncoderOptions = PLAIN,
        **options: Any,
    ):
        """Describes the task.

        Args:
          config: the student's architecture.
          teacher: where the teacher's weights are; see `BertEncoder.from_checkpoint`.
          temperature: what the logits of both are divided by.
          soft_target_weight: weight of the teacher's predictions in the loss.
          masked_lm_weight: weight of the masked words in the loss.
          hidden_state_weight: weight of the angle between the last layers of both.
          encoder_options: how the encoders compute.
          **options: see `PretrainingTask`.

        Raises:
          UserError: the teacher has no head for masked words, another vocabulary, or another hidden size.
        """
        super().__init__(config, encoder_options=encoder_options, **options)
        self._temperature = temperature
        self._weights = {
            "masked_lm": masked_lm_weight,
            "soft_target": soft_target_weight,
            "cosine": hidden_state_weight,
        }
        self._arrays, self._teacher_config = open_pretrained(teacher, parameter="teacher")
        _check_fits(self._teacher_config, config, self._arrays.source, compares_layers=hidden_state_weight > 0)
        self._teacher: LayeredModel | None = None

    def build_model(self) -> keras.Model:
        """Creates the student, variables included, and loads the teacher."""
        student = LayeredModel(super().build_model())
        options = EncoderOptions(dtype=self._encoder_options.dtype)
        teacher = PretrainingModel(create_encoder(self._teacher_config, options))
        teacher.trainable = False
        load_pretrained(
            self._arrays,
            teacher.checkpoint_variables(),
            required=lambda name: not name.startswith(_NEXT_SENTENCE_HEAD),
        )
        self._teacher = LayeredModel(teacher)
        return student

    def losses(self, outputs: OutputsAndLayers, batch: Mapping[str, tf.Tensor]) -> dict[str, WeightedSum]:
        """Those of pretraining, and two more: soft_target over the masked positions, cosine over all but padding."""
        losses = super().losses(outputs.outputs, batch)
        taught = self._teacher(batch, training=False)
        is_masked = batch["masked_lm_weights"]
        divergences = soft_cross_entropy(
            outputs.outputs["masked_lm_logits"], taught.outputs["masked_lm_logits"], self._temperature
        )  # [B, P]
        losses["soft_target"] = WeightedSum(
            tf.reduce_sum(divergences * is_masked), tf.reduce_sum(is_masked) + EMPTY_WEIGHT
        )
        if self._weights["cosine"]:
            student, teacher = (
                tf.math.l2_normalize(tf.cast(of_model.layers[-1], tf.float32), axis=-1)
                for of_model in (outputs, taught)
            )
            distances = 1 - tf.reduce_sum(student * teacher, axis=-1)  # [B, S]
            is_real = tf.cast(batch["input_mask"], tf.float32)
            losses["cosine"] = WeightedSum(tf.reduce_sum(distances * is_real), tf.reduce_sum(is_real))
        return {name: weighted(loss, self._weights.get(name, 1.0)) for name, loss in losses.items()}

    def predictions(self, outputs: OutputsAndLayers, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Those of pretraining."""
        return super().predictions(outputs.outputs, batch)


def check_teacher_vocabulary(teacher: str, vocabulary: Vocabulary) -> None:
    """Raises if beside a teacher lies another vocabulary than that of the run."""
    for folder in folders_of(teacher):
        if knows_vocabulary(folder, vocabulary) is False:
            raise UserError(other_vocabulary(vocabulary, folder, f"teacher={teacher} was trained with"))


def _check_fits(teacher: BertConfig, student: BertConfig, source: str, *, compares_layers: bool) -> None:
    if teacher.vocab_size != student.vocab_size:
        raise UserError(
            f"the teacher in {source} has vocab_size={teacher.vocab_size} and the student {student.vocab_size}; give a "
            "teacher and a student of one vocabulary"
        )
    if teacher.type_vocab_size < student.type_vocab_size:
        raise UserError(
            f"the teacher in {source} has type_vocab_size={teacher.type_vocab_size} and the student "
            f"{student.type_vocab_size}; the teacher needs at least as many"
        )
    if compares_layers and teacher.hidden_size != student.hidden_size:
        raise UserError(
            f"the teacher in {source} has hidden_size={teacher.hidden_size} and the student {student.hidden_size}, so "
            "their last layers cannot be compared; give hidden_state_weight=0"
        )
