"""Sentence classification and regression task: model, losses and metrics."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from keras import ops
from typing_extensions import Self

from official_bert.checkpoints.locate import hugging_face_folder
from official_bert.config.bert_config import FEATURES, BertConfig
from official_bert.config.sentence_modules import score_activation
from official_bert.data.schema import Field, RecordSchema
from official_bert.metrics.classification import METRICS, PROBABILITY_METRICS
from official_bert.modeling.heads import ClassificationModel
from official_bert.serving.text_model import Tensors, TextModel, TrainedModel
from official_bert.serving.versions import NUM_POSITIONS
from official_bert.support.errors import UserError, format_names
from official_bert.tasks.classification.data import THRESHOLD, decide
from official_bert.tasks.classification.reader import IS_PREDICTED, PREDICTED, RAW
from official_bert.tasks.classification.records import (
    IS_REAL_FIELD,
    LABEL_FIELDS,
    classification_schema,
    configured_dataset,
    reads_pairs,
)
from official_bert.tasks.classification.report import with_stored_thresholds
from official_bert.tokenization import Tokenizer
from official_bert.training.task import (
    TEACHER_LOGITS,
    EncoderTask,
    Tensor,
    WeightedSum,
    soft_binary_cross_entropy,
    soft_cross_entropy,
    sparse_cross_entropy,
)

_LEAST_DOUBT = 1e-7  # of 1 - p; below 1, a power of 0 has an infinite slope


@dataclasses.dataclass(frozen=True)
class ClassLoss:
    """Cross-entropy of C classes with weights, smoothed labels and less weight on easy examples.

    Source: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision" (2016), section 7; Lin et al.,
    "Focal Loss for Dense Object Detection" (2017), section 3.
    """

    class_weights: Sequence[float] | None = None  # weight of the examples of each class, C numbers; None for 1 each
    label_smoothing: float = 0.0  # fraction of each example's label that is spread evenly over all classes
    # exponent of (1 - p), by which the loss of a class with probability p is multiplied; 0 for no effect
    focal_gamma: float = 0.0

    def __call__(self, labels: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weighted loss of each example, [B], and the weights of their true classes, [B].

        The sum of the losses divided by that of the weights is PyTorch's `CrossEntropyLoss(weight, label_smoothing)`.
        """
        num_classes = logits.shape[-1]
        weights = ops.convert_to_tensor(self.class_weights or [1.0] * num_classes, "float32")  # [C]
        is_label = ops.one_hot(labels, num_classes)  # [B, C]
        targets = is_label * (1 - self.label_smoothing) + self.label_smoothing / num_classes
        log_probabilities = ops.log_softmax(logits)
        losses = -targets * weights * log_probabilities  # [B, C]
        if self.focal_gamma:
            doubts = ops.maximum(-ops.expm1(log_probabilities), _LEAST_DOUBT)
            losses *= doubts**self.focal_gamma
        return ops.sum(losses, axis=-1), ops.take(weights, labels)


def balanced_weights(labels: Sequence[int], names: Sequence[str]) -> list[float]:
    """Return weights by which all classes count the same in total: N / (C * number of examples of the class).

    Classes of 90 and 10 examples get 0.56 and 5. The mean weight of an example is 1.

    Source: King and Zeng, "Logistic Regression in Rare Events Data" (2001); scikit-learn's `class_weight="balanced"`.
    """
    counts = np.bincount(labels, minlength=len(names))
    if not counts.all():
        missing = format_names(name for name, count in zip(names, counts, strict=True) if not count)
        raise UserError(f"class_weights=balanced: no training example has the label {missing}; give the weights")
    return (len(labels) / (len(names) * counts)).tolist()


class Problem(NamedTuple):
    loss: Callable[[Tensor, Tensor], Tensor]  # maps labels [B] or [B, C] and logits [B, C] to losses [B]
    # maps logits [B, C] to probabilities [B, C]; for regression, to the number itself
    probabilities: Callable[[Tensor], Tensor]
    # maps logits [B, C], a teacher's logits [B, C] and a temperature to losses [B]
    soft_target_loss: Callable[[Tensor, Tensor, float], Tensor]


