"""The interface of a task for the Trainer, its settings, and what tasks share: losses, and learning from a teacher."""

import dataclasses
import functools
import numbers
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import keras
from keras import ops
from typing_extensions import Self

from official_bert.config.bert_config import BertConfig
from official_bert.data.schema import Field, RecordSchema
from official_bert.modeling.encoder import create_encoder
from official_bert.modeling.encoder_options import PLAIN, EncoderOptions
from official_bert.options.option import check_limits
from official_bert.options.training import TrainingOptions
from official_bert.support.errors import UserError

Tensor = Any  # a tensor of Keras's backend
_NUMBERS = {int: numbers.Integral, float: numbers.Real}
_MINIMUMS = {"num_train_steps": 1, "num_warmup_steps": 0, "num_trained_layers": 0, "eval_steps": 0}
TEACHER_LOGITS = "teacher_logits"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Length and speed of training, and what to save. Settings that are flags have the same names and limits.

    Attributes:
      train_batch_size: examples per step, over all replicas; None for variable batch sizes, which count examples.
      num_train_steps: total number of steps, including those before a resume.
      num_warmup_steps: number of warm-up steps.
      learning_rate: peak learning rate.
      end_learning_rate: learning rate of the last step, for schedules that decay.
      lr_schedule: name of the schedule, a row of `optimization.schedules`.
      optimizer: name of the optimizer, a row of `optimization.optimizers`.
      optimizer_options: optimizer-specific options, such as `{"bias_correction": True}`.
      gradient_accumulation_steps: number of parts that each batch is split into, computed sequentially.
      random_seed: dropout seed.
      iterations_per_loop: maximum number of steps in one compiled call.
      use_xla: whether to compile the step with XLA, on one device.
      save_checkpoints_steps: steps between checkpoints.
      save_checkpoints_secs: seconds after which another one is saved, which the next one replaces; 0 for none.
      max_train_seconds: seconds after which training stops with a checkpoint and can be resumed; 0 for no limit.
      num_trained_layers: see `step.freeze`.
      train_only: see `step.freeze`.
      nan_policy: on a non-finite loss or gradient, "stop" training or "skip" the step without changing anything.
      keep_checkpoint_max: number of checkpoints to keep, 0 for all.
      log_steps: steps between log lines.
      eval_steps: steps between evaluations, None for none.
    """

    train_batch_size: int | None
    num_train_steps: int
    num_warmup_steps: int = 0
    learning_rate: float = 5e-5
    end_learning_rate: float = 0.0
    lr_schedule: str = "linear"
    optimizer: str = "adam"
    optimizer_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    gradient_accumulation_steps: int = 1
    num_trained_layers: int | None = None
    train_only: str | None = None
    random_seed: int = 12345
    iterations_per_loop: int = 1000
    use_xla: bool = False
    save_checkpoints_steps: int = 1000
    save_checkpoints_secs: int = 600
    max_train_seconds: float = 0
    keep_checkpoint_max: int = 5
    nan_policy: str = "stop"
    log_steps: int = 100
    eval_steps: int | None = None

    def __post_init__(self):
        limits = {field.name: field.metadata for field in dataclasses.fields(TrainingOptions)}
        for name, minimum in _MINIMUMS.items():
            limits[name] = {**limits["log_steps"], "minimum": minimum}
        for field in dataclasses.fields(self):
            value, kinds = getattr(self, field.name), typing.get_args(field.type) or (field.type,)
            if (kind := kinds[0]) in _NUMBERS and not (value is None and type(None) in kinds):
                if isinstance(value, bool) or not isinstance(value, _NUMBERS[kind]):
                    what = "a whole number" if kind is int else "a number"
                    raise UserError(f"{field.name} is {value!r:.80}; it must be {what}")
                check_limits(field.name, value, limits[field.name])
        check_limits("nan_policy", self.nan_policy, limits["nan_policy"])
        if self.end_learning_rate > self.learning_rate:
            raise UserError(f"end_learning_rate={self.end_learning_rate} is above learning_rate={self.learning_rate}")

    @classmethod
    def from_config(cls, config: TrainingOptions, **others: Any) -> Self:
        """Create a plan from the flags of a run; `others` are settings without flags, by name."""
        if config.train_batch_tokens:
            others["train_batch_size"] = None
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: others[name] if name in others else getattr(config, name) for name in names})


class WeightedSum(NamedTuple):
    """Numerator and denominator of a mean, so that batches and replicas can be summed exactly.

    Attributes:
      total: float scalar, sum of loss times weight.
      weight: float scalar, sum of the weights; may depend on the batch, not on the outputs.
      rise: fraction of the training in which a factor of the mean rises quadratically from 0 to 1.
    """

    total: Tensor
    weight: Tensor
    rise: float = 0.0


def mean_loss(losses: Tensor) -> WeightedSum:
    """Weight all losses of a batch equally."""
    return WeightedSum(ops.sum(losses), ops.cast(ops.size(losses), "float32"))


def sparse_cross_entropy(labels: Tensor, logits: Tensor) -> Tensor:
    """Return -log softmax(logits) at the labels, float32 [...], from int [...] and float [..., C]."""
    return ops.sparse_categorical_crossentropy(labels, ops.cast(logits, "float32"), from_logits=True)


def replica() -> tuple[Tensor | int, int]:
    """Return the index of the replica that computes a loss, and the number of replicas.

    With another backend than TensorFlow, a loss sees the whole batch, as if on one replica.
    """
    if keras.backend.backend() != "tensorflow":
        return 0, 1
    from official_bert.optimization import replicas

    return replicas.own_index(), replicas.num_replicas()


def gather_over_replicas(values: Tensor) -> Tensor:
    """Concatenate a tensor of each replica, [b, ...], to that of the whole batch, [B, ...], with gradients."""
    if keras.backend.backend() != "tensorflow":
        return values
    from official_bert.optimization import replicas

    return replicas.gather_over_replicas(values)


class Task(Protocol):
    """A model with its losses and predictions.

    A task may set `compares_examples` to True if its losses compare the examples of a batch, so that those of the parts
    of a batch do not add up to that of the whole.
    """

    def build_model(self) -> keras.Model:
        """Create the model and its variables; inputs and outputs are dicts of tensors."""

    def losses(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, WeightedSum]:
        """Return the losses of a batch by name; training minimizes the sum of their means."""

    def predictions(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the per-example outputs for evaluation: name to tensor [B, ...]."""


