"""Pretraining with a teacher: a larger pretrained model that reads the same batches as its student."""

from collections.abc import Mapping

import tensorflow as tf

from official_bert.checkpoints.loading import load
from official_bert.checkpoints.pretrained import open_pretrained
from official_bert.checkpoints.state_file import model_folders
from official_bert.config.bert_config import BertConfig
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import EncoderOptions
from official_bert.modeling.pretraining import PretrainingModel
from official_bert.support.errors import UserError
from official_bert.tasks.pretraining.task import PretrainingTask
from official_bert.tokenization import Vocabulary
from official_bert.training.distillation import TaskWithTeacher, cosine_loss
from official_bert.training.layered_model import LayeredModel, OutputsAndLayers
from official_bert.training.run_folder import matches_vocabulary, vocabulary_mismatch
from official_bert.training.task import WeightedSum

_NEXT_SENTENCE_HEAD = "cls/seq_relationship/"  # the only part of a teacher that is not used


class DistilledPretrainingTask(TaskWithTeacher):
    """Pretraining whose student also learns its teacher's masked-word predictions and last layer.

    Source: Sanh et al., "DistilBERT, a distilled version of BERT" (2019), section 2.
    """

    def __init__(
        self,
        task: PretrainingTask,
        bert_config: BertConfig,
        *,
        teacher: str,
        temperature: float,
        weights: Mapping[str, float],
        dtype: str | None = None,
    ):
        """Add distillation losses to pretraining.

        Args:
          task: the pretraining task.
          bert_config: the student's architecture.
          teacher: location of the teacher's weights; see `BertEncoder.from_checkpoint`.
          temperature: divisor of both models' logits.
          weights: loss weights: `masked_lm`, `soft_target` (the teacher's masked-word predictions) and `cosine` (the
            angle between the last layers of both models; disabled at 0).
          dtype: dtype policy of the teacher.

        Raises:
          UserError: the teacher lacks a masked-LM head, or differs in vocabulary or hidden size.
        """
        super().__init__(task, weights=weights)
        self._temperature = temperature
        self._dtype = dtype
        self._reader, self._teacher_config = open_pretrained(teacher, parameter="teacher")
        _check_fits(self._teacher_config, bert_config, self._reader.prefix, compares_layers=weights["cosine"] > 0)

    def _load_teacher(self) -> LayeredModel:
        teacher = PretrainingModel(create_encoder(self._teacher_config, EncoderOptions(dtype=self._dtype)))
        load(
            self._reader,
            teacher.checkpoint_variables(),
            required=lambda name: not name.startswith(_NEXT_SENTENCE_HEAD),
        ).log()
        return LayeredModel(teacher)

    def _taught_losses(self, outputs: OutputsAndLayers, batch: Mapping[str, tf.Tensor]) -> dict[str, WeightedSum]:
        taught = self._teacher(batch, training=False)
        logits = taught.outputs["masked_lm_logits"]
        losses = {"soft_target": self._task.soft_target_loss(outputs.outputs, logits, batch, self._temperature)}
        if self._weights["cosine"]:
            losses["cosine"] = cosine_loss(outputs.layers[-1], taught.layers[-1], batch["input_mask"])
        return losses


def check_teacher_vocabulary(teacher: str, vocabulary: Vocabulary) -> None:
    """Raise if the teacher's folder has another vocabulary than the run."""
    for folder in model_folders(teacher):
        if matches_vocabulary(folder, vocabulary) is False:
            raise UserError(vocabulary_mismatch(vocabulary, folder, f"teacher={teacher} was trained with"))


def _check_fits(teacher: BertConfig, student: BertConfig, source: str, *, compares_layers: bool) -> None:
    if teacher.vocab_size != student.vocab_size:
        raise UserError(
            f"the teacher in {source} has vocab_size={teacher.vocab_size} and the student {student.vocab_size}; give a "
            "teacher and a student with the same vocabulary"
        )
    if teacher.num_segments < student.num_segments:
        raise UserError(
            f"the teacher in {source} has type_vocab_size={teacher.type_vocab_size} and the student "
            f"{student.type_vocab_size}; the teacher needs at least as many"
        )
    if compares_layers and teacher.hidden_size != student.hidden_size:
        raise UserError(
            f"the teacher in {source} has hidden_size={teacher.hidden_size} and the student {student.hidden_size}, so "
            "their last layers cannot be compared; give cosine_weight=0"
        )