def _sigmoid_cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    losses = ops.binary_crossentropy(ops.cast(labels, "float32"), logits, from_logits=True)  # [B, C]
    return ops.mean(losses, axis=-1)


PROBLEMS = {
    "single_label": Problem(sparse_cross_entropy, ops.softmax, soft_cross_entropy),
    "multi_label": Problem(_sigmoid_cross_entropy, ops.sigmoid, soft_binary_cross_entropy),
    "regression": Problem(
        lambda labels, logits: ops.square(logits[:, 0] - labels),
        lambda logits: logits,
        lambda logits, teacher_logits, temperature: ops.square(logits[:, 0] - teacher_logits[:, 0]),
    ),
}


class ClassificationTask(EncoderTask):
    """Classification or regression of a text or text pair. Source: BERT paper, section 4.1."""

    def __init__(
        self,
        config: BertConfig,
        *,
        problem: str,
        num_labels: int,
        metric_names: Sequence[str],
        max_length: int,
        eval_batch_size: int,
        training_loss: ClassLoss | None = None,
        **options,
    ):
        super().__init__(ClassificationModel, config, num_outputs=num_labels, **options)
        self._problem_name, self._problem = problem, PROBLEMS[problem]
        self._metric_names = metric_names
        self._eval_batch_size = eval_batch_size
        self._training_loss = training_loss
        sizes = {"S": max_length, "V": config.vocab_size, "T": config.num_segments, "C": num_labels}
        self.schema = classification_schema(problem).sized(**sizes)  # the record schema, with lengths and limits
        self.teacher_field = Field(TEACHER_LOGITS, (num_labels,), "float32")  # the teacher's logits in a record
        self._label_fields = RecordSchema(LABEL_FIELDS[problem], IS_REAL_FIELD).sized(**sizes).fields

    def feature_schema(self, model: ClassificationModel) -> RecordSchema:
        return RecordSchema(Field(FEATURES, (int(np.prod(model.feature_shape)),), "float32"), *self._label_fields)

    def losses(self, outputs: Tensor, batch: Mapping[str, Tensor]) -> dict[str, WeightedSum]:
        if self._training_loss is None:
            return {"classification": _of_real_examples(self._problem.loss(batch["label_ids"], outputs), batch)}
        losses, weights = self._training_loss(batch["label_ids"], outputs)
        return {"classification": _of_real_examples(losses, batch, weights)}

    def soft_target_loss(
        self, outputs: Tensor, teacher_logits: Tensor, batch: Mapping[str, Tensor], temperature: float
    ) -> WeightedSum:
        return _of_real_examples(self._problem.soft_target_loss(outputs, teacher_logits, temperature), batch)

    def predictions(self, outputs: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            "probabilities": self._problem.probabilities(outputs),
            "loss": self._problem.loss(batch["label_ids"], outputs),
            "label_ids": batch["label_ids"],
        }

    def scores(
        self, predictions: Mapping[str, np.ndarray], thresholds: Sequence[float] | None = None
    ) -> dict[str, float]:
        """Return the loss and metrics over all examples; `loss` is the mean of the batch means."""
        losses = predictions["loss"].astype(np.float64)
        starts = range(0, len(losses), self._eval_batch_size)
        batch_losses = [np.mean(losses[start : start + self._eval_batch_size]) for start in starts]
        labels, probabilities = predictions["label_ids"], predictions["probabilities"]
        decided = decide(self._problem_name, probabilities, thresholds)
        scores = {
            name: METRICS[name](labels, decided)
            if name in METRICS
            else PROBABILITY_METRICS[name](labels, probabilities)
            for name in self._metric_names
        }
        return {
            "eval_loss": float(np.mean(losses)),
            "loss": float(np.mean(batch_losses)),
            **{f"eval_{name}": score for name, score in scores.items()},
        }


