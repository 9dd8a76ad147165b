"""Extractive question answering: model, losses, and logits of each window."""

from collections.abc import Mapping

from keras import ops
from typing_extensions import Self

from official_bert.config.bert_config import BertConfig
from official_bert.data.schema import Field, RecordSchema
from official_bert.modeling.encoder_options import PLAIN, EncoderOptions, UnpaddedLayout
from official_bert.modeling.heads import SpanModel
from official_bert.serving.text_model import Tensors, TextModel, TrainedModel
from official_bert.tasks.question_answering.answers import LOGITS, MASKED_LOGIT
from official_bert.tasks.question_answering.data import WindowOptions
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

_LOW = -1e4  # never chosen, but small enough for finite differences


class QuestionAnsweringTask(EncoderTask):
    """Prediction of the start and end of an answer in a window.

    If `is_padding_scored`, and the encoder computes padding, it takes part in the softmax, as in the reference.
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
        **options,
    ):
        super().__init__(SpanModel, config, encoder_options=encoder_options, **options)
        self._max_seq_length = max_seq_length
        self._is_padding_scored = is_padding_scored
        self._is_padding_computed = encoder_options.layout is not UnpaddedLayout
        self.schema = self.sized(schema)  # the training record schema, with lengths and limits
        # the teacher's start and end logits at each position of a record
        self.teacher_field = Field(
            TEACHER_LOGITS, (max_seq_length, len(LOGITS)), "float32", is_per_position=True, is_trimmed=True
        )

    def sized(self, schema: RecordSchema) -> RecordSchema:
        """Return a schema with this task's lengths and limits."""
        return schema.sized(S=self._max_seq_length, V=self._config.vocab_size, T=self._config.num_segments)

    def losses(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, WeightedSum]:
        """Return the mean of the start and end losses; as in the reference, padding is included, if it is computed."""
        outputs = outputs if self._is_padding_computed else _without_padding(outputs, batch)
        losses = [
            sparse_cross_entropy(batch[positions], outputs[logits])
            for positions, logits in zip(("start_positions", "end_positions"), LOGITS, strict=True)
        ]
        return {"span": mean_loss(sum(losses) / 2)}

    def logits(self, outputs: Mapping[str, Tensor]) -> Tensor:
        return ops.stack([outputs[name] for name in LOGITS], axis=-1)  # [B, S, 2]

    def soft_target_loss(
        self, outputs: Mapping[str, Tensor], teacher_logits: Tensor, batch: Mapping[str, Tensor], temperature: float
    ) -> WeightedSum:
        """Return the mean over start and end, each a softmax over all positions except padding."""
        is_real = batch["input_mask"][:, :, None] == 1
        student, teacher = (ops.where(is_real, logits, _LOW) for logits in (self.logits(outputs), teacher_logits))
        losses = soft_cross_entropy(student, teacher, temperature, axis=1)  # [B, 2]
        return WeightedSum(ops.sum(losses) / len(LOGITS), ops.cast(ops.shape(losses)[0], "float32"))

    def predictions(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the logits at full length, for any batch length."""
        num_missing = self._max_seq_length - ops.shape(batch["input_ids"])[1]
        if not (self._is_padding_scored and self._is_padding_computed):
            outputs = _without_padding(outputs, batch)
        return {
            name: ops.pad(outputs[name], [[0, 0], [0, num_missing]], constant_values=MASKED_LOGIT) for name in LOGITS
        }


def _without_padding(outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Set logits at padding so low that they are never chosen."""
    return {name: ops.where(batch["input_mask"] == 1, outputs[name], MASKED_LOGIT) for name in LOGITS}


class AnswerTextModel(TextModel):
    """Answers to a question in a text."""

    task = "question_answering"
    text_names = ("question", "context")
    per_position = LOGITS

    def __init__(
        self,
        model: SpanModel,
        config: BertConfig,
        tokenizer: Tokenizer,
        options: WindowOptions,
        *,
        max_answer_length: int = 30,
        version_2: bool = False,
        top_k: int = 5,
    ):
        super().__init__(model, config, tokenizer, max_seq_length=options.max_seq_length)
        self._options = options
        self._max_answer_length, self._version_2, self._top_k = max_answer_length, version_2, top_k
        of_windows = {"doc_stride": options.doc_stride, "max_query_length": options.max_query_length}
        search = {"max_answer_length": max_answer_length, "version_2": version_2, "top_k": top_k}
        self._details = lambda: {**of_windows, **search}

    @classmethod
    def of_run(cls, run: TrainedModel) -> Self:
        config = run.config
        return cls(
            run.load(SpanModel),
            run.bert_config,
            run.tokenizer,
            WindowOptions(config.max_seq_length, config.doc_stride, config.max_query_length),
            max_answer_length=config.max_answer_length,
            version_2=config.version_2_with_negative,
            top_k=config.export_top_k,
        )

    def numbers(self, inputs: Tensors) -> Tensors:
        """Return the start and end logits, [B, S]; a very low number at padding."""
        outputs = self._run_model(inputs)
        return {name: ops.where(inputs["input_mask"] == 1, outputs[name], MASKED_LOGIT) for name in LOGITS}


TEXT_MODEL = AnswerTextModel