class RecordTask(Task, Protocol):
    """A task that reads records."""

    schema: RecordSchema
    """The record schema on disk, also passed to the step."""


class EncoderTask:
    """The model of a task: an encoder, which may be frozen, with a head whose outputs are logits."""

    def __init__(
        self,
        model_class: Callable[..., keras.Model],
        config: BertConfig,
        *,
        trainable_encoder: bool = True,
        encoder_options: EncoderOptions = PLAIN,
        **model_options,
    ):
        self._config, self._encoder_options = config, encoder_options
        self._is_trainable = trainable_encoder
        self._make_model = functools.partial(model_class, **model_options)

    def build_model(self) -> keras.Model:
        encoder = create_encoder(self._config, self._encoder_options)
        if not self._is_trainable:
            encoder.trainable = False
        return self._make_model(encoder)

    def logits(self, outputs: Any) -> Tensor:
        return outputs


def compares_examples(task: Task) -> bool:
    """Return the attribute of a task; see `Task`."""
    return getattr(task, "compares_examples", False)


class DistillableTask(RecordTask, Protocol):
    """A task whose logits can be distilled."""

    teacher_field: Field
    """The teacher's field in a record: the logits of one example, `TEACHER_LOGITS`."""

    def logits(self, outputs: Mapping[str, Tensor] | Tensor) -> Tensor:
        """Return the teacher outputs to store: float32 [B, *shape of `teacher_field`]."""

    def soft_target_loss(
        self,
        outputs: Mapping[str, Tensor] | Tensor,
        teacher_logits: Tensor,
        batch: Mapping[str, Tensor],
        temperature: float,
    ) -> WeightedSum:
        """Return the loss of a student's outputs against a teacher's logits; 0 if they are equal."""


class DistilledTask:
    """A task learned from labels and from a teacher's logits: Hinton et al. (2015), section 2."""

    def __init__(self, task: DistillableTask, *, soft_target_weight: float, temperature: float):
        self._task = task
        self._soft_target_weight, self._temperature = soft_target_weight, temperature
        self.schema = task.schema.with_fields(task.teacher_field)  # the records of the task, with the teacher's logits
        self.compares_examples = compares_examples(task)

    def build_model(self) -> keras.Model:
        return self._task.build_model()

    def losses(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, WeightedSum]:
        """Return the losses of the task and `soft_target`, each multiplied by its weight."""
        soft_target = self._task.soft_target_loss(outputs, batch[TEACHER_LOGITS], batch, self._temperature)
        losses = {**self._task.losses(outputs, batch), "soft_target": soft_target}
        return weighted(losses, {"soft_target": self._soft_target_weight}, others=1 - self._soft_target_weight)

    def predictions(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._task.predictions(outputs, batch)


def weighted(
    losses: Mapping[str, WeightedSum], weights: Mapping[str, float], others: float = 1.0
) -> dict[str, WeightedSum]:
    """Return losses whose means are multiplied by weights, by name; `others` is the weight of unnamed losses."""
    return {name: loss._replace(total=loss.total * weights.get(name, others)) for name, loss in losses.items()}


def soft_cross_entropy(logits: Tensor, teacher_logits: Tensor, temperature: float, *, axis: int = -1) -> Tensor:
    """KL divergence of float [...] from a teacher's, times temperature^2, which keeps the gradients' scale."""
    student = ops.log_softmax(ops.cast(logits, "float32") / temperature, axis=axis)
    teacher = ops.log_softmax(ops.cast(teacher_logits, "float32") / temperature, axis=axis)
    return ops.sum(ops.exp(teacher) * (teacher - student), axis=axis) * temperature**2


def soft_binary_cross_entropy(logits: Tensor, teacher_logits: Tensor, temperature: float) -> Tensor:
    """Compute `soft_cross_entropy` for independent labels: the mean over the last axis."""
    pairs = [ops.stack([values, ops.zeros_like(values)], axis=-1) for values in (logits, teacher_logits)]
    return ops.mean(soft_cross_entropy(*pairs, temperature), axis=-1)