def _of_real_examples(losses: Tensor, batch: Mapping[str, Tensor], weights: Tensor | float = 1.0) -> WeightedSum:
    """Sum losses, float32 [B], and their weights, excluding padding examples."""
    is_real = ops.cast(batch["is_real_example"], "float32")
    return WeightedSum(ops.sum(losses * is_real), ops.sum(weights * is_real))


class ClassOutputs(NamedTuple):
    problem: str  # as in `Dataset`
    labels: Sequence[str]
    thresholds: Sequence[float] | None = None  # as in `Dataset`
    activation: str = "Identity"  # of the score of a regression; see `score_activation`


class ClassificationTextModel(TextModel):
    """A classifier of a text or text pair, or a regression."""

    task = "classification"

    def __init__(
        self,
        model: ClassificationModel,
        config: BertConfig,
        tokenizer: Tokenizer,
        *,
        outputs: ClassOutputs,
        is_pair: bool,
        max_seq_length: int,
        max_windows: int = 1,
        doc_stride: int | None = None,
    ):
        super().__init__(model, config, tokenizer, max_seq_length=max_seq_length)
        self.text_names = ("text_a", "text_b") if is_pair else ("text_a",)
        problem, labels, self._thresholds, self._activation = outputs
        self._problem, self._max_windows, self._doc_stride = problem, max_windows, doc_stride
        details = {"problem": problem, "labels": list(labels), "max_windows": max_windows, "doc_stride": doc_stride}
        if max_windows > 1:
            details[NUM_POSITIONS] = self.num_example_positions
        self._details = lambda: details

    @classmethod
    def of_run(cls, run: TrainedModel) -> Self:
        config, dataset = run.config, with_stored_thresholds(configured_dataset(run.config), run.checkpoint)
        hf_folder = hugging_face_folder(run.checkpoint)
        activation = score_activation(hf_folder, dataset.problem) if hf_folder else "Identity"
        return cls(
            run.load(ClassificationModel, num_outputs=len(dataset.labels) or 1),
            run.bert_config,
            run.tokenizer,
            outputs=ClassOutputs(dataset.problem, dataset.labels, dataset.thresholds, activation),
            is_pair=reads_pairs(config),
            max_seq_length=config.max_seq_length,
            max_windows=config.max_windows if config.long_text == "window" else 1,
            doc_stride=config.doc_stride,
        )

    @property
    def most_positions(self) -> int:
        return self.num_example_positions if self._max_windows > 1 else super().most_positions

    @property
    def num_example_positions(self) -> int:
        return self._max_windows * self.max_seq_length

    def numbers(self, inputs: Tensors) -> Tensors:
        """Return scores [B]; or logits and probabilities, [B, C].

        Scores that passed through a sigmoid have the logits beside them, as `raw_scores`, [B].
        For several labels also the predictions, `is_predicted`, bool [B, C]; for single labels with a threshold
        `predicted`, int32 [B], the number of the label.
        """
        if self._max_windows > 1:
            inputs = _whole_windows(inputs, self.max_seq_length)
        logits = self._run_model(inputs)
        if self._problem == "regression":
            scores = logits[:, 0]
            return {"scores": ops.sigmoid(scores), RAW: scores} if self._activation == "Sigmoid" else {"scores": scores}
        outputs = {"logits": logits, "probabilities": PROBLEMS[self._problem].probabilities(logits)}
        if self._problem == "multi_label":
            outputs[IS_PREDICTED] = outputs["probabilities"] > np.float32(self._thresholds or THRESHOLD)
        elif self._thresholds:
            outputs[PREDICTED] = ops.cast(outputs["probabilities"][:, 1] > self._thresholds[0], "int32")
        return outputs


TEXT_MODEL = ClassificationTextModel


def _whole_windows(inputs: Tensors, window_length: int) -> Tensors:
    last = (ops.shape(inputs["input_ids"])[1] - 1) % window_length  # never negative: converters divide toward zero
    num_missing = window_length - 1 - last
    return {name: ops.pad(values, [[0, 0], [0, num_missing]]) for name, values in inputs.items()}
