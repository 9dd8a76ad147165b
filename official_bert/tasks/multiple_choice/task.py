"""The multiple-choice task: model, loss and scores."""

from collections.abc import Mapping

import keras
import numpy as np
from keras import ops
from typing_extensions import Self

from official_bert.config.bert_config import FEATURES, BertConfig
from official_bert.data.schema import Field, RecordSchema
from official_bert.metrics.classification import accuracy
from official_bert.modeling.heads import MultipleChoiceModel
from official_bert.serving.text_model import Tensors, TextModel, TrainedModel
from official_bert.tasks.multiple_choice.data import LABEL, choice_schema, label_fields
from official_bert.tasks.multiple_choice.reader import CHOICES
from official_bert.tokenization import Tokenizer
from official_bert.training.task import (
    TEACHER_LOGITS,
    EncoderTask,
    Tensor,
    WeightedSum,
    mean_loss,
    soft_cross_entropy,
    sparse_cross_entropy,
)

# B: examples, N: choices per example.


class MultipleChoiceTask(EncoderTask):
    """The task of choosing one of several texts for a context. Source: BERT paper, section 4.4."""

    def __init__(
        self, config: BertConfig, *, num_choices: int, max_seq_length: int, is_padded_to_longest: bool = True, **options
    ):
        fixed_length = None if is_padded_to_longest else max_seq_length
        super().__init__(MultipleChoiceModel, config, max_seq_length=fixed_length, **options)
        self.num_choices = num_choices
        # the record schema, with lengths and limits
        self.schema = choice_schema(
            num_choices, max_seq_length, vocab_size=config.vocab_size, num_segments=config.num_segments
        )
        self.teacher_field = Field(TEACHER_LOGITS, (num_choices,), "float32")  # the teacher's scores in a record
        features = Field(FEATURES, (num_choices * config.hidden_size,), "float32")
        self._feature_schema = RecordSchema(features, *label_fields(num_choices, max_seq_length))

    def feature_schema(self, model: keras.Model) -> RecordSchema:
        del model
        return self._feature_schema

    def losses(self, outputs: Tensor, batch: Mapping[str, Tensor]) -> dict[str, WeightedSum]:
        return {"multiple_choice": mean_loss(sparse_cross_entropy(batch[LABEL], outputs))}

    def soft_target_loss(
        self, outputs: Tensor, teacher_logits: Tensor, batch: Mapping[str, Tensor], temperature: float
    ) -> WeightedSum:
        del batch
        return mean_loss(soft_cross_entropy(outputs, teacher_logits, temperature))

    def predictions(self, outputs: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        loss = sparse_cross_entropy(batch[LABEL], outputs)
        return {"probabilities": ops.softmax(outputs), "loss": loss, LABEL: batch[LABEL]}

    def scores(self, predictions: Mapping[str, np.ndarray]) -> dict[str, float]:
        chosen = predictions["probabilities"].argmax(axis=-1)
        return {
            "eval_accuracy": accuracy(predictions[LABEL], chosen),
            "eval_loss": float(np.mean(predictions["loss"], dtype=np.float64)),
        }


class ChoiceTextModel(TextModel):
    """The choice of one of several texts for a context."""

    task = "multiple_choice"

    def __init__(
        self,
        model: MultipleChoiceModel,
        config: BertConfig,
        tokenizer: Tokenizer,
        *,
        max_seq_length: int,
        has_question: bool = False,
    ):
        super().__init__(model, config, tokenizer, max_seq_length=max_seq_length)
        self.text_names = ("context", "question", CHOICES) if has_question else ("context", CHOICES)

    @classmethod
    def of_run(cls, run: TrainedModel) -> Self:
        model, config = run.load(MultipleChoiceModel), run.config
        options = {"max_seq_length": config.max_seq_length, "has_question": config.has_question}
        return cls(model, run.bert_config, run.tokenizer, **options)

    def numbers(self, inputs: Tensors) -> Tensors:
        """Score sequences of a context and a choice, [B]; a softmax over a context's choices is their probability."""
        return {"scores": self._run_model(inputs)}


TEXT_MODEL = ChoiceTextModel
